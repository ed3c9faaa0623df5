"""Registered ids for parametrized tests, and which combinations the quick tests take."""

import importlib.util
import itertools
from collections.abc import Iterable
from typing import Any

import pytest

import jaxenvs

# Families whose models or ROMs come from packages that are not installed everywhere.
MODELS = {"atari": "ale_py", "dm_control": "dm_control", "robotics": "gymnasium_robotics"}
IDS = sorted(
    id
    for id, spec in jaxenvs.registry.items()
    if importlib.util.find_spec(MODELS.get(spec.family, "jaxenvs"))
)

# The levels of these families differ in how they draw a grid; steps are those of their base class.
LEVELS = ("minigrid", "babyai")
OWN_LEVELS = {"MiniGrid-Maze-13x13-v0"}  # with minigrid's rules, but none of its ids
EXAMPLES_OF_LEVELS = (
    "BabyAI-GoToLocalS5N2-v0",  # draws again until all objects can be reached
    "MiniGrid-DoorKey-5x5-v0",
    "MiniGrid-Dynamic-Obstacles-5x5-v0",  # has chance in its steps
    "MiniGrid-MultiRoom-N2-S4-v0",  # draws rooms in a loop
)
# Programs of these families take long to compile. The certificates have all their ids.
PHYSICS = ("box2d", "dm_control", "mujoco", "robotics")
EXAMPLES_OF_PHYSICS = ("InvertedPendulum-v5",)
# Games differ by their ROMs. Their observations are too large for trajectories of large batches.
EXAMPLES_OF_GAMES = ("ALE/Breakout-v5",)
# Examples whose programs take longest to compile. Their cases are marked slow.
SLOW_TO_COMPILE = (
    "BabyAI-GoToLocalS5N2-v0",
    "LunarLander-v3",
    "MiniGrid-MultiRoom-N2-S4-v0",
)


def one_id_per_class() -> list[str]:
    """Returns the first id of each class; other ids of the class differ from it by numbers.

    Of levels, physics, and games, it returns the examples.
    """
    rest = set(IDS) - set(level_ids()) - set(physics_ids()) - set(game_ids())
    examples = [*EXAMPLES_OF_LEVELS, *EXAMPLES_OF_PHYSICS]
    return sorted([*_first_ids(rest), *examples, *set(EXAMPLES_OF_GAMES).intersection(IDS)])


def level_ids() -> list[str]:
    """Returns the ids of levels."""
    return [id for id in IDS if jaxenvs.registry[id].family in LEVELS]


def physics_ids() -> list[str]:
    """Returns the ids whose programs take long to compile."""
    return [id for id in IDS if jaxenvs.registry[id].family in PHYSICS]


def game_ids() -> list[str]:
    """Returns the ids of games in ROMs."""
    return [id for id in IDS if jaxenvs.registry[id].family == "atari"]


def one_mujoco_id_per_class() -> list[str]:
    """Returns the first id of each class of tasks with MuJoCo."""
    return _first_ids(id for id in physics_ids() if jaxenvs.registry[id].family != "box2d")


def one_level_per_class() -> list[str]:
    """Returns the first id of each class of levels."""
    return _first_ids(level_ids())


def _first_ids(ids: Iterable[str]) -> list[str]:
    first: dict[Any, str] = {}
    for id in sorted(ids):
        first.setdefault(jaxenvs.registry[id].entry_point, id)
    return sorted(first.values())


def every_nth(n: int, values: Iterable[Any], first: int = 0) -> list[Any]:
    """Returns the values as parameters of a test; all but every n-th, from `first`, are slow.

    A tuple gives one parameter per entry.
    """
    rows = [value if isinstance(value, tuple) else (value,) for value in values]
    return [case(*row, is_quick=i % n == first) for i, row in enumerate(rows)]


def diagonal(*axes: Iterable[Any]) -> list[Any]:
    """Returns all combinations as parameters; those off the diagonal are marked slow.

    So each value of the longest axis is in one quick test.
    """
    lists = [list(axis) for axis in axes]
    longest = max(range(len(lists)), key=lambda i: len(lists[i]))
    params = []
    for indices in itertools.product(*(range(len(axis)) for axis in lists)):
        pairs = list(zip(lists, indices, strict=True))
        is_quick = all(i == indices[longest] % len(axis) for axis, i in pairs)
        params.append(case(*(axis[i] for axis, i in pairs), is_quick=is_quick))
    return params


def case(*values: Any, is_quick: bool) -> Any:
    """Returns the parameters of a case, which is slow, too, if an id of it is slow to compile."""
    if any(value in SLOW_TO_COMPILE for value in values if isinstance(value, str)):
        is_quick = False
    return pytest.param(*values, marks=[] if is_quick else [pytest.mark.slow])
