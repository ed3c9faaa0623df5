"""BabyAI's levels that combine everything."""

from jaxenvs import struct
from jaxenvs.envs.minigrid.babyai.level_gen import LevelGen


class Synth(LevelGen):
    """Do one thing in a maze of rooms.

    Start: as in `LevelGen`; objects are described by kind and color
    Time limit: room_size**2 steps for each room, twice for an object that must be moved
    """

    locations: bool = struct.static(False)
    implicit_unlock: bool = struct.static(False)
    instr_kinds: tuple[str, ...] = struct.static(("action",))


class SynthLoc(LevelGen):
    """Do one thing in a maze of rooms, with an object that may be described by where it is.

    Start: as in `LevelGen`
    Time limit: room_size**2 steps for each room, twice for an object that must be moved
    """

    implicit_unlock: bool = struct.static(False)
    instr_kinds: tuple[str, ...] = struct.static(("action",))


class SynthSeq(LevelGen):
    """Do up to four things in a maze of rooms, in the order that the mission says.

    Start: as in `LevelGen`
    Time limit: room_size**2 steps for each room and object, twice for an object to be moved
    """

    implicit_unlock: bool = struct.static(False)


class MiniBossLevel(LevelGen):
    """Do up to four things in a small maze of four rooms.

    Start: as in `LevelGen`
    Time limit: room_size**2 steps for each room and object, twice for an object to be moved
    """

    room_size: int = struct.static(5)
    num_rows: int = struct.static(2)
    num_cols: int = struct.static(2)
    num_dists: int = struct.static(7)
    locked_room_prob: float = 0.25


class BossLevel(LevelGen):
    """Do up to four things in a maze of rooms, which may be locked.

    Start: as in `LevelGen`
    Time limit: room_size**2 steps for each room and object, twice for an object to be moved
    """


class BossLevelNoUnlock(LevelGen):
    """Do up to four things in a maze of rooms, none of which is locked.

    Start: as in `LevelGen`
    Time limit: room_size**2 steps for each room and object, twice for an object to be moved
    """

    locked_room_prob: float = 0.0
    implicit_unlock: bool = struct.static(False)
