"""BabyAI's levels with locked doors."""

import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.babyai import instructions
from jaxenvs.envs.minigrid.babyai.instructions import Description, Instruction, describe, open_door
from jaxenvs.envs.minigrid.babyai.level import BabyAILevel
from jaxenvs.envs.minigrid.layout import put
from jaxenvs.envs.minigrid.room_grid import RIGHT, Rooms

DOOR = Description(cells.OPEN_DOOR)  # any door


class Unlock(BabyAILevel):
    """Unlock the door of a color in a maze of rooms.

    Start: rooms with doors, all connected, one of them locked, its key in any room, and three
        objects in each room; in half of the levels, no other door has the color
    Time limit: room_size**2 steps for each room

    In one of nine levels, the key is in the locked room, so the door cannot be unlocked, as in
    minigrid.
    """

    verbs = (instructions.OPEN,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        i, j = rooms.random_room()
        door = rooms.add_door(i, j, locked=True)
        rooms.add_object(*rooms.random_room(), cells.KEY, door.color)
        others = np.arange(len(cells.COLORS), dtype=np.int32) != door.color
        rooms.connect_all(others | rooms.rng.boolean())
        rooms.add_distractors_to_each_room(3)
        rooms.place_agent(rooms=rooms.all_but(i, j))
        rooms.ok &= rooms.all_reachable()
        return open_door(describe(door))


class UnlockLocal(BabyAILevel):
    """Unlock the only door with the key in the same room.

    Start: the agent and the key in the middle of nine rooms; with `distractors`, three more
        objects
    Time limit: 576 steps
    """

    distractors: bool = struct.static(False)  # whether there are more objects

    verbs = (instructions.OPEN,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        door = rooms.add_door(1, 1, locked=True)
        rooms.add_object(1, 1, cells.KEY, door.color)
        if self.distractors:
            rooms.add_distractors(1, 1, number=3)
        rooms.place_agent(1, 1)
        return open_door(DOOR)


class KeyInBox(BabyAILevel):
    """Unlock the only door with the key that is in a box.

    Start: the agent and the box in the middle of nine rooms
    Time limit: 576 steps
    """

    verbs = (instructions.OPEN,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        door = rooms.add_door(1, 1, locked=True)
        key = cells.make(cells.KEY, door.color)
        rooms.add(1, 1, cells.make(cells.BOX, rooms.rng.color(), key))
        rooms.place_agent(1, 1)
        return open_door(DOOR)


class UnlockPickup(BabyAILevel):
    """Unlock a door, and pick up the box behind it.

    Start: two rooms with a locked door between them; the agent and the key in the left one, the box
        in the right one; with `distractors`, four more objects
    Time limit: 2 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    num_rows: int = struct.static(1)
    num_cols: int = struct.static(2)
    distractors: bool = struct.static(False)  # whether there are more objects

    verbs = (instructions.PICK_UP_OBJECT,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        box = rooms.add_object(1, 0, cells.BOX)
        door = rooms.add_door(0, 0, RIGHT, locked=True)
        rooms.add_object(0, 0, cells.KEY, door.color)
        if self.distractors:
            rooms.add_distractors(number=4)
        rooms.place_agent(0, 0)
        return instructions.pick_up(describe(box))


class BlockedUnlockPickup(BabyAILevel):
    """Move a ball out of the way, unlock a door, and pick up the box behind it.

    Start: two rooms with a locked door between them and a ball in front of it; the agent and the
        key in the left one, the box in the right one
    Time limit: 16 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    num_rows: int = struct.static(1)
    num_cols: int = struct.static(2)

    verbs = (instructions.PICK_UP_OBJECT,)

    @property
    def default_max_steps(self) -> int:
        return 16 * self.room_size**2

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.add_object(1, 0, cells.BOX)
        door = rooms.add_door(0, 0, RIGHT, locked=True)
        ball = cells.make(cells.BALL, rooms.rng.color())
        rooms.grid = put(rooms.grid, (door.x - 1, door.y), ball)
        rooms.add_object(0, 0, cells.KEY, door.color)
        rooms.place_agent(0, 0)
        return instructions.pick_up(Description(cells.BOX))


class UnlockToUnlock(BabyAILevel):
    """Unlock a door to get the key of another one, and pick up the ball behind it.

    Start: three rooms with locked doors between them; the agent and the key of the right door in
        the middle, the key of the left door in the right room, the ball in the left one
    Time limit: 30 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    num_rows: int = struct.static(1)

    verbs = (instructions.PICK_UP_OBJECT,)

    @property
    def default_max_steps(self) -> int:
        return 30 * self.room_size**2

    def generate_mission(self, rooms: Rooms) -> Instruction:
        left, right = rooms.rng.shuffle(len(cells.COLORS), 2)
        rooms.add_door(0, 0, RIGHT, left, locked=True)
        rooms.add_object(2, 0, cells.KEY, left)
        rooms.add_door(1, 0, RIGHT, right, locked=True)
        rooms.add_object(1, 0, cells.KEY, right)
        rooms.add_object(0, 0, cells.BALL)
        rooms.place_agent(1, 0)
        return instructions.pick_up(Description(cells.BALL))
