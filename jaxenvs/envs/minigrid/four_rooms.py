"""Four rooms with gaps between them."""

import chex

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, at, empty, fill, put, rectangle, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid


class FourRooms(SquareGrid):
    """Find the goal in one of four rooms.

    Mission: "reach the goal"
    Start: four rooms with a gap at a random place of each wall between two of them; the agent and
        the goal in any empty cells, unless `agent_pos` and `goal_pos` are given
    Terminates: at the goal
    Time limit: 100 steps
    """

    size: int = struct.static(19)
    agent_pos: tuple[int, int] | None = struct.static(
        None
    )  # column and row; None for a random cell
    goal_pos: tuple[int, int] | None = struct.static(None)  # column and row; None for a random cell

    mission = "reach the goal"
    has_objects = False

    @property
    def default_max_steps(self) -> int:
        return 100

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        size, middle, rng = self.size, self.size // 2, RandomStream(key)
        grid = walled(size, size)
        # Walls end before cell 2 * middle, as minigrid's do if the size is even.
        for upper in (0, middle):
            grid = fill(grid, rectangle(grid, middle, upper, 1, middle), cells.WALL)
            grid = fill(grid, rectangle(grid, upper, middle, middle, 1), cells.WALL)
        for first in (0, middle):
            gap = rng.integer(first + 1, first + middle)
            grid = put(grid, (middle, gap), cells.EMPTY)
            gap = rng.integer(first + 1, first + middle)
            grid = put(grid, (gap, middle), cells.EMPTY)
        if self.agent_pos is None:
            x, y = rng.cell(empty(grid))
        else:
            x, y = self.agent_pos
            grid = put(grid, (x, y), cells.EMPTY)
        if self.goal_pos is None:
            grid, _ = rng.put(grid, cells.GOAL, ~at(grid, (x, y)))
        else:
            grid = put(grid, self.goal_pos, cells.GOAL)
        return self.make_state(grid, x, y, rng.integer(0, 4))
