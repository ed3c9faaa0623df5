"""Two doors to open in the right order."""

import chex
import jax

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, empty, fill, outline, put, rectangle, walled
from jaxenvs.envs.minigrid.level import MiniGrid, MiniGridState

RED_DOOR = cells.make(cells.CLOSED_DOOR, cells.RED)
BLUE_DOOR = cells.make(cells.CLOSED_DOOR, cells.BLUE)


class RedBlueDoors(MiniGrid):
    """Open the red door first and then the blue door.

    Mission: "open the red door then the blue door"
    Start: a room with a red door in the wall to the left and a blue one to the right; the agent
        anywhere in it
    Terminates: after the blue door is opened, with success if the red one was open before, and
        after the red door is opened while the blue one is open
    Time limit: 20 * size**2 steps
    """

    size: int = struct.static(8)  # rows, and half of the columns

    mission = "open the red door then the blue door"

    @property
    def width(self) -> int:
        return 2 * self.size

    @property
    def height(self) -> int:
        return self.size

    @property
    def default_max_steps(self) -> int:
        return 20 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        size, rng = self.size, RandomStream(key)
        left = size // 2
        grid = walled(2 * size, size)
        grid = fill(grid, outline(grid, left, 0, size, size), cells.WALL)
        x, y = rng.cell(empty(grid) & rectangle(grid, left, 0, size, size))
        grid = put(grid, (left, rng.integer(1, size - 1)), RED_DOOR)
        grid = put(grid, (left + size - 1, rng.integer(1, size - 1)), BLUE_DOOR)
        return self.make_state(grid, x, y, rng.integer(0, 4))

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        red_before, blue_before = ((before.grid == door).any() for door in (_OPEN_RED, _OPEN_BLUE))
        red, blue = ((after.grid == door).any() for door in (_OPEN_RED, _OPEN_BLUE))
        return blue & red_before, (blue & ~red_before) | (red & ~blue & blue_before)


_OPEN_RED = cells.make(cells.OPEN_DOOR, cells.RED)
_OPEN_BLUE = cells.make(cells.OPEN_DOOR, cells.BLUE)
