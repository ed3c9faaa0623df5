"""Boards and numbers of rows in machine words.

A few operations on words act on all columns of a row, or on all rows, and XLA vectorizes them over
instances. So they cost next to nothing, unlike loops over the cells of a board or lists of objects.

- A board says in which cells there is an object. It has a word for each row, uint32[rows], and in
  it bit c for column c. The bits of two boards are combined by `|`, `&`, and `^`.
- Lanes are rows 1 to 8, and have a number from 0 to 15 each. A single word, uint32[], holds all
  eight, four bits each, row 1 in the lowest. Sums and differences of such words are those of each
  lane, and `flags * n` is n in the lanes of `flags`, which are 0 or 1.
"""

from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

SIZE = 10  # rows and columns of a board
ROWS = np.arange(SIZE, dtype=np.int32)
ROW = np.uint32(2**SIZE - 1)  # a row full of objects
LANES = np.uint32(0x11111111)  # 1 in each lane


def once(values: Any) -> Any:
    """Returns `values`. A barrier, because XLA on CPU would compute them again at every use."""
    return jax.lax.optimization_barrier(values)


# Boards.


def bit(column: chex.Numeric) -> jax.Array:
    """Returns a row with an object in one column, or 0 for a column that is no bit of a word."""
    return jnp.uint32(1) << jnp.asarray(column, jnp.uint32)


def at(row: chex.Numeric, column: chex.Numeric, rows: np.ndarray = ROWS) -> jax.Array:
    """Returns the board with an object in one cell, or none if the row is not among `rows`."""
    return jnp.where(row == rows, bit(column), 0)


def sideward(board: jax.Array, right: jax.Array) -> jax.Array:
    """Moves a board by one column to the right, or to the left. What leaves it is gone."""
    return jnp.where(right, board << 1 & ROW, board >> 1)


def count(board: jax.Array) -> jax.Array:
    """Returns the number of objects on a board, uint32[]."""
    return jax.lax.population_count(board).sum(dtype=jnp.uint32)


def show(boards: Sequence[jax.Array], dtype: str) -> jax.Array:
    """Returns dtype[10, 10, len(boards)], 1 where a board, uint32[10], has an object."""
    column, channel = np.divmod(np.arange(SIZE * len(boards)), len(boards))
    shown = jnp.zeros((SIZE, len(column)), jnp.uint32)
    # Three boards fit into a word. A mask picks the bit of each cell and channel.
    for first in range(0, len(boards), 3):
        words = jnp.zeros(SIZE, jnp.uint32)
        for i, board in enumerate(boards[first : first + 3]):
            words |= board << SIZE * i
        masks = np.where(channel // 3 * 3 == first, 1 << column + SIZE * (channel % 3), 0)
        shown |= once(words)[:, None] & masks.astype(np.uint32)[None]
    # With the barrier, XLA on CPU loops over whole rows, which it can vectorize.
    return once((shown != 0).astype(dtype)).reshape(SIZE, SIZE, len(boards))


# Lanes.


def is_nonzero(numbers: jax.Array) -> jax.Array:
    """Returns 1 in lanes whose number is not 0, and 0 in the others."""
    bits = numbers | numbers >> 2
    return (bits | bits >> 1) & LANES


def equals(numbers: jax.Array, number: chex.Numeric) -> jax.Array:
    """Returns 1 in lanes with this number, and 0 in the others."""
    return LANES ^ is_nonzero(numbers ^ LANES * number)


def clear(numbers: jax.Array, flags: jax.Array) -> jax.Array:
    """Sets the numbers of lanes with a flag to 0."""
    return numbers & ~(flags * 15)


def lane(row: chex.Numeric) -> jax.Array:
    """Returns 1 in the lane of a row, which is from 1 to 8."""
    return jnp.uint32(1) << 4 * (jnp.asarray(row, jnp.uint32) - 1)


def number_at(numbers: jax.Array, row: chex.Numeric) -> jax.Array:
    """Returns the number in the lane of a row, which is from 1 to 9. It is 0 for row 9."""
    return numbers >> 4 * (jnp.asarray(row, jnp.uint32) - 1) & 15


def unpack(numbers: jax.Array) -> jax.Array:
    """Returns the number of each row of the board, uint32[10], 0 for rows 0 and 9."""
    shifts = np.clip(4 * (ROWS - 1), 0, 28).astype(np.uint32)
    return numbers >> shifts & np.array([0, *[15] * 8, 0], np.uint32)
