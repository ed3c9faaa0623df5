"""A goal behind a locked door."""

import chex

from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, at, empty, fill, put, rectangle, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid


class DoorKey(SquareGrid):
    """Pick up a key, unlock a door, and walk to the goal behind it.

    Mission: "use the key to open the door and then get to the goal"
    Start: a wall with a locked yellow door in a random column; the agent and the key anywhere to
        its left; the goal in the lower right corner
    Terminates: at the goal
    Time limit: 10 * size**2 steps
    """

    mission = "use the key to open the door and then get to the goal"

    @property
    def default_max_steps(self) -> int:
        return 10 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        size, rng = self.size, RandomStream(key)
        grid = put(walled(size, size), (size - 2, size - 2), cells.GOAL)
        wall = rng.integer(2, size - 2)
        grid = fill(grid, rectangle(grid, wall, 0, 1, size), cells.WALL)
        door = cells.make(cells.LOCKED_DOOR, cells.YELLOW)
        grid = put(grid, (wall, rng.integer(1, size - 2)), door)
        left = rectangle(grid, 0, 0, wall, size)
        x, y = rng.cell(empty(grid) & left)
        key_cell = cells.make(cells.KEY, cells.YELLOW)
        grid, _ = rng.put(grid, key_cell, left & ~at(grid, (x, y)))
        return self.make_state(grid, x, y, rng.integer(0, 4))
