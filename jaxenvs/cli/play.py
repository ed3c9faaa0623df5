"""`jaxenvs play`."""

import argparse
import contextlib
import importlib
import itertools
import re
import string
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np

import jaxenvs
from jaxenvs.cli._console import console, table
from jaxenvs.errors import ParameterError
from jaxenvs.faces.gym_env import GymEnv, innermost
from jaxenvs.registry import registry
from jaxenvs.rendering.window import Window

# The keys of each word, by pygame's names. Most are those of Gymnasium's and minigrid's players.
KEYS = {
    "left": ("left", "a"),
    "right": ("right", "d"),
    "up": ("up", "w"),
    "down": ("down", "s"),
    "fire": ("space",),
    "toggle": ("space",),
    "pick up": ("tab", "page up"),
    "drop": ("left shift", "page down"),
    "done": ("return",),
    **{f"action {i}": (key,) for i, key in enumerate(string.digits + string.ascii_lowercase)},
    "new episode": ("backspace",),
    "quit": ("escape",),
}
_WORD = re.compile("pick up|up|down|left|right|fire|toggle|drop|done")

# The names of the actions by the beginning of ids. One without a word, "none", needs no key.
_MOVES = ("up", "right", "down", "left")
_PUSHES = ("left", "none", "right")
_GRID = ("left", "right", "up", "pick up", "drop", "toggle", "done")  # up is forward
_NAMES = {
    "Acrobot": _PUSHES,
    "BabyAI-": _GRID,
    "CartPole": ("left", "right"),
    "CliffWalking": _MOVES,
    "FourRooms-misc": _MOVES,
    "FrozenLake": ("left", "down", "right", "up"),
    "LunarLander-": ("none", "left", "up", "right"),
    "MetaMaze-misc": _MOVES,
    "MiniGrid-": _GRID,
    "MountainCar-": _PUSHES,
    "Pong-misc": ("none", "up", "down"),
    "Taxi": ("down", "up", "right", "left", "pick up", "drop"),
    "bsuite/cartpole": _PUSHES,
    "bsuite/catch": _PUSHES,
    "bsuite/mountain_car": _PUSHES,
}
_MINATAR = {"n": "none", "l": "left", "u": "up", "r": "right", "d": "down", "f": "fire"}
_AXES = (("left", "right"), ("down", "up"))  # what moves a number of a Box down and up
_FPS = {"atari": 15, "minatar": 10}  # by family; others have 30
_SIDE = 400  # pixels; smaller pictures are enlarged to about this

# The action of each set of words whose keys are held.
Controls = Mapping[frozenset[str], Any]


def run(options: argparse.Namespace) -> None:
    """Plays episodes with the keyboard, in a window."""
    env: Any = jaxenvs.make_gym(options.id, render_mode="rgb_array")
    controls, out = controls_of(options.id, env), console()
    keys = table("keys", "")
    for word in (*dict.fromkeys(itertools.chain(*controls)), "new episode", "quit"):
        keys.add_row(", ".join(KEYS[word]), word)
    out.print(keys)
    if options.keys:
        return
    if options.record is not None:
        env = _recorded(env, options.record)
    family = registry[options.id].family if options.id in registry else ""
    window = Window(round(options.fps or _FPS.get(family, 30)))
    steps = 0
    try:
        with contextlib.suppress(KeyboardInterrupt):
            for steps in play(env, controls, window, options.seed, out.print):  # noqa: B007
                pass
        if options.record is not None and steps:
            with warnings.catch_warnings(action="ignore"):  # which ask for metadata
                dataset = env.create_dataset(options.record, algorithm_name="human")
            out.print(f"Wrote {options.record}: {len(dataset)} episodes, {steps} steps.")
    finally:
        window.close()
        env.close()


def controls_of(id: str, env: gymnasium.Env) -> Controls:
    """Returns the controls of an environment.

    Raises:
        ParameterError: there are no keys for its action space.
    """
    space = env.action_space
    if isinstance(space, gymnasium.spaces.Discrete):
        actions = [_WORD.findall(name.lower()) for name in _names_of_actions(id, env)]
        if len(actions) != space.n and f"action {space.n - 1}" in KEYS:
            actions = [[f"action {number}"] for number in range(space.n)]
        if len(actions) == space.n:
            return {frozenset(words): space.start + i for i, words in enumerate(actions)}
    is_box = isinstance(space, gymnasium.spaces.Box)
    if is_box and space.shape in ((1,), (2,)) and space.is_bounded():
        return _controls_of_box(space, main_engine_first="LunarLander" in id)
    raise ParameterError(
        f"play got {id}, whose actions are {space}; there are keys for actions with names, for up"
        " to 36 without, and for a bounded Box of one or two numbers.  Gymnasium's `play` takes an"
        " environment from make_gym, and keys of your own."
    )


def _controls_of_box(space: gymnasium.spaces.Box, main_engine_first: bool) -> Controls:
    controls = {frozenset(): np.clip(np.zeros_like(space.low), space.low, space.high)}
    axes = _AXES[::-1] if main_engine_first else _AXES
    for i, words in enumerate(axes[: len(space.low)]):
        for others, numbers in [*controls.items()]:
            for word, bound in zip(words, (space.low, space.high), strict=True):
                controls[others | {word}] = np.array([*numbers[:i], bound[i], *numbers[i + 1 :]])
    return controls


def _names_of_actions(id: str, env: gymnasium.Env) -> Sequence[str]:
    task = _task(env)
    if id.startswith("MinAtar/"):
        return [_MINATAR[letter] for letter in task.actions]
    if hasattr(task, "get_action_meanings"):  # ale_py's
        return task.get_action_meanings()
    id = id.removeprefix("gymnasium/")
    known = next((_NAMES[start] for start in _NAMES if id.startswith(start)), ())
    return getattr(task, "action_meanings", known)


def _task(env: gymnasium.Env) -> Any:
    """Returns the innermost environment, of jaxenvs or of another library."""
    inner = env.unwrapped
    return innermost(inner.env) if isinstance(inner, GymEnv) else inner


def action_of(controls: Controls, held: Collection[str]) -> Any:
    """Returns the action of the words whose keys are held, or of most of them; None for none."""
    possible = [words for words in controls if words <= {*held}]
    return controls[max(possible, key=len)] if possible else None


def play(
    env: Any, controls: Controls, window: Any, seed: int, report: Callable[[str], None]
) -> Iterator[int]:
    """Plays episodes until the player quits. Yields the number of steps after each one.

    The environment steps with every frame, or once with each key if every action needs one.

    Args:
        env: a Gymnasium environment that returns frames.
        controls: see `controls_of`.
        window: shows frames, and yields keys, as a `Window` does.
        seed: of the first episode; the next one has the next seed.
        report: called with a line of text at the start and the end of each episode.
    """
    words = {*itertools.chain(*controls), "new episode", "quit"}
    waits, held, steps = action_of(controls, ()) is None, set(), 0
    for episode in itertools.count():
        observation, _ = env.reset(seed=(seed + episode) % 2**32)
        frame, rewards, done = env.render(), [], False
        report(f"Episode {episode + 1}: {_mission(env, observation)}".removesuffix(": "))
        while not done:
            window.show(_enlarged(frame))
            pressed = set()
            for key, is_down in window.read_keys():
                for word in (word for word in words if key in KEYS[word]):
                    (held.add if is_down else held.discard)(word)
                    pressed |= {word} if is_down else set()
            if "quit" in pressed:
                return
            if "new episode" in pressed:
                break
            action = action_of(controls, pressed if waits else held | pressed)
            if action is not None:
                _, reward, terminated, truncated, _ = env.step(action)
                frame, done = env.render(), terminated or truncated
                rewards.append(float(reward))
                steps += 1
                yield steps
        report(f"Return {sum(rewards):g}, {len(rewards)} steps.")


def _mission(env: gymnasium.Env, observation: Any) -> str:
    """Returns the mission of a level of MiniGrid, and "" for other environments."""
    if not isinstance(observation, dict) or "mission" not in observation:
        return ""
    return getattr(_task(env), "decode_mission", str)(observation["mission"])


def _enlarged(frame: np.ndarray) -> np.ndarray:
    factor = max(1, round(_SIDE / max(frame.shape[:2])))
    return frame.repeat(factor, axis=0).repeat(factor, axis=1)


def _recorded(env: gymnasium.Env, dataset_id: str) -> gymnasium.Env:
    """Returns an environment that records episodes for a Minari data set.

    Raises:
        ParameterError: there is such a data set, or it is not a name for one.
        MissingExtraError: Minari is not installed.
    """
    from jaxenvs.faces.minari import minari  # raises MissingExtraError

    try:
        importlib.import_module("minari.dataset.minari_dataset").parse_dataset_id(dataset_id)
    except ValueError as error:
        raise ParameterError(f"play got --record {dataset_id}: {error}") from error
    if dataset_id in minari.list_local_datasets():
        raise ParameterError(
            f"play got --record {dataset_id}, which exists.  Pass another name, such as one with a"
            " higher version."
        )
    return minari.DataCollector(env, jpeg_encoding=False)
