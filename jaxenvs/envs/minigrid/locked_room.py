"""Six rooms, one of them locked."""

import chex
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells, missions
from jaxenvs.envs.minigrid.layout import RandomStream, empty, fill, put, rectangle, walled
from jaxenvs.envs.minigrid.level import MiniGridState, SquareGrid


class LockedRoom(SquareGrid):
    """Find the key to the locked room, one of six, and walk to the goal in it.

    Mission: "get the red key from the blue room, unlock the red door and go to the goal", or other
        colors
    Start: three rooms on each side of a hallway, with doors of different colors; the goal in one of
        them, which is locked, and its key in another one; the agent in the hallway
    Terminates: at the goal
    Time limit: 10 * size steps
    """

    size: int = struct.static(19)

    mission = "get the {} key from the {} room, unlock the {} door and go to the goal"

    @property
    def default_max_steps(self) -> int:
        return 10 * self.size

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        size, third, rng = self.size, self.size // 3, RandomStream(key)
        left, right = size // 2 - 2, size // 2 + 2
        grid = walled(size, size)
        for x in (left, right):
            grid = fill(grid, rectangle(grid, x, 0, 1, size), cells.WALL)
        for n in range(3):
            sides = rectangle(grid, 0, n * third, left, 1)
            sides = sides | rectangle(grid, right, n * third, size - right, 1)
            grid = fill(grid, sides, cells.WALL)
        first_x = jnp.asarray(np.array([0, right] * 3, np.int32))
        first_y = jnp.asarray(np.array([0, 0, third, third, 2 * third, 2 * third], np.int32))
        door_x = np.array([left, right] * 3, np.int32)
        locked, key_room = rng.shuffle(6, 2)

        def inside(room):
            x = first_x[room] + rng.integer(1, left)
            return x, first_y[room] + rng.integer(1, third)

        grid = put(grid, inside(locked), cells.GOAL)
        colors = jnp.stack(rng.shuffle(len(cells.COLORS), 6))
        for room in range(6):
            kind = jnp.where(locked == room, cells.LOCKED_DOOR, cells.CLOSED_DOOR)
            door = cells.make(kind, colors[room])
            grid = put(grid, (int(door_x[room]), room // 2 * third + 3), door)
        grid = put(grid, inside(key_room), cells.make(cells.KEY, colors[locked]))
        x, y = rng.cell(empty(grid) & rectangle(grid, left, 0, right - left, size))
        words = (missions.of_color(colors[room]) for room in (locked, key_room, locked))
        return self.make_state(grid, x, y, rng.integer(0, 4), mission=self.encode_mission(*words))
