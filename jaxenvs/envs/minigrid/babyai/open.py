"""BabyAI's levels in which the agent must open a door."""

import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.babyai import instructions
from jaxenvs.envs.minigrid.babyai.instructions import Description, Instruction, describe, open_door
from jaxenvs.envs.minigrid.babyai.level import BabyAILevel
from jaxenvs.envs.minigrid.room_grid import LEFT, RIGHT, Rooms
from jaxenvs.errors import ParameterError

DOOR = cells.OPEN_DOOR  # the kind of any door in descriptions


class Open(BabyAILevel):
    """Open a door of a color in a maze of rooms.

    Start: rooms with doors, all connected, and 18 objects
    Time limit: room_size**2 steps for each room
    """

    verbs = (instructions.OPEN,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.place_agent()
        rooms.connect_all()
        rooms.add_distractors(number=18, all_unique=False)
        rooms.ok &= rooms.all_reachable()
        x, y = rooms.rng.cell(cells.is_in(cells.IS_DOOR, rooms.grid))
        color = cells.color(rooms.grid[y, x]).astype(jnp.int32)
        return open_door(Description(DOOR, color))


class OpenRedDoor(BabyAILevel):
    """Open the only door, which is red.

    Start: two rooms; the agent in the left one
    Time limit: 50 steps
    """

    room_size: int = struct.static(5)
    num_rows: int = struct.static(1)
    num_cols: int = struct.static(2)

    verbs = (instructions.OPEN,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rooms.add_door(0, 0, RIGHT, cells.RED, locked=False)
        rooms.place_agent(0, 0)
        return open_door(Description(DOOR, cells.RED))


class OpenDoor(BabyAILevel):
    """Open a door that is described by its color or by where it is.

    Start: the agent in the middle of nine rooms, which has a door of another color at each side
    Terminates: when the door is opened; with `debug` also when another door is opened or closed
    Time limit: 576 steps
    """

    select_by: str | None = struct.static(None)  # "color", "loc", or None for any of both
    debug: bool = struct.static(False)  # whether a wrong object ends the episode

    verbs = (instructions.OPEN,)
    has_locations = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.select_by not in (None, "color", "loc"):
            raise ParameterError(
                f'OpenDoor got select_by={self.select_by!r}; it must be "color", "loc", or None.'
            )

    @property
    def is_strict(self) -> tuple[bool, ...]:
        return (self.debug,)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        rng = rooms.rng
        colors = rng.shuffle(len(cells.COLORS), 4)
        for side, color in enumerate(colors):
            rooms.add_door(1, 1, side, color, locked=False)
        by_color = open_door(Description(DOOR, colors[0]))
        location = rng.integer(instructions.ON_THE_LEFT, instructions.BEHIND + 1)
        by_location = open_door(Description(DOOR, location=location))
        is_by_color = rng.boolean() if self.select_by is None else self.select_by == "color"
        rooms.place_agent(1, 1)
        return instructions.select(is_by_color, by_color, by_location)


class OpenTwoDoors(BabyAILevel):
    """Open a door to the left and then a door to the right.

    Start: the agent in the middle of nine rooms, which has a door at the left and the right, of
        different colors unless `first_color` or `second_color` is given
    Terminates: when both are open; with `strict` also when another door than the first is opened or
        closed before it
    Time limit: 20 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    first_color: str | None = struct.static(None)  # None for a random color
    second_color: str | None = struct.static(None)  # likewise
    strict: bool = struct.static(
        False
    )  # whether a wrong door ends the episode before the first one is open

    verbs = (instructions.OPEN,)
    num_actions = 2

    @property
    def default_max_steps(self) -> int:
        return 20 * self.room_size**2

    @property
    def is_strict(self) -> tuple[bool, ...]:
        return (self.strict, False)

    def generate_mission(self, rooms: Rooms) -> Instruction:
        colors = rooms.rng.shuffle(len(cells.COLORS), 2)
        parts = []
        for side, drawn, name in zip(
            (LEFT, RIGHT), colors, (self.first_color, self.second_color), strict=True
        ):
            color = drawn if name is None else cells.color_named(name)
            rooms.add_door(1, 1, side, color, locked=False)
            parts.append(open_door(Description(DOOR, color)))
        rooms.place_agent(1, 1)
        return instructions.before(*parts)


class OpenDoorsOrder(BabyAILevel):
    """Open one door, or two doors in the order that the mission says.

    Start: the agent in the middle of nine rooms, which has `num_doors` doors of different
        colors
    Terminates: when the doors are open; with `debug` also when another door than the next one is
        opened or closed, so that a mission with two doors always fails, as in BabyAI
    Time limit: 20 * room_size**2 steps
    """

    room_size: int = struct.static(6)
    num_doors: int = struct.static(2)  # number of doors, from 2 to 4
    debug: bool = struct.static(False)  # whether a wrong object ends the episode

    verbs = (instructions.OPEN,)
    num_actions = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= self.num_doors <= 4:
            raise ParameterError(
                f"OpenDoorsOrder got num_doors={self.num_doors}; it must be from 2 to 4."
            )

    @property
    def default_max_steps(self) -> int:
        return 20 * self.room_size**2

    @property
    def is_strict(self) -> tuple[bool, ...]:
        return (self.debug,) * 2

    def generate_mission(self, rooms: Rooms) -> Instruction:
        colors = rooms.rng.shuffle(len(cells.COLORS), self.num_doors)
        doors = [rooms.add_door(1, 1, color=color, locked=False) for color in colors]
        rooms.place_agent(1, 1)
        first, second = (open_door(describe(door)) for door in rooms.choose(*doors, number=2))
        mode = rooms.rng.integer(0, 3)
        both = instructions.select(
            mode == 1, instructions.before(first, second), instructions.after(first, second)
        )
        return instructions.select(mode == 0, instructions.pad(first, 2), both)
