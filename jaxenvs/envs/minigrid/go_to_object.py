"""Objects of which one is to be found."""

import chex
import jax

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid._objects import draw_objects
from jaxenvs.envs.minigrid.go_to_door import GoTo, go_to_outcome
from jaxenvs.envs.minigrid.layout import RandomStream, empty, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid


class GoToObject(SquareGrid):
    """Go to the object that the mission names, and say so with the action `DONE`.

    Mission: "go to the red key", or another color or kind
    Start: the agent and `num_objects` different keys, balls, and boxes in any empty cells; the
        mission names one of them
    Terminates: after `DONE`, with success next to the cell where the object was at the start, and
        after `TOGGLE`
    Time limit: 5 * size**2 steps
    """

    size: int = struct.static(6)
    see_through_walls: bool = struct.static(True)
    num_objects: int = struct.static(2)  # number of objects

    mission = "go to the {} {}"

    @property
    def default_max_steps(self) -> int:
        return 5 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rng, kinds = RandomStream(key), (cells.KEY, cells.BALL, cells.BOX)
        grid = walled(self.size, self.size)
        grid, objects, columns, rows = draw_objects(rng, grid, self.num_objects, kinds, unique=True)
        x, y = rng.cell(empty(grid))
        target = rng.integer(0, self.num_objects)
        color, kind = cells.color(objects[target]), cells.kind(objects[target])
        return self.make_state(
            *(grid, x, y, rng.integer(0, 4)),
            task=GoTo(x=columns[target], y=rows[target]),
            mission=self.encode_mission(missions.of_color(color), missions.of_kind(kind)),
        )

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        return go_to_outcome(before, action, after)
