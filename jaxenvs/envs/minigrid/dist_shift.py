"""Strips of lava that are somewhere else in a second level."""

import chex

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, empty, fill, put, rectangle, walled
from jaxenvs.envs.minigrid.level import MiniGrid, MiniGridState


class DistShift(MiniGrid):
    """Walk around strips of lava to the goal; train with one level and test with the other.

    Mission: "get to the green goal square"
    Start: the agent in the upper left corner, looking right, or, if `agent_start_pos` is None, in
        any empty cell, looking anywhere; the goal in the upper right corner; strips of lava in
        rows 1 and `strip2_row`
    Terminates: at the goal, or in lava
    Time limit: 4 * width * height steps
    """

    see_through_walls: bool = struct.static(True)
    width: int = struct.static(9)  # pyright: ignore[reportIncompatibleMethodOverride]
    height: int = struct.static(7)  # pyright: ignore[reportIncompatibleMethodOverride]
    agent_start_pos: tuple[int, int] | None = struct.static((1, 1))  # None for a random cell
    agent_start_dir: int = struct.static(0)  # right (0), down (1), left (2), up (3)
    strip2_row: int = struct.static(2)  # row of the second strip of lava

    mission = "get to the green goal square"
    has_objects = False

    @property
    def default_max_steps(self) -> int:
        return 4 * self.width * self.height

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        grid = put(walled(self.width, self.height), (self.width - 2, 1), cells.GOAL)
        for row in (1, self.strip2_row):
            grid = fill(grid, rectangle(grid, 3, row, self.width - 6, 1), cells.LAVA)
        if self.agent_start_pos is not None:
            return self.make_state(grid, *self.agent_start_pos, self.agent_start_dir)
        rng = RandomStream(key)
        return self.make_state(grid, *rng.cell(empty(grid)), rng.integer(0, 4))
