"""The ids of minigrid, under its names and with its time limits, and a maze with its rules."""

from typing import Any

from jaxenvs.registry import register


def _register(name: str, entry_point: str, time_limit: int, **kwargs: Any) -> None:
    register(
        f"MiniGrid-{name}" if name[-3:-1] == "-v" else f"MiniGrid-{name}-v0",
        f"jaxenvs.envs.minigrid.{entry_point}",
        family="minigrid",
        time_limit=time_limit,
        source="M. Chevalier-Boisvert et al., 2023",
        compared_with="minigrid",
        kwargs=kwargs,
    )


for _size in (5, 6, 8, 16):
    _register(f"Empty-{_size}x{_size}", "empty:Empty", 4 * _size**2, size=_size)
for _size in (5, 6):
    _name = f"Empty-Random-{_size}x{_size}"
    _register(_name, "empty:Empty", 4 * _size**2, size=_size, agent_start_pos=None)
_register("FourRooms", "four_rooms:FourRooms", 100)
for _size in (5, 6, 8, 16):
    _register(f"DoorKey-{_size}x{_size}", "door_key:DoorKey", 10 * _size**2, size=_size)
for _row, _name in ((2, "DistShift1"), (5, "DistShift2")):
    _register(_name, "dist_shift:DistShift", 252, strip2_row=_row)
for _size in (5, 6, 7):
    _register(f"LavaGapS{_size}", "lava_gap:LavaGap", 4 * _size**2, size=_size)
for _type in ("Lava", "Simple"):
    for _size, _number in ((9, 1), (9, 2), (9, 3), (11, 5)):
        _name = f"{_type}CrossingS{_size}N{_number}"
        _kwargs = {"obstacle_type": "lava" if _type == "Lava" else "wall"}
        _limit = 4 * _size**2
        _register(
            *(_name, "crossing:Crossing", _limit), size=_size, num_crossings=_number, **_kwargs
        )
for _size, _number in ((5, 2), (6, 3), (8, 4), (16, 8)):
    for _random in ("", "Random-") if _size < 8 else ("",):
        _kwargs = {"agent_start_pos": None} if _random else {}
        _register(
            f"Dynamic-Obstacles-{_random}{_size}x{_size}",
            "dynamic_obstacles:DynamicObstacles",
            *(4 * _size**2,),
            **{"size": _size, "n_obstacles": _number, **_kwargs},
        )
for _size, _number in ((5, 2), (6, 2), (8, 3)):
    _name = f"Fetch-{_size}x{_size}-N{_number}"
    _register(_name, "fetch:Fetch", 5 * _size**2, size=_size, num_objects=_number)
for _size in (5, 6, 8):
    _register(f"GoToDoor-{_size}x{_size}", "go_to_door:GoToDoor", 4 * _size**2, size=_size)
for _size in (6, 8):
    _name = f"GoToObject-{_size}x{_size}-N2"
    _register(_name, "go_to_object:GoToObject", 5 * _size**2, size=_size)
for _size, _number in ((6, 2), (8, 3)):
    _name = f"PutNear-{_size}x{_size}-N{_number}"
    _register(_name, "put_near:PutNear", 5 * _size, size=_size, num_objects=_number)
_register("LockedRoom", "locked_room:LockedRoom", 190)
for _size in (7, 9, 11, 13):
    _register(f"MemoryS{_size}", "memory:Memory", 5 * _size**2, size=_size)
for _size in (13, 17):
    _name = f"MemoryS{_size}Random"
    _register(_name, "memory:Memory", 5 * _size**2, size=_size, random_length=True)
# minigrid keeps the six rooms of the id with "N4" in version 0.
for _name, _number, _size in (
    ("N2-S4-v0", 2, 4),
    ("N4-S5-v0", 6, 5),
    ("N4-S5-v1", 4, 5),
    ("N6-v0", 6, 10),
):
    _register(
        *(f"MultiRoom-{_name}", "multi_room:MultiRoom", 20 * _number),
        min_num_rooms=_number,
        max_num_rooms=_number,
        max_room_size=_size,
    )
_register("Playground", "playground:Playground", 100)
for _size in (6, 8):
    _name = f"RedBlueDoors-{_size}x{_size}"
    _register(_name, "red_blue_doors:RedBlueDoors", 20 * _size**2, size=_size)
_register("Unlock", "unlock:Unlock", 288)
_register("UnlockPickup", "unlock:UnlockPickup", 288)
_register("BlockedUnlockPickup", "unlock:BlockedUnlockPickup", 576)
for _size, _rows in ((3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3)):
    _name = f"KeyCorridorS{_size}R{_rows}"
    _limit = 30 * _size**2
    _register(_name, "key_corridor:KeyCorridor", _limit, room_size=_size, num_rows=_rows)

_MAZE = "obstructed_maze:ObstructedMaze"
for _letters in ("", "h", "hb"):
    _kwargs = {"key_in_box": "h" in _letters, "blocked": "b" in _letters}
    _register(f"ObstructedMaze-1Dl{_letters}", f"{_MAZE}Door", 288, **_kwargs)
    _kwargs |= {"agent_room": (2, 1), "num_quarters": 1, "num_rooms_visited": 4}
    _register(f"ObstructedMaze-2Dl{_letters}", _MAZE, 576, **_kwargs)
for _name, _room, _quarters, _visited in (
    ("2Dlhb", (2, 1), 1, 4),
    ("1Q", (1, 1), 1, 5),
    ("2Q", (2, 1), 2, 11),
    ("Full", (1, 1), 4, 25),
):
    _kwargs = {"agent_room": _room, "num_quarters": _quarters, "num_rooms_visited": _visited}
    for _version in (0, 1) if _name != "2Dlhb" else (1,):
        _register(
            *(f"ObstructedMaze-{_name}-v{_version}", _MAZE, 144 * _visited),
            **{**_kwargs, "keys_last": _version == 1},
        )

# Not an id of minigrid. Papers name its size without the outer walls.
register(
    "MiniGrid-Maze-13x13-v0",
    "jaxenvs.envs.minigrid.maze:Maze",
    family="minigrid",
    time_limit=250,
    source="M. Dennis et al., 2020",
    compared_with="minigrid",
)
