"""The agent's view: the square of cells in front of the agent, rotated so that it faces up."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs._cpu.bits import spread
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import lookup


def in_front(
    grid: jax.Array, x: jax.Array, y: jax.Array, direction: jax.Array, size: int
) -> jax.Array:
    """Returns the cells of the agent's view: [size, size], indexed by column and row.

    The agent is in the middle of the last row, and looks toward the first one. Cells beyond the
    grid are walls.
    """
    half, last = size // 2, size - 1
    wall = np.array(cells.WALL, grid.dtype)
    # XLA reads only the cells that the slice needs; it does not store the larger grid.
    wide = jax.lax.pad(grid, wall, ((last, last, 0), (last, last, 0)))
    left = lookup(np.array([0, half, last, half], np.int32), direction)
    above = lookup(np.array([half, 0, half, last], np.int32), direction)
    square = jax.lax.dynamic_slice(wide, (y - above + last, x - left + last), (size, size))
    # Without the barrier, XLA on CPU computes the slice once per direction.
    square = jax.lax.optimization_barrier(square)
    turned = square[:, ::-1], square.T[::-1, ::-1], square[::-1], square.T
    return jax.lax.select_n(jnp.broadcast_to(direction, square.shape), *turned)


def visible(view: jax.Array) -> jax.Array:
    """Returns which cells of a view the agent sees: bool[size, size].

    This is minigrid's `process_vis`. From the agent's cell, sight spreads along rows and to the
    next row, up to walls and closed doors. minigrid goes through the cells one by one. Here, each
    row is some bits of a word, and sight spreads through all its transparent cells by doubling.
    """
    size = view.shape[0]
    per_word = 32 // size  # rows
    column, above = np.arange(size), np.arange(size)[::-1]  # rows above the agent's
    shift = (above % per_word * size).astype(np.uint32)
    is_clear = ~cells.is_in(cells.IS_OPAQUE, view)
    everything, one = np.uint32((1 << size) - 1), np.uint32(1)
    beside = jnp.uint32(1 << size // 2)  # cells of a row that are seen from the row below
    rows = jnp.zeros(size, jnp.uint32)
    for first in range(0, size, per_word):
        here = (above >= first) & (above < first + per_word)
        bit = one << np.add.outer(column.astype(np.uint32), shift)
        clear = jnp.sum(jnp.where(here[None] & is_clear, bit, 0), dtype=jnp.uint32)
        word, below = jnp.uint32(0), beside
        for by in range(0, size * min(per_word, size - first), size):
            row = clear >> np.uint32(by) & everything
            through = beside & row
            right = spread(through, row, jnp.left_shift, size)
            through = right | spread(through, row, jnp.right_shift, size)
            beside = (through | through << one | through >> one) & everything
            word |= beside << np.uint32(by)
        # A row is seen from the one below or from itself. Without the barrier, XLA computes the
        # chain of rows once for each later one.
        word, below = jax.lax.optimization_barrier((word, below))
        beside = word >> np.uint32(by)  # pyright: ignore[reportPossiblyUnboundVariable]
        rows = jnp.where(here, (word | word << np.uint32(size) | below) >> shift, rows)
    small: Any = np.uint8 if size <= 8 else np.uint32  # more small words fit into a register
    rows = jax.lax.optimization_barrier((rows & everything).astype(small))
    return (rows[None] >> column.astype(small)[:, None]) & small(1) == 1
