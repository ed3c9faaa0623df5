"""What the tasks in mazes have in common."""

import abc
import functools
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from xml.etree import ElementTree

import chex
import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from jaxenvs import loops, struct
from jaxenvs.envs.robotics.base import GoalTask, distance
from jaxenvs.errors import ParameterError, closest

S = TypeVar("S")

RADIUS = 0.45  # m, in which a goal counts as reached, whatever the size of the cells
_NOISE = 0.25  # in cells, how far starts and goals are from the middle along x and y

_UMAZE = ("11111", "10001", "11101", "10001", "11111")
_OPEN = ("1111111", "1000001", "1000001", "1000001", "1111111")
_MEDIUM = (
    *("11111111", "10011001", "10010001", "11000111"),
    *("10010001", "10100101", "10001001", "11111111"),
)
_LARGE = (
    *("111111111111", "100001000001", "101101010101", "100000010001", "101111011101"),
    *("100101000001", "110101010111", "100100010001", "111111111111"),
)


def _diverse(rows: tuple[str, ...], spots: str) -> dict[str, tuple[str, ...]]:
    """Returns a map whose agent starts in its first cell, and one where it starts in any spot.

    Args:
        rows: the map.
        spots: row and column of each cell that can have the goal besides, as hexadecimal digits.
    """
    places = [(1, 1)] + [(int(row, 16), int(column, 16)) for row, column in spots.split()]

    def marked(marks: str) -> tuple[str, ...]:
        cells = [list(row) for row in rows]
        for k, (i, j) in enumerate(places):
            cells[i][j] = marks[min(k, 1)]
        return tuple("".join(row) for row in cells)

    return {"_Diverse_G": marked("rg"), "_Diverse_GR": marked("cc")}


# Rows of cells: 1 is a wall, 0 is free, the agent can start at r, the goal can be at g, both at c.
# Without such cells, both can be in any free cell.
MAPS = {
    "UMaze": _UMAZE,
    **{
        name + suffix: rows
        for name, plain, spots in (
            ("Open", _OPEN, "12 13 14 15 21 22 23 24 25 31 32 33 34 35"),
            ("Medium", _MEDIUM, "26 51 65"),
            ("Large", _LARGE, "16 35 3a 52 74 76 79"),
        )
        for suffix, rows in {"": plain, **_diverse(plain, spots)}.items()
    },
}


class Maze(GoalTask[S]):
    """A task that moves an agent through a maze to a goal.

    A subclass adds the agent.
    """

    maze_map: str | tuple[str, ...] = struct.static("UMaze")  # a name in MAPS, or rows as there
    continuing_task: bool = struct.static(True)  # whether an episode goes on at the goal
    reset_target: bool = struct.static(False)  # whether a goal that was reached moves elsewhere

    scale: ClassVar[float]  # m, side length of a cell
    height: ClassVar[float]  # of the walls, in cells
    target: ClassVar = "target"

    def __post_init__(self) -> None:
        name, rows = type(self).__name__, self._rows
        if not rows or len({len(row) for row in rows}) > 1 or not {*"".join(rows)} <= {*"01rgc"}:
            raise ParameterError(
                f"{name} got maze_map={self.maze_map!r}; expected rows of one length, of 1 (a"
                " wall), 0 (free), r (start), g (goal), and c (both)."
            )
        goals, starts = _places(rows, self.scale)
        for goal in goals if len(starts) else [None]:
            if not any(tuple(start) != tuple(goal) for start in starts if goal is not None):
                raise ParameterError(
                    f"{name} got maze_map={self.maze_map!r}; expected for each cell of a goal"
                    " another cell where the agent can start."
                )
        super().__post_init__()

    @property
    def _rows(self) -> tuple[str, ...]:
        if not isinstance(self.maze_map, str):
            return tuple(self.maze_map)
        if self.maze_map not in MAPS:
            raise ParameterError(
                f'{type(self).__name__} got maze_map="{self.maze_map}"; expected one of'
                f" {', '.join(MAPS)}, or rows of cells.{closest(self.maze_map, MAPS)}"
            )
        return MAPS[self.maze_map]

    @property
    @abc.abstractmethod
    def _agent(self) -> Path:
        """The file of the agent's model."""

    @property
    def _original(self) -> mujoco.MjModel:
        return _build(self._agent, self._rows, self.scale, self.height)

    @property
    def _camera(self) -> dict[str, Any]:
        size = max(len(self._rows), len(self._rows[0])) * self.scale
        return {"body": 0, "distance": 1.6 * size, "elevation": -65.0}

    def _draw_places(self, key: chex.PRNGKey) -> tuple[jax.Array, jax.Array]:
        """Returns where the goal and the agent are, float32[2] each."""
        goal_key, cell_key, noise_key = jax.random.split(key, 3)
        goal = self._draw_goal(goal_key)
        starts = jnp.asarray(_places(self._rows, self.scale)[1], jnp.float32)
        # The package draws until the middle of the cell is far enough from the goal.
        allowed = distance(starts, goal[None]) > 0.5 * self.scale
        number = jax.random.randint(cell_key, (), 0, allowed.sum())
        chosen = jnp.argmax(allowed & (jnp.cumsum(allowed) == number + 1))
        return goal, starts[chosen] + self._draw_noise(noise_key)

    def _draw_goal(self, key: chex.PRNGKey) -> jax.Array:
        cell_key, noise_key = jax.random.split(key)
        goals = jnp.asarray(_places(self._rows, self.scale)[0], jnp.float32)
        return goals[jax.random.randint(cell_key, (), 0, len(goals))] + self._draw_noise(noise_key)

    def _draw_noise(self, key: chex.PRNGKey) -> jax.Array:
        noise = jax.random.uniform(key, (2,), jnp.float32, -1.0, 1.0)
        return noise * (_NOISE * self.scale)

    def _next_goal(self, achieved: jax.Array, goal: jax.Array, key: chex.PRNGKey) -> jax.Array:
        """Returns the goal of the next step."""
        goals = _places(self._rows, self.scale)[0]
        if not (self.continuing_task and self.reset_target and len(goals) > 1):
            return goal

        def draw(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            count, _ = carry
            drawn = self._draw_goal(jax.random.fold_in(key, count))
            return count + 1, drawn.astype(self.dtype)

        return loops.while_loop(
            lambda carry: distance(achieved, carry[1]) <= RADIUS, draw, (jnp.int32(0), goal)
        )[1]

    def compute_reward(self, achieved_goal: chex.Array, desired_goal: chex.Array) -> jax.Array:
        far = distance(achieved_goal, desired_goal)
        return jnp.exp(-far) if self.reward_type == "dense" else (far <= RADIUS).astype(far.dtype)

    def compute_terminated(self, achieved_goal: chex.Array, desired_goal: chex.Array) -> jax.Array:
        reached = distance(achieved_goal, desired_goal) <= RADIUS
        return jnp.zeros_like(reached) if self.continuing_task else reached


@functools.cache
def _places(rows: tuple[str, ...], scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Returns the middles of the cells where goals can be, and where agents start: [k, 2] each."""
    marks = {
        mark: [(i, j) for i, row in enumerate(rows) for j, cell in enumerate(row) if cell == mark]
        for mark in "0rgc"
    }
    goals, starts, both, free = (marks[mark] for mark in "grc0")
    if not (goals or starts or both):
        both = free
    elif not (starts or both):
        starts = free
    elif not (goals or both):
        goals = free
    found = [
        np.array([_middle(rows, scale, i, j) for i, j in cells]).reshape(-1, 2)
        for cells in (goals + both, starts + both)
    ]
    return found[0], found[1]


def _middle(rows: tuple[str, ...], scale: float, i: int, j: int) -> tuple[float, float]:
    """Returns x and y of the middle of a cell. The maze is centered, with its first row on top."""
    return (j + 0.5) * scale - len(rows[0]) / 2 * scale, len(rows) / 2 * scale - (i + 0.5) * scale


@functools.cache
def _build(agent: Path, rows: tuple[str, ...], scale: float, height: float) -> mujoco.MjModel:
    """Returns the model of an agent in a maze, with a box for each cell that is a wall."""
    tree = ElementTree.parse(agent)
    world = tree.find(".//worldbody")
    if world is None:
        raise ParameterError(f"the model {agent} has no worldbody.")
    half, up = 0.5 * scale, height / 2 * scale
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            if cell == "1":
                x, y = _middle(rows, scale, i, j)
                wall = {"type": "box", "pos": f"{x} {y} {up}", "size": f"{half} {half} {up}"}
                kind = {"contype": "1", "conaffinity": "1", "rgba": "0.7 0.5 0.3 1"}
                ElementTree.SubElement(world, "geom", {**wall, **kind, "name": f"block_{i}_{j}"})
    mark = {"pos": f"0 0 {up}", "size": f"{0.2 * scale}", "rgba": "1 0 0 0.7", "type": "sphere"}
    ElementTree.SubElement(world, "site", {**mark, "name": "target"})
    return mujoco.MjModel.from_xml_string(ElementTree.tostring(tree.getroot(), encoding="unicode"))
