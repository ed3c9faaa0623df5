"""A gap in a column of lava."""

import chex

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, fill, put, rectangle, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid


class LavaGap(SquareGrid):
    """Walk through the gap in a column of lava to the goal.

    Mission: "avoid the lava and get to the green goal square"
    Start: the agent in the upper left corner, looking right; the goal in the lower right corner;
        the column and its gap are random
    Terminates: at the goal, or in lava
    Time limit: 4 * size**2 steps
    """

    size: int = struct.static(7)

    mission = "avoid the lava and get to the green goal square"
    has_objects = False

    @property
    def default_max_steps(self) -> int:
        return 4 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        size, rng = self.size, RandomStream(key)
        grid = put(walled(size, size), (size - 2, size - 2), cells.GOAL)
        x, y = rng.integer(2, size - 2), rng.integer(1, size - 1)
        grid = fill(grid, rectangle(grid, x, 1, 1, size - 2), cells.LAVA)
        return self.make_state(put(grid, (x, y), cells.EMPTY), 1, 1, 0)
