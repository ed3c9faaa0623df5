"""BabyAI's levels in which the agent must put an object next to another one."""

import chex
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.babyai import instructions
from jaxenvs.envs.minigrid.babyai.instructions import MARKS, Instruction, describe
from jaxenvs.envs.minigrid.babyai.level import BabyAILevel, OneRoomLevel
from jaxenvs.envs.minigrid.level import MiniGridState
from jaxenvs.envs.minigrid.room_grid import RIGHT, Rooms


class PutNextLocal(OneRoomLevel):
    """Put an object next to another one.

    Start: one room with `num_objs` different objects
    Time limit: 2 * room_size**2 steps
    """

    num_objs: int = struct.static(8)  # number of objects

    verbs = (instructions.PUT_NEXT,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        things = rooms.add_distractors(number=self.num_objs)
        rooms.ok &= rooms.all_reachable()
        first, second = rooms.choose(things, number=2)
        return instructions.put_next(describe(first), describe(second))


class PutNext(BabyAILevel):
    """Put an object of one room next to an object of the other room.

    Start: two rooms without a wall between them, each with `objs_per_room` objects, all different;
        the agent in the left one; with `start_carrying`, it carries the object to move
    Time limit: 8 * room_size**2 steps

    With `start_carrying`, the first observation still shows the object on the floor, as in BabyAI.
    """

    room_size: int = struct.static(4)
    num_rows: int = struct.static(1)
    num_cols: int = struct.static(2)
    objs_per_room: int = struct.static(1)  # number of objects in each room
    start_carrying: bool = struct.static(False)  # whether the agent carries the object at the start

    verbs = (instructions.PUT_NEXT,)

    @property
    def default_max_steps(self) -> int:
        return 8 * self.room_size**2

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent(0, 0)
        left = rooms.add_distractors(0, 0, number=self.objs_per_room)
        right = rooms.add_distractors(1, 0, number=self.objs_per_room)
        rooms.remove_wall(0, 0, RIGHT)
        first, second = (describe(rooms.choose(things)[0]) for things in (left, right))
        return instructions.select(
            rooms.rng.boolean(),
            instructions.put_next(first, second),
            instructions.put_next(second, first),
        )

    def reset(self, key: chex.PRNGKey) -> tuple[MiniGridState, TimeStep]:
        state, timestep = super().reset(key)
        if not self.start_carrying:
            return state, timestep
        is_moved = state.grid >> MARKS & 1 == 1
        carried = jnp.where(is_moved, state.grid, 0).max() & np.uint32(cells.MOVES_ALONG)
        place = state.grid & ~np.uint32(cells.MOVES_ALONG) | np.uint32(cells.EMPTY)
        grid = jnp.where(is_moved, place, state.grid)
        return state.replace(grid=grid, carrying=carried), timestep  # pyright: ignore[reportAttributeAccessIssue]
