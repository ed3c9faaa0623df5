"""Objects of which one is to be fetched."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid._objects import draw_objects
from jaxenvs.envs.minigrid.layout import RandomStream, empty, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid

PHRASES = ("get a", "go get a", "fetch a", "go fetch a", "you must fetch a")


class Fetch(SquareGrid):
    """Pick up the object that the mission names, and no other one.

    Mission: "fetch a red key", or another kind, color, or phrase
    Start: the agent and `num_objects` keys and balls of random colors in any empty cells; the
        mission names one of them
    Terminates: after an object is picked up, with success if it has the right kind and color
    Time limit: 5 * size**2 steps
    """

    see_through_walls: bool = struct.static(True)
    num_objects: int = struct.static(3)  # number of objects

    mission = "you must fetch a {} {}"  # or another phrase

    @property
    def default_max_steps(self) -> int:
        return 5 * self.size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rng, kinds = RandomStream(key), (cells.KEY, cells.BALL)
        grid = walled(self.size, self.size)
        grid, objects, *_ = draw_objects(rng, grid, self.num_objects, kinds, unique=False)
        x, y = rng.cell(empty(grid))
        target = objects[rng.integer(0, self.num_objects)]
        slots = missions.of_color(cells.color(target)), missions.of_kind(cells.kind(target))
        spoken = jnp.stack(
            [self.encode_mission(*slots, text=f"{phrase} {{}} {{}}") for phrase in PHRASES]
        )
        return self.make_state(
            *(grid, x, y, rng.integer(0, 4)),
            task=target.astype(np.uint8),
            mission=spoken[rng.integer(0, len(PHRASES))],
        )

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        success = cells.appearance(after.carrying) == after.task
        return success, (after.carrying != cells.EMPTY) & ~success
