"""An empty room."""

import chex

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, empty, put, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid


class Empty(SquareGrid):
    """Walk through an empty room to the goal in the opposite corner.

    Mission: "get to the green goal square"
    Start: the agent in the upper left corner, looking right, or, if `agent_start_pos` is None, in
        any empty cell, looking anywhere; the goal in the lower right corner
    Terminates: at the goal
    Time limit: 4 * size**2 steps
    """

    see_through_walls: bool = struct.static(True)
    agent_start_pos: tuple[int, int] | None = struct.static((1, 1))  # None for a random cell
    agent_start_dir: int = struct.static(0)  # right (0), down (1), left (2), up (3)

    mission = "get to the green goal square"
    has_objects = False

    @property
    def default_max_steps(self) -> int:
        return 4 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        grid = put(walled(self.size, self.size), (self.size - 2, self.size - 2), cells.GOAL)
        if self.agent_start_pos is not None:
            return self.make_state(grid, *self.agent_start_pos, self.agent_start_dir)
        rng = RandomStream(key)
        return self.make_state(grid, *rng.cell(empty(grid)), rng.integer(0, 4))
