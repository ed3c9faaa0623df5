"""Compares the rules of Atari games with ale_py, frame by frame.

    python -m benchmarks.atari_rules breakout pong
    python -m benchmarks.atari_rules --output auto

Each game is played for a number of frames, one frame a step and without sticky actions, by random
actions that are held for random times; then for as many in its other modes and difficulties. Both
are done again while bytes of the RAM are changed at random, mostly those that the rules read: that
makes scores wrap, digits carry, and episodes end that would not in random play. After each frame,
reward, lives, and the end of the episode by `envs/atari/games.toml` must be those of ale_py.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import _common
from jaxenvs.envs.atari import rules as atari
from jaxenvs.envs.atari.rules import NUMBER, OPERATIONS, REGISTERS, STAGES

FRAMES = 20_000
POKES = 0.02  # changes per frame
LONGEST = 40  # frames that an action is held
COMBINATIONS = 8  # of modes and difficulties, at most


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `--help`. Returns 1 if a game differs."""
    parser = _common.new_parser("atari_rules", __doc__)
    add = parser.add_argument
    add("games", nargs="*", help="names of ROMs; by default, all that have rules")
    add("--frames", type=int, default=FRAMES, help="in the default mode, and in the others")
    add("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    report = _common.publish(options, functools.partial(measure, options, arguments), table)
    return int(any(sum(found["mismatches"].values()) for found in report["measurements"]))


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    report = _common.new_report("atari_rules", arguments, ("ale_py",), 1)
    report["measurements"] = []
    for game in options.games or atari.games():
        for pokes in (0.0, POKES):
            report["measurements"].append(compare(game, options.frames, pokes, options.seed))
            if not options.quiet:
                print(_line(report["measurements"][-1]), flush=True)
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as text."""
    return "\n".join(map(_line, report["measurements"]))


def compare(game: str, frames: int, pokes: float = 0.0, seed: int = 0) -> dict[str, Any]:
    """Plays a game and compares its rules with ale_py.

    Args:
        game: the name of its ROM.
        frames: how many to play in the default mode, and in all others together.
        pokes: probability per frame that a byte of the RAM is changed before it.
        seed: of the actions and changes.

    Returns:
        Numbers of frames, rewards, lives lost, ends, and mismatches, and the first mismatch.
    """
    rules = atari.load_rules(game)
    found: dict[str, Any] = {
        "game": game,
        "pokes": pokes,
        "combinations": [],
        "over_at_reset": [],
        "frames": 0,
        "rewards": 0,
        "lives_lost": 0,
        "ends": 0,
        "mismatches": {"reward": 0, "lives": 0, "over": 0, "reset": 0},
        "first": None,
    }
    default, *others = _combinations(rules)
    for mode, difficulty in (default, *others):
        found["combinations"].append([mode, difficulty])
        share = frames // len(others) if others and (mode, difficulty) != default else frames
        _play(game, rules, mode, difficulty, share, pokes, seed, found)
    return found


def evaluate(program: atari.Program, ram: Sequence[int], registers: Mapping[str, int]) -> int:
    """Evaluates a program as the stack machine in C does.

    Args:
        program: from `compile_expression`.
        ram: the 128 bytes.
        registers: those that it reads. Those left out are 0.
    """
    stack: list[int] = []
    for number, argument in program.tolist():
        operation = OPERATIONS[number]
        if operation == "END":
            break
        if operation == "CONSTANT":
            stack.append(argument)
        elif operation == "REGISTER":
            stack.append(registers.get(REGISTERS[argument], 0))
        elif number < NUMBER["ADD"]:
            byte = int(ram[argument])
            high, low = byte >> 4, byte & 15
            stack.append({"RAM": byte, "BCD": 10 * high + low, "HIGH": high, "LOW": low}[operation])
        elif operation == "SELECT":
            otherwise, then, condition = stack.pop(), stack.pop(), stack.pop()
            stack.append(then if condition else otherwise)
        elif number < NUMBER["NEGATIVE"]:
            right, left = stack.pop(), stack.pop()
            stack.append(_wrap(_COMBINE[operation](left, right)))
        else:
            value = stack.pop()
            changed = {"NEGATIVE": -value, "INVERT": ~value, "NOT": value == 0}[operation]
            stack.append(_wrap(changed))
    return stack.pop()


class Scorer:
    """Follows an episode from frame to frame by the rules of a game.

    Made from the RAM at the reset. `step` takes the RAM after each frame.
    """

    def __init__(self, rules: atari.Rules, ram: Sequence[int]) -> None:
        self._programs = rules.programs
        first: dict[str, int] = {}
        for stage in ("score", "over", "lives"):
            first[stage] = self._evaluate(stage, ram, first)
        self._registers = {stage: first.get(stage, 0) for stage in ("flag", "count", *first)}

    @property
    def lives(self) -> int:
        """The lives after the latest frame; 0 in a game without lives."""
        return self._registers["lives"]

    @property
    def over(self) -> bool:
        """Whether the episode is over, which some modes are at the reset already."""
        return bool(self._registers["over"])

    def step(self, ram: Sequence[int]) -> tuple[int, int, bool]:
        """Returns the reward of a frame, the lives after it, and whether the episode is over."""
        now = {f"old_{name}": self._registers[name] for name in ("flag", "count", "score", "lives")}
        for stage in STAGES:
            now[stage] = self._evaluate(stage, ram, now)
        self._registers = now
        return now["reward"], now["lives"], bool(now["over"])

    def _evaluate(self, stage: str, ram: Sequence[int], registers: Mapping[str, int]) -> int:
        if stage in self._programs:
            return evaluate(self._programs[stage], ram, registers)
        return registers["score"] - registers["old_score"] if stage == "reward" else 0


def _combinations(rules: atari.Rules) -> list[tuple[int, int]]:
    # The default first, then modes spread over all, with the difficulties in turn.
    number = max(len(rules.modes), len(rules.difficulties))
    chosen = np.unique(np.linspace(0, number - 1, min(number, COMBINATIONS)).astype(int))
    modes, difficulties = rules.modes, rules.difficulties
    spread = [(modes[i % len(modes)], difficulties[i % len(difficulties)]) for i in chosen]
    return list(dict.fromkeys([(rules.mode, rules.difficulty), *spread]))


def _play(
    game: str,
    rules: atari.Rules,
    mode: int,
    difficulty: int,
    frames: int,
    pokes: float,
    seed: int,
    found: dict[str, Any],
) -> None:
    from benchmarks.oracles import ale as oracle

    ale = oracle.load(game, random_seed=seed + 1)
    ale.setDifficulty(difficulty)
    ale.setMode(mode)
    random = np.random.default_rng((seed, mode, difficulty))
    read = sorted({int(at) for program in rules.programs.values() for at in _addresses(program)})
    wrong = found["mismatches"]
    scorer = None
    lives = 0
    for frame, action in zip(range(frames), _actions(rules.minimal, random), strict=False):
        if scorer is None:
            ale.reset_game()
            scorer = Scorer(rules, _memory(ale, read))
            lives = ale.lives()
            wrong["reset"] += (scorer.lives, scorer.over) != (lives, ale.game_over())
            if ale.game_over():
                found["over_at_reset"].append([mode, difficulty])
                return
        if random.random() < pokes:
            _poke(ale, read, random)
        reward = ale.act(action)
        theirs = reward, ale.lives(), ale.game_over(with_truncation=False)
        ours = scorer.step(_memory(ale, read))
        found["frames"] += 1
        found["rewards"] += reward != 0
        found["lives_lost"] += theirs[1] < lives
        found["ends"] += theirs[2]
        lives = theirs[1]
        for name, our, their in zip(("reward", "lives", "over"), ours, theirs, strict=True):
            wrong[name] += our != their
        if ours != theirs and found["first"] is None:
            found["first"] = {
                "mode": mode,
                "difficulty": difficulty,
                "frame": frame,
                "ours": ours,
                "theirs": theirs,
            }
        if theirs[2]:
            scorer = None


def _memory(ale: Any, read: Sequence[int]) -> list[int]:
    """Returns the RAM, and the memory of the cartridge if the rules read it."""
    from benchmarks.oracles import ale as oracle

    if max(read, default=0) < 128:
        return ale.getRAM().tolist()
    cartridge = oracle.sections(ale.cloneSystemState())["CartridgeF6SC"]
    return [*ale.getRAM().tolist(), *cartridge[2:130]]


def _actions(minimal: Sequence[int], random: np.random.Generator) -> Iterator[int]:
    while True:
        action = int(random.choice(minimal))
        for _ in range(random.integers(1, LONGEST)):
            yield action


def _addresses(program: atari.Program) -> list[int]:
    reads = np.isin(program[:, 0], [NUMBER[name] for name in ("RAM", "BCD", "HIGH", "LOW")])
    return program[reads, 1].tolist()


def _poke(ale: Any, read: Sequence[int], random: np.random.Generator) -> None:
    # Mostly bytes that the rules read, and mostly values close to those that play gives.
    read = [at for at in read if at < 128]
    address = int(random.choice(read)) if read and random.random() < 0.85 else random.integers(128)
    byte = int(ale.getRAM()[address])
    value = (
        random.integers(256),
        byte ^ 1 << int(random.integers(8)),
        byte + 1 & 255,
        byte - 1 & 255,
        16 * random.integers(10) + random.integers(10),
        random.choice([0, 1, 16, 128, 153, 170, 255]),
    )[random.integers(6)]
    ale.setRAM(int(address), int(value))


def _line(found: dict[str, Any]) -> str:
    wrong = " ".join(f"{name} {number}" for name, number in found["mismatches"].items())
    numbers = f"{found['frames']} frames, {found['rewards']} rewards, {found['lives_lost']} lives"
    changed = "changed" if found["pokes"] else "played"
    return f"{found['game']}, {changed}: {numbers}, {found['ends']} ends; mismatches: {wrong}"


def _wrap(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


_COMBINE: dict[str, Callable[[int, int], int]] = {
    "ADD": lambda left, right: left + right,
    "SUBTRACT": lambda left, right: left - right,
    "MULTIPLY": lambda left, right: left * right,
    "DIVIDE": lambda left, right: left // right if right else 0,
    "MODULO": lambda left, right: left % right if right else 0,
    "AND": lambda left, right: left & right,
    "OR": lambda left, right: left | right,
    "XOR": lambda left, right: left ^ right,
    "LEFT": lambda left, right: left << (right & 31),
    "RIGHT": lambda left, right: left >> (right & 31),
    "EQUAL": lambda left, right: left == right,
    "UNEQUAL": lambda left, right: left != right,
    "LESS": lambda left, right: left < right,
    "LESS_EQUAL": lambda left, right: left <= right,
    "GREATER": lambda left, right: left > right,
    "GREATER_EQUAL": lambda left, right: left >= right,
    "BOTH": lambda left, right: bool(left and right),
    "EITHER": lambda left, right: bool(left or right),
}


if __name__ == "__main__":
    sys.exit(main())
