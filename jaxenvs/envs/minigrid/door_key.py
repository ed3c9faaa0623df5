"""Door key."""

import chex
import jax

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.engine import MiniGrid, MiniGridState
from jaxenvs.envs.minigrid.layout import draw, empty, fill, place, put, random_place, rectangle, walled


class DoorKey(MiniGrid):
    size: int = struct.static(8)
    mission = "use the key to open the door and then get to the goal"

    @property
    def width(self): return self.size
    @property
    def height(self): return self.size
    @property
    def default_max_steps(self): return 10*self.size**2

    def generate(self, key: chex.PRNGKey) -> MiniGridState:
        size = self.size
        keys = jax.random.split(key, 5)
        grid = put(walled(size, size), (size - 2, size - 2), cells.GOAL)
        wall = draw(keys[0], 2, size - 2)
        grid = fill(grid, rectangle(grid, wall, 0, 1, size), cells.WALL)
        left = rectangle(grid, 0, 0, wall, size)
        x, y = random_place(keys[1], empty(grid) & left)
        grid = put(grid, (wall, draw(keys[2], 1, size - 2)), cells.make(cells.LOCKED_DOOR, cells.YELLOW))
        from jaxenvs.envs.minigrid.layout import at
        grid, _ = place(keys[3], grid, cells.make(cells.KEY, cells.YELLOW), left & ~at(grid, (x, y)))
        return self.start(grid, x, y, draw(keys[4], 0, 4))
