"""An empty room."""

import chex
import jax

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.engine import MiniGrid, MiniGridState
from jaxenvs.envs.minigrid.layout import draw, empty, put, random_place, walled


class Empty(MiniGrid):
    size: int = struct.static(8)
    agent_start_pos: tuple[int, int] | None = struct.static((1, 1))
    agent_start_dir: int = struct.static(0)
    see_through_walls: bool = struct.static(True)

    mission = "get to the green goal square"
    has_objects = False

    @property
    def width(self): return self.size
    @property
    def height(self): return self.size
    @property
    def default_max_steps(self): return 4*self.size**2

    def generate(self, key: chex.PRNGKey) -> MiniGridState:
        grid = put(walled(self.size, self.size), (self.size - 2, self.size - 2), cells.GOAL)
        if self.agent_start_pos is not None:
            return self.start(grid, *self.agent_start_pos, self.agent_start_dir)
        k1, k2 = jax.random.split(key)
        return self.start(grid, *random_place(k1, empty(grid)), draw(k2, 0, 4))
