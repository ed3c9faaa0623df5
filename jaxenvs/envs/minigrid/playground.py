"""Nine rooms with many objects."""

import chex

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid._objects import draw_objects
from jaxenvs.envs.minigrid.layout import RandomStream, at, empty, fill, put, rectangle, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid


class Playground(SquareGrid):
    """Nine rooms with doors and objects, without a task or reward.

    Mission: ""
    Start: nine rooms with a door of random color between neighbors; the agent and twelve keys,
        balls, and boxes of random colors in any empty cells
    Terminates: never
    Time limit: 100 steps
    """

    size: int = struct.static(19)

    mission = ""

    @property
    def default_max_steps(self) -> int:
        return 100

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        size, third, rng = self.size, self.size // 3, RandomStream(key)
        grid = walled(size, size)
        for line in (third, 2 * third):
            grid = fill(grid, rectangle(grid, line, 0, 1, 3 * third), cells.WALL)
            grid = fill(grid, rectangle(grid, 0, line, 3 * third, 1), cells.WALL)
        for line in (third, 2 * third):
            for first in (0, third, 2 * third):
                for is_upright in (True, False):
                    along = rng.integer(first + 1, first + third - 1)
                    place = (line, along) if is_upright else (along, line)
                    grid = put(grid, place, cells.make(cells.CLOSED_DOOR, rng.color()))
        x, y = rng.cell(empty(grid))
        kinds = (cells.KEY, cells.BALL, cells.BOX)
        agent = at(grid, (x, y))
        covered = fill(grid, agent, cells.WALL)
        grid, *_ = draw_objects(rng, covered, 12, kinds, unique=False)
        return self.make_state(fill(grid, agent, cells.EMPTY), x, y, rng.integer(0, 4))
