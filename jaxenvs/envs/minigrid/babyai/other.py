"""BabyAI's other levels."""

import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.babyai import instructions
from jaxenvs.envs.minigrid.babyai.instructions import Description, Instruction, describe
from jaxenvs.envs.minigrid.babyai.level import BabyAILevel, OneRoomLevel
from jaxenvs.envs.minigrid.room_grid import LEFT, RIGHT, UP, Rooms
from jaxenvs.errors import ParameterError


class ActionObjDoor(BabyAILevel):
    """Go to or pick up an object, or go to or open a door.

    Start: the agent in the middle of nine rooms, which has four doors and five different
        objects
    Time limit: 441 steps
    """

    room_size: int = struct.static(7)

    verbs = (instructions.GO_TO, instructions.OPEN, instructions.PICK_UP_OBJECT)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        things = rooms.add_distractors(1, 1, number=5)
        doors = [rooms.add_door(1, 1, locked=False) for _ in range(4)]
        rooms.place_agent(1, 1)
        thing = rooms.choose(things, *doors)[0]
        is_door = thing.kind == cells.OPEN_DOOR
        other = jnp.where(is_door, instructions.OPEN, instructions.PICK_UP_OBJECT)
        verb = jnp.where(rooms.rng.boolean(), instructions.GO_TO, other)
        return instructions.action(verb, describe(thing))


class FindObjS5(BabyAILevel):
    """Find the only object in a maze of rooms, and pick it up.

    Start: the agent in the middle of nine rooms, all connected; the object in any room
    Time limit: 20 * room_size**2 steps
    """

    room_size: int = struct.static(5)

    verbs = (instructions.PICK_UP_OBJECT,)

    @property
    def default_max_steps(self) -> int:
        return 20 * self.room_size**2

    def generate_mission(self, rooms: Rooms) -> Instruction:
        thing = rooms.add_object(*rooms.random_room())
        rooms.place_agent(1, 1)
        rooms.connect_all()
        return instructions.pick_up(Description(thing.kind))


class KeyCorridor(BabyAILevel):
    """Find a key in the rooms beside a corridor, unlock the right room, and pick up the ball in it.

    Start: as in MiniGrid's `KeyCorridor`
    Time limit: 30 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    obj_type: str = struct.static("ball")  # or "box", "key"

    verbs = (instructions.PICK_UP_OBJECT,)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.obj_type not in ("ball", "box", "key"):
            raise ParameterError(
                f'KeyCorridor got obj_type={self.obj_type!r}; it must be "ball", "box", or "key".'
            )

    @property
    def default_max_steps(self) -> int:
        return 30 * self.room_size**2

    def generate_mission(self, rooms: Rooms) -> Instruction:
        for j in range(1, self.num_rows):
            rooms.remove_wall(1, j, UP)
        row, key_row = (rooms.rng.integer(0, self.num_rows) for _ in range(2))
        door = rooms.add_door(2, row, LEFT, locked=True)
        kind = {"ball": cells.BALL, "box": cells.BOX, "key": cells.KEY}[self.obj_type]
        rooms.add_object(2, row, kind)
        rooms.add_object(0, key_row, cells.KEY, door.color)
        rooms.place_agent(1, self.num_rows // 2)
        rooms.connect_all()
        return instructions.pick_up(Description(kind))


class OneRoomS8(OneRoomLevel):
    """Pick up the ball in an empty room.

    Start: one room with a ball
    Time limit: room_size**2 steps
    """

    verbs = (instructions.PICK_UP_OBJECT,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.add_object(0, 0, cells.BALL)
        rooms.place_agent()
        return instructions.pick_up(Description(cells.BALL))


class MoveTwoAcross(BabyAILevel):
    """Put an object of the left room next to one of the right room, then one of the right room next
    to one of the left.

    Start: two rooms without a wall between them, each with `objs_per_room` objects, all different;
        the agent in the left one
    Time limit: 16 * room_size**2 steps
    """

    room_size: int = struct.static(5)
    num_rows: int = struct.static(1)
    num_cols: int = struct.static(2)
    objs_per_room: int = struct.static(2)  # number of objects in each room

    verbs = (instructions.PUT_NEXT,)
    num_actions = 2

    @property
    def default_max_steps(self) -> int:
        return 16 * self.room_size**2

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent(0, 0)
        left = rooms.add_distractors(0, 0, number=self.objs_per_room)
        right = rooms.add_distractors(1, 0, number=self.objs_per_room)
        rooms.remove_wall(0, 0, RIGHT)
        (a, d), (b, c) = (map(describe, rooms.choose(things, number=2)) for things in (left, right))
        return instructions.before(instructions.put_next(a, b), instructions.put_next(c, d))
