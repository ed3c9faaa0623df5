"""BabyAI's levels in which the agent must pick up an object."""

import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.minigrid.babyai import instructions
from jaxenvs.envs.minigrid.babyai.instructions import ANY, Description, Instruction, describe
from jaxenvs.envs.minigrid.babyai.level import BabyAILevel, OneRoomLevel
from jaxenvs.envs.minigrid.babyai.level_gen import LevelGen
from jaxenvs.envs.minigrid.room_grid import UP, Rooms


class Pickup(BabyAILevel):
    """Pick up an object in a maze of rooms.

    Start: rooms with doors, all connected, and 18 objects, of which the mission names one
    Time limit: room_size**2 steps for each room
    """

    verbs = (instructions.PICK_UP_OBJECT,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        rooms.connect_all()
        things = rooms.add_distractors(number=18, all_unique=False)
        rooms.ok &= rooms.all_reachable()
        return instructions.pick_up(describe(rooms.choose(things)[0]))


class UnblockPickup(BabyAILevel):
    """Pick up an object in a maze of rooms where objects are in the way.

    Start: rooms with doors, all connected, and 20 objects, of which the mission names one; at least
        one of them cannot be reached before another one is moved
    Time limit: room_size**2 steps for each room
    """

    verbs = (instructions.PICK_UP_OBJECT,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        rooms.connect_all()
        things = rooms.add_distractors(number=20, all_unique=False)
        rooms.ok &= ~rooms.all_reachable()
        return instructions.pick_up(describe(rooms.choose(things)[0]))


class PickupLoc(LevelGen):
    """Pick up an object, which may be described by where it is.

    Start: one room with `num_dists` objects
    Time limit: room_size**2 steps
    """

    num_rows: int = struct.static(1)
    num_cols: int = struct.static(1)
    num_dists: int = struct.static(8)  # number of objects
    locked_room_prob: float = 0.0  # probability of a locked room
    unblocking: bool = struct.static(False)  # whether objects may block the way
    action_kinds: tuple[str, ...] = struct.static(("pickup",))  # kinds of actions
    instr_kinds: tuple[str, ...] = struct.static(("action",))  # kinds of instructions


class PickupDist(OneRoomLevel):
    """Pick up an object that is described by its kind, its color, or both.

    Start: one room with five different objects
    Terminates: when the object is picked up; with `debug` also when another one is picked up
    Time limit: room_size**2 steps
    """

    room_size: int = struct.static(7)
    debug: bool = struct.static(False)  # whether a wrong object ends the episode

    verbs = (instructions.PICK_UP_OBJECT,)

    @property
    def is_strict(self) -> tuple[bool, ...]:
        return (self.debug,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        things = rooms.add_distractors(number=5)
        rooms.place_agent(0, 0)
        thing = rooms.choose(things)[0]
        mode = rooms.rng.integer(0, 3)
        kind = jnp.where(mode == 0, ANY, thing.kind)
        color = jnp.where(mode == 1, ANY, thing.color)
        return instructions.pick_up(Description(kind, color))


class PickupAbove(BabyAILevel):
    """Pick up the object in the room above, behind a closed door.

    Start: nine rooms, all connected; the agent in the middle, an object in the room above
    Time limit: 8 * room_size**2 steps
    """

    room_size: int = struct.static(6)

    verbs = (instructions.PICK_UP_OBJECT,)

    @property
    def default_max_steps(self) -> int:
        return 8 * self.room_size**2

    def generate_mission(self, rooms: Rooms) -> Instruction:
        thing = rooms.add_object(1, 0)
        rooms.add_door(1, 1, UP, locked=False)
        rooms.place_agent(1, 1)
        rooms.connect_all()
        return instructions.pick_up(describe(thing))
