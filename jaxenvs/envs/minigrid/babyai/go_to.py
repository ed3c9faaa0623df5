"""BabyAI's levels in which the agent must go to an object."""

import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.babyai.instructions import Description, Instruction, describe, go_to
from jaxenvs.envs.minigrid.babyai.level import BabyAILevel, OneRoomLevel
from jaxenvs.envs.minigrid.babyai.level_gen import LevelGen
from jaxenvs.envs.minigrid.layout import at, fill
from jaxenvs.envs.minigrid.room_grid import Rooms

RED_BALL = Description(cells.BALL, cells.RED)


class GoToRedBallGrey(OneRoomLevel):
    """Go to the red ball; all other objects are gray.

    Start: one room with `num_dists` other objects
    Time limit: room_size**2 steps
    """

    num_dists: int = struct.static(7)  # number of objects

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        ball = rooms.add_object(0, 0, *RED_BALL[:2])
        rooms.add_distractors(number=self.num_dists, all_unique=False)
        others = cells.is_in(cells.CAN_PICK_UP, rooms.grid) & ~at(rooms.grid, (ball.x, ball.y))
        gray = cells.make(cells.kind(rooms.grid), np.uint32(cells.GREY))
        rooms.grid = fill(rooms.grid, others, gray)
        rooms.ok &= rooms.all_reachable()
        return go_to(RED_BALL)


class GoToRedBall(OneRoomLevel):
    """Go to the red ball among other objects.

    Start: one room with `num_dists` other objects
    Time limit: room_size**2 steps
    """

    num_dists: int = struct.static(7)  # number of objects

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        rooms.add_object(0, 0, *RED_BALL[:2])
        if self.num_dists:
            rooms.add_distractors(number=self.num_dists, all_unique=False)
        rooms.ok &= rooms.all_reachable()
        return go_to(RED_BALL)


class GoToObj(OneRoomLevel):
    """Go to the only object.

    Start: one room with a key, ball, or box
    Time limit: room_size**2 steps
    """

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        things = rooms.add_distractors(number=1)
        return go_to(describe(things.at(0)))


class GoToLocal(OneRoomLevel):
    """Go to an object among others.

    Start: one room with `num_dists` objects, of which the mission names one
    Time limit: room_size**2 steps
    """

    num_dists: int = struct.static(8)  # number of objects

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        things = rooms.add_distractors(number=self.num_dists, all_unique=False)
        rooms.ok &= rooms.all_reachable()
        return go_to(describe(rooms.choose(things)[0]))


class GoTo(BabyAILevel):
    """Go to an object in a maze of rooms.

    Start: rooms with doors, all connected, and `num_dists` objects, of which the mission names one
    Time limit: room_size**2 steps for each room
    """

    num_dists: int = struct.static(18)  # number of objects
    doors_open: bool = struct.static(False)  # whether doors are open at the start

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        rooms.connect_all()
        things = rooms.add_distractors(number=self.num_dists, all_unique=False)
        rooms.ok &= rooms.all_reachable()
        thing = rooms.choose(things)[0]
        if self.doors_open:
            is_door = cells.is_in(cells.IS_DOOR, rooms.grid)
            opened = cells.make(np.uint32(cells.OPEN_DOOR), cells.color(rooms.grid))
            rooms.grid = fill(rooms.grid, is_door, opened)
        return go_to(describe(thing))


class GoToImpUnlock(BabyAILevel):
    """Go to an object in a locked room; the mission does not say that its door must be unlocked.

    Start: a maze of rooms, one of them locked, with two objects in each, and one more in the locked
        one, which the mission names
    Time limit: room_size**2 steps for each room

    The key is in any room. In one of nine levels, it is in the locked room, so there is no
    solution, as in minigrid.
    """

    def generate_mission(self, rooms: Rooms) -> Instruction:
        i, j = rooms.random_room()
        door = rooms.add_door(i, j, locked=True)
        rooms.add_object(*rooms.random_room(), cells.KEY, door.color)
        rooms.connect_all()
        rooms.add_distractors_to_each_room(2)
        rooms.place_agent(rooms=rooms.all_but(i, j))
        rooms.ok &= rooms.all_reachable()
        things = rooms.add_distractors(i, j, number=1, all_unique=False)
        return go_to(describe(things.at(0)))


class GoToSeq(LevelGen):
    """Go to one or several objects in a maze of rooms, in the order that the mission says.

    Start: rooms with doors, all connected, and `num_dists` objects
    Time limit: room_size**2 steps for each room, for each object of the mission
    """

    locked_room_prob: float = 0.0  # probability of a locked room
    locations: bool = struct.static(False)  # whether descriptions have locations
    unblocking: bool = struct.static(False)  # whether objects may block the way
    action_kinds: tuple[str, ...] = struct.static(("goto",))  # kinds of actions


class GoToRedBlueBall(OneRoomLevel):
    """Go to the red or the blue ball; there is only one of them.

    Start: one room with `num_dists` other objects
    Time limit: room_size**2 steps
    """

    num_dists: int = struct.static(7)  # number of objects

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        things = rooms.add_distractors(number=self.num_dists, all_unique=False)
        is_confusing = (things.kind == cells.BALL) & (
            (things.color == cells.RED) | (things.color == cells.BLUE)
        )
        color = jnp.where(rooms.rng.boolean(), cells.RED, cells.BLUE)
        ball = rooms.add_object(0, 0, cells.BALL, color)
        rooms.ok &= rooms.all_reachable() & ~is_confusing.any()
        return go_to(describe(ball))


class GoToDoor(BabyAILevel):
    """Go to a door of a color.

    Start: the agent in the middle of nine rooms, which has four doors
    Time limit: 441 steps
    """

    room_size: int = struct.static(7)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        doors = [rooms.add_door(1, 1) for _ in range(4)]
        rooms.place_agent(1, 1)
        door = rooms.choose(*doors)[0]
        return go_to(describe(door))


class GoToObjDoor(BabyAILevel):
    """Go to an object or a door.

    Start: the agent in the middle of nine rooms, which has four doors and eight objects
    Time limit: 576 steps
    """

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent(1, 1)
        things = rooms.add_distractors(1, 1, number=8, all_unique=False)
        doors = [rooms.add_door(1, 1) for _ in range(4)]
        rooms.ok &= rooms.all_reachable()
        return go_to(describe(rooms.choose(things, *doors)[0]))
