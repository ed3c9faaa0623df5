"""Levels of square rooms in rows and columns, with doors between neighbors."""

import copy
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, prng, struct
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import (
    RandomStream,
    at,
    connected,
    divide,
    empty,
    fill,
    lookup,
    put,
    rectangle,
    widen,
)
from jaxenvs.envs.minigrid.level import PICK_UP, MiniGrid, MiniGridState
from jaxenvs.errors import ParameterError
from jaxenvs.struct import select

T = TypeVar("T")

# Sides of a room; there may be a door on each.
RIGHT, DOWN, LEFT, UP = range(4)
KINDS = np.array([cells.KEY, cells.BALL, cells.BOX], np.int32)  # of objects to draw


class Thing(NamedTuple):
    """An object of a level that is being generated, or several if the fields are arrays [n]."""

    kind: Any  # int32[], `OPEN_DOOR` for any door
    color: Any  # int32[]
    x: Any  # int32[]
    y: Any  # int32[]

    def at(self, index: Any) -> "Thing":
        """Returns one of several objects."""
        return Thing(*(field[index] for field in self))


class RoomGrid(MiniGrid):
    """A level of rooms, `num_cols` in a row and `num_rows` in a column.

    `initial_state` of a subclass adds doors and objects to `Rooms`. Neighbors share the wall
    between them, so the grid has `(room_size - 1) * num_cols + 1` columns.
    """

    room_size: int = struct.static(7)  # columns and rows of a room, including walls
    num_rows: int = struct.static(3)  # rows of rooms
    num_cols: int = struct.static(3)  # columns of rooms

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.room_size < 3:
            raise ParameterError(
                f"{type(self).__name__} got room_size={self.room_size}; it must be at least 3, one"
                " cell and two walls."
            )

    @property
    def width(self) -> int:
        return (self.room_size - 1) * self.num_cols + 1

    @property
    def height(self) -> int:
        return (self.room_size - 1) * self.num_rows + 1


class PickUp(RoomGrid):
    """A level of rooms in which an object must be picked up.

    Its task is uint8[], the kind and the color of the object.
    """

    def outcome(
        self, before: MiniGridState, action: jax.Array, after: MiniGridState
    ) -> tuple[jax.Array, jax.Array]:
        success = (action == PICK_UP) & (cells.appearance(after.carrying) == after.task)
        return success, jnp.zeros_like(success)


class Rooms:
    """A grid of rooms while a level adds doors, objects, and the agent to it.

    Rooms are given by column i and row j, integers or int32[]. `ok` turns false if there is no
    place left for an object or the agent; minigrid raises an error there.
    """

    def __init__(self, level: RoomGrid, rng: RandomStream) -> None:
        self.level, self.rng, self.size = level, rng, level.room_size
        self.step = step = level.room_size - 1  # from a room to the next one
        y, x = np.indices((level.height, level.width), np.int32, sparse=True)
        walls = np.where((x % step == 0) | (y % step == 0), cells.WALL, cells.EMPTY)
        self.grid = jnp.asarray(walls.astype(level.cell_type))
        self.edges = edges = _Edges(level.num_rows, level.num_cols)
        self.door_x, self.door_y = edges.column * step, edges.row * step
        if edges.number:
            along = prng.below(rng.words((edges.number,)), jnp.full(edges.number, step - 1)) + 1
            self.door_x = self.door_x + jnp.where(edges.is_beside, 0, along)
            self.door_y = self.door_y + jnp.where(edges.is_beside, along, 0)
        self.is_open = jnp.zeros(edges.number, bool)  # there is a door, or no wall
        self.is_locked = jnp.zeros(level.num_rows * level.num_cols, bool)
        self.is_used = jnp.zeros(len(KINDS) * len(cells.COLORS), bool)  # pairs, by kind first
        self.ok = jnp.bool_(True)
        # Before it is placed, the agent is in the middle, and objects keep away from there.
        self.x = jnp.int32(level.num_cols // 2 * step + self.size // 2)
        self.y = jnp.int32(level.num_rows // 2 * step + self.size // 2)
        self.direction = jnp.int32(0)

    def select(self, condition: jax.Array, otherwise: "Rooms") -> None:
        """Keeps these rooms if the condition holds, and otherwise takes those of a copy."""
        self._contents = select(condition, self._contents, otherwise._contents)

    def repeat(self, add: Callable[..., T], words: jax.Array, *columns: Any) -> T:
        """Calls `add(rooms, *row)` for each row of some columns, in a loop that is compiled once.

        Args:
            add: adds something to the rooms that it is given.
            words: uint32[n, k], for the draws of these rooms.
            *columns: arrays [n, ...].

        Returns:
            The results of the calls, stacked.
        """

        def call(contents: Any, row: Any) -> tuple[Any, T]:
            rooms = copy.copy(self)
            rooms._contents, rooms.rng = contents, RandomStream(row[0])
            result = add(rooms, *row[1:])
            return rooms._contents, result

        self._contents, results = loops.scan(call, self._contents, (words, *columns))
        return results

    @property
    def _contents(self) -> tuple[jax.Array, ...]:
        return self.grid, self.is_open, self.is_locked, self.is_used, self.ok

    @_contents.setter
    def _contents(self, contents: tuple[jax.Array, ...]) -> None:
        self.grid, self.is_open, self.is_locked, self.is_used, self.ok = contents

    def make_state(self, **kwargs: Any) -> MiniGridState:
        """Returns the state, given the task and the mission of `MiniGrid.make_state`."""
        return self.level.make_state(self.grid, self.x, self.y, self.direction, **kwargs)

    def room(self, i: Any, j: Any) -> jax.Array:
        """Returns the region of a room, with its walls."""
        return rectangle(self.grid, i * self.step, j * self.step, self.size, self.size)

    def random_room(self) -> tuple[jax.Array, jax.Array]:
        """Draws a room."""
        level = self.level
        return self.rng.integer(0, level.num_cols), self.rng.integer(0, level.num_rows)

    def all_but(self, i: Any, j: Any) -> jax.Array:
        """Returns a mask of all rooms but one: bool[num_rows * num_cols]."""
        return np.arange(len(self.is_locked), dtype=np.int32) != j * self.level.num_cols + i

    def choose(self, *things: Thing, number: int = 1) -> list[Thing]:
        """Draws `number` different objects. Each of `things` is one object or several."""
        fields = (
            jnp.concatenate([jnp.atleast_1d(x) for x in xs]) for xs in zip(*things, strict=True)
        )
        together = Thing(*fields)
        return [together.at(i) for i in self.rng.shuffle(len(together.x), number)]

    def add(self, i: Any, j: Any, cell: Any) -> Thing:
        """Puts an object into a random empty cell of a room, neither the agent's nor next to it."""
        left, top = (jnp.asarray(index, jnp.int32) * self.step for index in (i, j))
        inside = jax.lax.dynamic_slice(self.grid, (top, left), (self.size, self.size))
        rows, columns = np.indices(inside.shape, np.int32, sparse=True)
        is_far = abs(columns + (left - self.x)) + abs(rows + (top - self.y)) >= 2
        allowed = empty(inside) & is_far
        (x, y), fits = self.rng.cell(allowed), allowed.any()
        thing = Thing(cells.kind(cell), cells.color(cell), left + x, top + y)
        pair = (thing.kind - cells.KEY) * len(cells.COLORS) + thing.color
        self.is_used |= np.arange(len(self.is_used), dtype=np.int32) == pair
        self.grid = fill(self.grid, at(self.grid, (thing.x, thing.y)) & fits, cell)
        self.ok &= fits
        return thing

    def add_object(self, i: Any, j: Any, kind: Any = None, color: Any = None) -> Thing:
        """Puts a key, ball, or box into a room. Draws its kind and color unless they are given."""
        if kind is None:
            kind = lookup(KINDS, self.rng.integer(0, len(KINDS)))
        return self.add(i, j, cells.make(kind, self.rng.color() if color is None else color))

    def add_door(
        self, i: Any, j: Any, side: Any = None, color: Any = None, locked: Any = None
    ) -> Thing:
        """Adds a door to a room. Draws its side, color, and lock unless they are given.

        The side is drawn from those with a neighbor and without a door.
        """
        around = lookup(self.edges.around, jnp.asarray(j * self.level.num_cols + i))
        if side is None:
            side = self.rng.choose((around >= 0) & ~self.is_open[around])
        color = self.rng.color() if color is None else color
        locked = self.rng.boolean() if locked is None else jnp.bool_(locked)
        self.is_locked = jnp.where(self.all_but(i, j), self.is_locked, locked)
        edge = around[side]
        kind = jnp.where(locked, cells.LOCKED_DOOR, cells.CLOSED_DOOR)
        place = self.door_x[edge], self.door_y[edge]
        self.grid = put(self.grid, place, cells.make(kind, color))
        self.is_open |= np.arange(self.edges.number, dtype=np.int32) == edge
        return Thing(jnp.int32(cells.OPEN_DOOR), color, *place)

    def remove_wall(self, i: int, j: int, side: int) -> None:
        """Removes the wall between two rooms, without its ends."""
        x, y = i * self.step, j * self.step
        length = self.size - 2
        left, top, width, height = {
            RIGHT: (x + self.step, y + 1, 1, length),
            DOWN: (x + 1, y + self.step, length, 1),
            LEFT: (x, y + 1, 1, length),
            UP: (x + 1, y, length, 1),
        }[side]
        self.grid = fill(self.grid, rectangle(self.grid, left, top, width, height), cells.EMPTY)
        edge = self.edges.around[j * self.level.num_cols + i, side]
        self.is_open |= np.arange(self.edges.number, dtype=np.int32) == edge

    def place_agent(self, i: Any = None, j: Any = None, *, rooms: Any = None) -> None:
        """Puts the agent into a room, so that the cell in front is empty or a wall.

        Args:
            i: the column of the room, drawn if it is None.
            j: the row of the room, drawn if it is None.
            rooms: a mask of rooms to draw from, bool[num_rows * num_cols], instead of i and j.
        """
        if rooms is not None:
            room = self.rng.choose(rooms)
            j, i = divide(room, self.level.num_cols, limit=len(rooms))
        i = self.rng.integer(0, self.level.num_cols) if i is None else i
        j = self.rng.integer(0, self.level.num_rows) if j is None else j
        # The room with the cells around it.
        wide = jnp.pad(self.grid, 1)
        left, top = (jnp.asarray(index, jnp.int32) * self.step for index in (i, j))
        size = self.size
        wide = jax.lax.dynamic_slice(wide, (top, left), (size + 2, size + 2))
        free = empty(wide)[1:-1, 1:-1]
        clear = cells.is_in(cells.set_of(cells.EMPTY, cells.kind(cells.WALL)), wide)
        ahead = jnp.stack([clear[1:-1, 2:], clear[2:, 1:-1], clear[1:-1, :-2], clear[:-2, 1:-1]])
        allowed = (free[None] & ahead).reshape(-1)
        index = self.rng.choose(allowed)
        self.ok &= allowed.any()
        self.direction, cell = divide(index, size**2, limit=allowed.size)
        row, column = divide(cell, size, limit=size**2)
        self.x, self.y = left + column, top + row

    def connect_all(self, colors: Any = None) -> None:
        """Adds doors between random neighbors until all rooms are connected.

        Rooms with a locked door get no other doors.

        Args:
            colors: a mask of the colors of doors, bool[6]; None for all.
        """
        colors = np.ones(len(cells.COLORS), bool) if colors is None else colors
        edges = self.edges
        if not edges.number:
            return
        allowed = ~self.is_locked[edges.first] & ~self.is_locked[edges.second]
        group = np.arange(len(self.is_locked), dtype=np.int32)

        def merge(group: jax.Array, edge: jax.Array) -> tuple[jax.Array, None]:
            return jnp.where(self.is_open[edge], _merge(group, edges, edge), group), None

        every = np.arange(edges.number, dtype=np.int32)
        group, _ = loops.scan(merge, jnp.asarray(group), every)

        def add_next(carry: Any, words: jax.Array) -> tuple[Any, None]:
            grid, is_open, group = carry
            rng = RandomStream(words)
            candidates = allowed & ~is_open
            edge, color = rng.choose(candidates), rng.choose(colors)
            adds = (group != group[0]).any() & candidates.any()
            door = cells.make(cells.CLOSED_DOOR, color)
            here = at(grid, (self.door_x[edge], self.door_y[edge])) & adds
            here_edge = (np.arange(edges.number, dtype=np.int32) == edge) & adds
            group = jnp.where(adds, _merge(group, edges, edge), group)
            return (fill(grid, here, door), is_open | here_edge, group), None

        words = self.rng.words((edges.number, 2))
        carry = self.grid, self.is_open, jnp.asarray(group)
        (self.grid, self.is_open, group), _ = loops.scan(add_next, carry, words)
        self.ok &= (group == group[0]).all()

    def add_distractors(
        self, i: Any = None, j: Any = None, *, number: int = 10, all_unique: bool = True
    ) -> Thing:
        """Adds keys, balls, and boxes of random color.

        Args:
            i: column of the room, or of the room of each object; None for random rooms.
            j: row of the room, likewise.
            number: of objects.
            all_unique: whether each differs in kind or color from all objects in rooms.

        Returns:
            The objects, with fields [number].
        """
        level = self.level
        words = self.rng.words((number, 4))
        if i is None:
            i = prng.below(words[:, 2], jnp.full(number, level.num_cols))
        if j is None:
            j = prng.below(words[:, 3], jnp.full(number, level.num_rows))
        i, j = (jnp.broadcast_to(jnp.asarray(index, jnp.int32), number) for index in (i, j))

        def add_next(rooms: Rooms, i: jax.Array, j: jax.Array) -> Thing:
            is_used = rooms.is_used
            pair = rooms.rng.choose(~is_used if all_unique else jnp.ones_like(is_used))
            kind, color = divide(pair, len(cells.COLORS), limit=len(is_used))
            return rooms.add(i, j, cells.make(lookup(KINDS, kind), color))

        return self.repeat(add_next, words[:, :2], i, j)

    def add_distractors_to_each_room(self, number: int) -> None:
        """Adds `number` keys, balls, and boxes of random color to every room."""
        rooms = np.arange(len(self.is_locked), dtype=np.int32).repeat(number)
        i, j = rooms % self.level.num_cols, rooms // self.level.num_cols
        self.add_distractors(i, j, number=len(rooms), all_unique=False)

    def all_reachable(self) -> jax.Array:
        """Returns whether the agent can reach every object and door without moving an object."""
        is_wall = cells.is_in(cells.set_of(cells.kind(cells.WALL)), self.grid)
        passable = empty(self.grid) | cells.is_in(cells.IS_DOOR, self.grid)
        walked = connected(at(self.grid, (self.x, self.y)), passable)
        return (empty(self.grid) | is_wall | widen(walked)).all()


class _Edges:
    """The walls between two rooms, in arrays [number]."""

    def __init__(self, num_rows: int, num_cols: int) -> None:
        rows = []
        self.around = np.full((num_rows * num_cols, 4), -1, np.int32)  # of a room, for each side
        for j in range(num_rows):
            for i in range(num_cols):
                room = j * num_cols + i
                for side, other, exists in (
                    (RIGHT, room + 1, i + 1 < num_cols),
                    (DOWN, room + num_cols, j + 1 < num_rows),
                ):
                    if exists:
                        self.around[room, side] = self.around[other, side + 2] = len(rows)
                        rows.append(
                            (room, other, side == RIGHT, i + (side == RIGHT), j + (side == DOWN))
                        )
        table = np.array(rows, np.int32).reshape(-1, 5)
        self.number = len(table)
        self.first, self.second = table[:, 0], table[:, 1]  # rooms
        self.is_beside = table[:, 2] == 1  # whether the second room is to the right
        self.column, self.row = table[:, 3], table[:, 4]  # of the room where the wall begins


def _merge(group: Any, edges: _Edges, edge: Any) -> jax.Array:
    """Merges the groups of the rooms on both sides of an edge: int32[num_rooms]."""
    first, second = (lookup(group, lookup(rooms, edge)) for rooms in (edges.first, edges.second))
    return jnp.where(group == second, first, group)
