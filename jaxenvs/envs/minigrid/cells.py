"""The contents of a grid cell, packed into an unsigned integer.

    bits 0 to 3    kind of object: the constants below
    bits 4 to 6    color: an index of `COLORS`
    bits 8 to 15   what a box contains, as bits 0 to 7 of that object
    bits 16 to 31  free for the use of levels; bits 16 to 23 move along with an object

Grids of levels that need the lower bits only have a smaller integer type. Functions accept integers
and arrays.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.errors import ParameterError

# The first eleven are the types of minigrid's observations, in which a door is OPEN_DOOR with its
# state in the third channel.
UNSEEN, _EMPTY, _WALL, FLOOR, OPEN_DOOR, KEY, BALL, BOX, _GOAL, _LAVA, AGENT = range(11)
CLOSED_DOOR, LOCKED_DOOR = 11, 12
COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
MOVES_ALONG = 0x00FFFFFF  # the bits of an object that is picked up


def make(kind: Any, color: Any = RED, contains: Any = 0) -> Any:
    """Returns a cell that contains an object."""
    return kind | color << 4 | contains << 8


EMPTY, WALL, GOAL, LAVA = _EMPTY, make(_WALL, GREY), make(_GOAL, GREEN), make(_LAVA, RED)


def kind(cell: Any) -> Any:
    """Returns the kind of object in a cell, such as `KEY`."""
    return cell & 15


def color(cell: Any) -> Any:
    """Returns the color of the object in a cell, such as `RED`."""
    return cell >> 4 & 7


def appearance(cell: jax.Array) -> jax.Array:
    """Returns the kind and the color of the object in a cell, without anything else: uint8."""
    return (cell & 0x7F).astype(np.uint8)


def contents(cell: Any) -> Any:
    """Returns the cell that remains when a box is opened."""
    inside = cell >> 8 & 0xFF
    return jnp.where(inside == 0, EMPTY, inside).astype(cell.dtype)


def is_in(kinds: int, cell: jax.Array) -> jax.Array:
    """Returns whether the kind of object is in a set, made by `set_of`."""
    return (np.uint32(kinds) >> kind(cell).astype(jnp.uint32)) & 1 == 1


def set_of(*kinds: int) -> int:
    """Returns a set of kinds, for `is_in`."""
    return sum(1 << kind for kind in kinds)


CAN_OVERLAP = set_of(_EMPTY, FLOOR, OPEN_DOOR, _GOAL, _LAVA)
CAN_PICK_UP = set_of(KEY, BALL, BOX)
IS_OPAQUE = set_of(_WALL, CLOSED_DOOR, LOCKED_DOOR)
IS_DOOR = set_of(OPEN_DOOR, CLOSED_DOOR, LOCKED_DOOR)


def encode(cells: jax.Array) -> jax.Array:
    """Returns type, color, and state of each cell as minigrid encodes them: uint8[..., 3].

    Doors have state 0 if open, 1 if closed, and 2 if locked. Other objects have state 0.
    """
    # One loop over all channels is faster than three whose results are interleaved.
    cell = jnp.broadcast_to(cells.astype(jnp.uint8)[..., None], (*cells.shape, 3))
    channel = np.arange(3, dtype=np.uint8).reshape((1,) * cells.ndim + (3,))
    number = kind(cell)
    is_shut = number >= CLOSED_DOOR
    type_ = jnp.where(is_shut, np.uint8(OPEN_DOOR), number)
    state = jnp.where(is_shut, number - np.uint8(CLOSED_DOOR - 1), np.uint8(0))
    return jnp.where(channel == 0, type_, jnp.where(channel == 1, color(cell), state))


def color_named(name: str) -> int:
    """Returns the index of a color.

    Raises:
        ParameterError: there is no such color.
    """
    if name not in COLORS:
        raise ParameterError(f'got the color "{name}"; the colors are {", ".join(COLORS)}.')
    return COLORS.index(name)
