"""Compares whole games of Atari with ale_py, frame by frame.

    python -m benchmarks.atari_exact breakout pong
    python -m benchmarks.atari_exact --output auto
    python -m benchmarks.atari_exact qbert --keep benchmarks/results/NAME.json --output auto

From the state of ale_py's console at the start of an episode, both consoles play the same actions,
to the end of the game and then the next. In every frame, memory, each pixel, reward, lives, and the
end of the game must be equal.

1. `random`: random actions, held for random times. Now and then ale_py's state is saved, other
   frames are played, and the state is restored. `restored_otherwise` counts how often ale_py's next
   picture was not the one that it shows without this; the latter is compared with ours.
2. `planned`: actions of a player that looks ahead: it tries many in copies of the state and takes
   those that gain most without the loss of a life. So it gets further than random play does.
3. `modes`: random actions in other modes and difficulties.
4. `start`: bytes of the memory that differ at the first start of a process.
5. `episodes`: returns and lengths of whole episodes of a random policy from each library's own
   starts, with frames skipped and actions repeated. `p` is that of a Kolmogorov-Smirnov test.
"""

import argparse
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

import jaxenvs
from benchmarks import _common
from benchmarks.oracles import ale as oracle
from jaxenvs.envs.atari import Atari, machine
from jaxenvs.envs.atari.rules import games

CHUNK = 500  # frames that one call of our program plays
LONGEST = 20  # frames that an action is held
TRIES, AHEAD, TAKEN = 48, 90, 30  # of a plan: candidates, their frames, and those played
COMBINATIONS = 3  # of modes and difficulties
CUT = 12_000  # frames of an episode at most
COMPARED = ("memory", "pixels", "reward", "lives", "over")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `--help`. Returns 1 if anything but pixels differs."""
    parser = _common.new_parser("atari_exact", __doc__)
    add = parser.add_argument
    add("games", nargs="*", help="names of ROMs; by default, all that jaxenvs plays")
    add("--frames", type=int, default=100_000, help="of random play")
    add("--planned", type=int, default=10_000, help="frames of planned play")
    add("--others", type=int, default=5_000, help="frames of each other mode or difficulty")
    add("--episodes", type=int, default=64, help="of each library")
    add("--seed", type=int, default=0)
    add("--keep", help="JSON file whose measurements of other games are kept")
    options = parser.parse_args(arguments)
    report = _common.publish(options, functools.partial(measure, options, arguments), table)
    return int(any(differs(part) for found in report["measurements"] for part in parts_of(found)))


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    report = _common.new_report("atari_exact", arguments, ("ale_py",), 1)
    measured = {found["game"]: found for found in _common.kept(options.keep, report)}
    for game in options.games or games():
        measured[game] = compare(game, options)
        if not options.quiet:
            print(_line(measured[game]), flush=True)
    report["measurements"] = list(measured.values())
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as text."""
    return "\n".join(map(_line, report["measurements"]))


def compare(game: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns what the comparison of a game found."""
    rng = np.random.default_rng(options.seed)
    console = machine.Console.load(game)
    found: dict[str, Any] = {"game": game, "start": differing_bytes(console, game)}
    ale = oracle.load(game)
    found["random"] = play_both(ale, console, options.frames, rng, _random_player, restores=True)
    found["planned"] = play_both(ale, console, options.planned, rng, _planner)
    found["modes"] = []
    for mode, difficulty in _combinations(console.rules):
        ale.setMode(mode)
        ale.setDifficulty(difficulty)
        other = machine.Console.load(game, mode=mode, difficulty=difficulty)
        part = play_both(ale, other, options.others, rng, _random_player)
        found["modes"].append({"mode": mode, "difficulty": difficulty, **part})
    if options.episodes:
        found["episodes"] = compare_episodes(game, options.episodes, rng)
    return found


def parts_of(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields what was found in each part that plays frames."""
    yield from (found["random"], found["planned"], *found["modes"])


def differs(part: dict[str, Any]) -> bool:
    """Returns whether anything but pixels differed."""
    return any(count for name, count in part["mismatches"].items() if name != "pixels")


# --- frames ---

Player = Callable[[machine.Console, jax.Array, np.random.Generator], np.ndarray]


def play_both(
    ale: Any,
    console: machine.Console,
    frames: int,
    rng: np.random.Generator,
    player: Player,
    *,
    restores: bool = False,
) -> dict[str, Any]:
    """Plays a game in both consoles and compares every frame.

    Args:
        ale: ale_py's console with the game.
        console: the same game of ours.
        frames: how many to play.
        rng: of the player.
        player: chooses the actions of the next frames, int32[F].
        restores: whether to save and restore the state of ale_py now and then.
    """
    ale.reset_game()
    found: dict[str, Any] = {"frames": 0, "episodes": 0, "best": 0, "mismatches": {}}
    mismatches = found["mismatches"] = dict.fromkeys(COMPARED, 0)
    if restores:
        found["restored_otherwise"] = 0
    state, score = None, 0
    if ale.game_over():  # in two modes of demon_attack, where ale_py plays no frame
        frames, found["over_at_start"] = 0, True
    while found["frames"] < frames:
        others = None
        if state is None:
            state, score = _start(console, ale), 0
        elif restores and rng.random() < 0.2:  # at a start, ale_py may be amid a frame
            others = rng.choice(console.rules.minimal, 37)
        actions = player(console, state, rng)
        first = None if others is None else _play_others(ale, actions[0], others)
        theirs = _play_theirs(ale, actions)
        if first is not None:
            found["restored_otherwise"] += not np.array_equal(first, theirs["pixels"][0])
            theirs["pixels"][0] = first
        played = len(theirs["memory"])
        state, ours = _play_ours(console, state, actions, played)
        for name in COMPARED:
            wrong = [i for i in range(played) if not np.array_equal(ours[name][i], theirs[name][i])]
            mismatches[name] += len(wrong)
            if wrong and "first" not in found:
                found["first"] = {"of": name, "frame": found["frames"] + wrong[0]}
        found["frames"] += played
        score += sum(theirs["reward"])
        found["best"] = max(found["best"], int(score))
        if ale.game_over():
            ale.reset_game()
            found["episodes"] += 1
            state = None
    return found


def _start(console: machine.Console, ale: Any) -> jax.Array:
    """Returns our game where ale_py's is."""
    ours, *_ = console.start(machine.TIMERS[0])
    return jnp.asarray(oracle.copy(ale, ours)[0])


def _play_others(ale: Any, action: int, others: np.ndarray) -> np.ndarray:
    """Returns what a frame shows. Then plays others, and restores the state."""
    saved = ale.cloneSystemState()
    ale.act(int(action))
    screen = ale.getScreen()
    ale.restoreSystemState(saved)
    for other in others:
        ale.act(int(other))
    ale.restoreSystemState(saved)
    return screen


def _play_theirs(ale: Any, actions: np.ndarray) -> dict[str, list[Any]]:
    """Plays frames until the game is over, and returns what each one shows."""
    found: dict[str, list[Any]] = {name: [] for name in COMPARED}
    for action in actions:
        values = ale.act(int(action)), ale.lives(), ale.game_over()
        for name, value in zip(COMPARED, (ale.getRAM(), ale.getScreen(), *values), strict=True):
            found[name].append(value)
        if values[-1]:
            break
    return found


def _play_ours(
    console: machine.Console, state: jax.Array, actions: np.ndarray, played: int
) -> tuple[jax.Array, dict[str, np.ndarray]]:
    padded = np.full(CHUNK, -1, np.int32)
    padded[:played] = actions[:played]
    state, (memory, numbers, pixels) = _program(console)(state, padded)
    numbers = np.asarray(numbers)
    values = np.asarray(memory), np.asarray(pixels), *numbers.T[:3]
    return state, dict(zip(COMPARED, values, strict=True))


@functools.cache
def _program(console: machine.Console) -> Any:
    def play(state: jax.Array, action: jax.Array) -> Any:
        state, numbers, pixels = console.play(state, action[None], show="screen")
        return state, (console.memory(state), numbers, pixels[0])

    return jax.jit(lambda state, actions: jax.lax.scan(play, state, actions))


# --- players ---


def _random_player(console: machine.Console, _: Any, rng: np.random.Generator) -> np.ndarray:
    return _held_actions(console, rng, CHUNK)


def _held_actions(console: machine.Console, rng: np.random.Generator, count: int) -> np.ndarray:
    """Returns random actions, each of which is held for some frames."""
    times = rng.integers(1, LONGEST + 1, count)
    return np.repeat(rng.choice(console.rules.minimal, count), times)[:count].astype(np.int32)


def _planner(console: machine.Console, state: jax.Array, rng: np.random.Generator) -> np.ndarray:
    """Returns the actions of the best of some candidates, tried in copies of the state."""
    tries = np.stack([_held_actions(console, rng, AHEAD) for _ in range(TRIES)])
    reward, lives, over, _ = np.asarray(_look_ahead(console)(state, tries)).T
    value = reward.astype(np.int64) + 100_000 * lives.astype(np.int64) - 10**9 * over
    best = rng.choice(np.flatnonzero(value == value.max()))
    return tries[best, :TAKEN]


@functools.cache
def _look_ahead(console: machine.Console) -> Any:
    play = jax.vmap(lambda state, actions: console.play(state, actions)[1], (None, 0))
    return jax.jit(play)


# --- starts and episodes ---


def differing_bytes(console: machine.Console, game: str) -> list[int]:
    """Returns the bytes of the memory that differ at ale_py's first start."""
    ours, *_ = console.start(oracle.TIMERS[0])
    return np.flatnonzero(ours[:128] != oracle.load(game).getRAM()).tolist()


def compare_episodes(game: str, count: int, rng: np.random.Generator) -> dict[str, Any]:
    """Compares returns and lengths of episodes of a random policy from the libraries' starts."""
    env = Atari(game=game, obs_type="ram", max_num_frames_per_episode=CUT)
    ours = _our_episodes(env, count, int(rng.integers(2**31)))
    theirs = _their_episodes(game, count, rng)
    return {
        name: {
            "ours": _common.mean_and_error(mine),
            "ale_py": _common.mean_and_error(other),
            "p": float(stats.ks_2samp(mine, other).pvalue),
        }
        for name, mine, other in zip(("return", "frames"), ours, theirs, strict=True)
    }


def _our_episodes(env: Atari, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    envs = jaxenvs.vectorize(env, count, autoreset_mode="disabled")
    key = jax.random.key(seed)

    def step(carry: Any, key: jax.Array) -> Any:
        state, total, frames, is_over = carry
        action_key, key = jax.random.split(key)
        action = jax.random.randint(action_key, (count,), 0, env.action_space.n)
        state, timestep = envs.step(state, action, key)
        total = total + jnp.where(is_over, 0, timestep.reward)
        frames = jnp.where(is_over, frames, timestep.info["episode_frame_number"])
        return (state, total, frames, is_over | timestep.terminated | timestep.truncated), None

    @jax.jit
    def run(key: jax.Array) -> Any:
        state, _ = envs.reset(key)
        carry = state, jnp.zeros(count), jnp.zeros(count, jnp.int32), jnp.zeros(count, bool)
        carry, _ = jax.lax.scan(step, carry, jax.random.split(key, CUT // 4))
        return carry[1:3]

    total, frames = map(np.asarray, run(key))
    return total, frames


def _their_episodes(
    game: str, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    import ale_py

    env = ale_py.env.AtariEnv(game, obs_type="ram", max_num_frames_per_episode=CUT)
    found = []
    for _ in range(count):
        env.reset(seed=int(rng.integers(2**31)))
        total, is_over = 0.0, False
        while not is_over:
            _, reward, terminated, truncated, info = env.step(rng.integers(env.action_space.n))
            total, is_over = total + reward, terminated or truncated
        found.append((total, info["episode_frame_number"]))
    return tuple(np.asarray(found, np.float64).T)


def _combinations(rules: Any) -> list[tuple[int, int]]:
    """Returns modes and difficulties besides the usual ones."""
    all_ = [(mode, each) for mode in rules.modes for each in rules.difficulties]
    others = [pair for pair in all_ if pair != (rules.mode, rules.difficulty)]
    places = np.linspace(0, len(others) - 1, min(COMBINATIONS, len(others))).astype(int)
    return [others[i] for i in places]


def _line(found: dict[str, Any]) -> str:
    text = [f"{found['game']:20}"]
    names = ["random", "planned", *(f"{x['mode']}/{x['difficulty']}" for x in found["modes"])]
    for name, part in zip(names, parts_of(found), strict=True):
        wrong = ", ".join(f"{n} {k}" for k, n in part["mismatches"].items() if n) or "equal"
        text.append(f"{name} {part['frames']:,} (best {part['best']:,}): {wrong}")
    if "episodes" in found:
        p = ", ".join(f"{name} {x['p']:.2g}" for name, x in found["episodes"].items())
        text.append(f"p {p}")
    if found["start"]:
        text.append(f"start differs in {found['start']}")
    return "; ".join(text)


if __name__ == "__main__":
    sys.exit(main())
