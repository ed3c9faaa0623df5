"""A maze of rooms with blocked doors and hidden keys."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, lookup, put
from jaxenvs.envs.minigrid.level import STEPS_X, STEPS_Y, MiniGridState
from jaxenvs.envs.minigrid.room_grid import RIGHT, PickUp, Rooms
from jaxenvs.errors import ParameterError

TARGET = cells.make(cells.BALL, cells.BLUE)
OBSTACLE = cells.make(cells.BALL, cells.GREEN)
MIDDLE, SIDES = (1, 1), ((2, 1), (1, 2), (0, 1), (1, 0))
CORNERS = ((2, 0), (2, 2), (0, 2), (0, 0))


class ObstructedMazeDoor(PickUp):
    """Move a ball out of the way, find a key in a box, unlock a door, and pick up the blue ball.

    Mission: "pick up the blue ball"
    Start: two rooms with a locked door between them; the agent in the left room with the key, which
        is in a box if `key_in_box`, and, if `blocked`, a ball in front of the door; the blue ball
        in the right room
    Terminates: after the blue ball is picked up
    Time limit: 288 steps
    """

    room_size: int = struct.static(6)
    num_rows: int = struct.static(1)
    num_cols: int = struct.static(2)
    key_in_box: bool = struct.static(True)  # whether keys are in boxes
    blocked: bool = struct.static(True)  # whether balls block the locked doors

    mission = "pick up the blue ball"
    cell_type = np.uint16

    @property
    def default_max_steps(self) -> int:
        return 4 * 2 * self.room_size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rooms = Rooms(self, RandomStream(key))
        color = rooms.rng.color()
        self.add_locked_door(rooms, 0, 0, RIGHT, color)
        self.add_key(rooms, 0, 0, color)
        rooms.add(1, 0, TARGET)
        rooms.place_agent(0, 0)
        return rooms.make_state(task=jnp.uint8(TARGET))

    def add_locked_door(self, rooms: Rooms, i: Any, j: Any, side: Any, color: Any) -> None:
        """Adds a locked door, with a ball in front of it if `blocked`."""
        door = rooms.add_door(i, j, side, color, locked=True)
        if self.blocked:
            x, y = (lookup(steps, jnp.asarray(side)) for steps in (STEPS_X, STEPS_Y))
            rooms.grid = put(rooms.grid, (door.x - x, door.y - y), OBSTACLE)

    def add_key(self, rooms: Rooms, i: Any, j: Any, color: Any) -> None:
        """Adds a key, in a gray box if `key_in_box`."""
        key = cells.make(cells.KEY, color)
        rooms.add(i, j, cells.make(cells.BOX, cells.GREY, key) if self.key_in_box else key)


class ObstructedMaze(ObstructedMazeDoor):
    """Find the blue ball in a maze of 3 x 3 rooms with locked doors.

    Mission: "pick up the blue ball"
    Start: doors from the room in the middle to `num_quarters` of the rooms beside it, each of which
        has two locked doors to the corners and their keys, which are in boxes if `key_in_box`; if
        `blocked`, balls in front of the locked doors; the blue ball in one of the corners; the
        agent in `agent_room`
    Terminates: after the blue ball is picked up
    Time limit: 144 * num_rooms_visited steps

    With `keys_last`, as in version 1 of the ids, keys are placed after the balls. Otherwise a ball
    may replace a key, and the level has no solution.
    """

    num_rows: int = struct.static(3)
    num_cols: int = struct.static(3)
    agent_room: tuple[int, int] = struct.static((1, 1))  # column and row
    num_quarters: int = struct.static(4)  # number of corners with locked doors, up to 4
    num_rooms_visited: int = struct.static(25)  # rooms on the way, for the time limit
    keys_last: bool = struct.static(False)  # whether keys are placed after balls

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.num_quarters <= 4:
            raise ParameterError(
                f"ObstructedMaze got num_quarters={self.num_quarters}; it must be from 1 to 4."
            )

    @property
    def default_max_steps(self) -> int:
        return 4 * self.num_rooms_visited * self.room_size**2

    def initial_state(self, key: chex.PRNGKey) -> MiniGridState:
        rooms = Rooms(self, RandomStream(key))
        colors = rooms.rng.shuffle(len(cells.COLORS), len(cells.COLORS))

        def add_quarter(rooms: Rooms, side: jax.Array, place: jax.Array) -> None:
            rooms.add_door(*MIDDLE, side, lookup(colors, side), locked=False)
            wide = jnp.concatenate([colors[-1:], colors])  # the color before the first is the last
            corner_colors = lookup(wide, side), lookup(wide, side + 2)
            for turn, color in zip((-1, 1), corner_colors, strict=True):
                self.add_locked_door(rooms, *place, (side + turn) & 3, color)  # pyright: ignore[reportCallIssue]
                if not self.keys_last:
                    self.add_key(rooms, *place, color)  # pyright: ignore[reportCallIssue]
            for color in corner_colors if self.keys_last else ():
                self.add_key(rooms, *place, color)  # pyright: ignore[reportCallIssue]

        sides = np.arange(self.num_quarters, dtype=np.int32)
        places = np.array(SIDES[: self.num_quarters], np.int32)
        words = rooms.rng.next_words(2 * self.num_quarters).reshape(-1, 2)
        rooms.repeat(add_quarter, words, sides, places)
        corner = rooms.rng.integer(0, self.num_quarters)
        i, j = lookup(np.array(CORNERS, np.int32), corner)
        rooms.add(i, j, TARGET)
        rooms.place_agent(*self.agent_room)
        return rooms.make_state(task=jnp.uint8(TARGET))
