"""Doors of different colors."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid.layout import (
    RandomStream,
    empty,
    fill,
    filled,
    lookup,
    outline,
    put,
    rectangle,
)
from jaxenvs.envs.minigrid.level import DONE, TOGGLE, MiniGridState, SquareGrid


@chex.dataclass(frozen=True)
class GoTo:
    """The cell to stand next to."""

    x: jax.Array  # int32[]
    y: jax.Array  # int32[]


def go_to_outcome(
    before: MiniGridState, action: jax.Array, after: MiniGridState
) -> tuple[jax.Array, jax.Array]:
    """Returns success where `DONE` is said next to the target; else it and `TOGGLE` fail."""
    distance = abs(after.x - after.task.x) + abs(after.y - after.task.y)
    success = (action == DONE) & (distance == 1)
    return success, ((action == DONE) | (action == TOGGLE)) & ~success


class GoToDoor(SquareGrid):
    """Go to the door of the right color, and say so with the action `DONE`.

    Mission: "go to the red door", or another color
    Start: a room of random size with a door in each wall, all of different colors; the agent
        anywhere in it
    Terminates: after `DONE`, with success next to the door, and after `TOGGLE`
    Time limit: 4 * size**2 steps
    """

    size: int = struct.static(5)
    see_through_walls: bool = struct.static(True)

    mission = "go to the {} door"

    @property
    def default_max_steps(self) -> int:
        return 4 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rng = RandomStream(key)
        width, height = rng.integer(5, self.size + 1), rng.integer(5, self.size + 1)
        grid = filled(self.size, self.size)
        grid = fill(grid, outline(grid, 0, 0, width, height), cells.WALL)
        columns = (rng.integer(2, width - 2), rng.integer(2, width - 2), 0, width - 1)
        rows = (0, height - 1, rng.integer(2, height - 2), rng.integer(2, height - 2))
        colors = rng.shuffle(len(cells.COLORS), 4)
        for x, y, color in zip(columns, rows, colors, strict=True):
            grid = put(grid, (x, y), cells.make(cells.CLOSED_DOOR, color))
        x, y = rng.cell(empty(grid) & rectangle(grid, 0, 0, width, height))
        target = rng.integer(0, 4)
        columns, rows, colors = (
            lookup(jnp.stack([jnp.asarray(entry, jnp.int32) for entry in entries]), target)
            for entries in (columns, rows, colors)
        )
        return self.make_state(
            *(grid, x, y, rng.integer(0, 4)),
            task=GoTo(x=columns, y=rows),
            mission=self.encode_mission(missions.of_color(colors)),
        )

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        return go_to_outcome(before, action, after)
