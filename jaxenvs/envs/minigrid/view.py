"""The agent's view: the square of cells in front of the agent, rotated so that it faces up."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.bits import spread
from jaxenvs.envs.minigrid import cells


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
    left = jnp.asarray(np.array([0, half, last, half], np.int32))[direction]
    above = jnp.asarray(np.array([half, 0, half, last], np.int32))[direction]
    square = jax.lax.dynamic_slice(wide, (y - above + last, x - left + last), (size, size))
    # Without the barrier, XLA on CPU computes the slice once per direction.
    square = jax.lax.optimization_barrier(square)
    turned = square[:, ::-1], square.T[::-1, ::-1], square[::-1], square.T
    return jax.lax.select_n(jnp.broadcast_to(direction, square.shape), *turned)


def visible(view: jax.Array) -> jax.Array:
    """Returns which cells of a view the agent sees: bool[size, size].

    This is minigrid's `process_vis`. From the agent's cell, sight spreads along rows and to the
    next row, up to walls and closed doors. minigrid goes through the cells one by one. Here, each
    row is a word of bits, and sight spreads through all its transparent cells by doubling.
    """
    size = view.shape[0]
    word: Any = np.uint8 if size <= 8 else np.uint32  # more small words fit into a register
    bits = np.arange(size, dtype=word)[:, None]
    is_clear = ~cells.is_in(cells.IS_OPAQUE, view)
    clear = jnp.sum(is_clear.astype(word) << bits, axis=0, dtype=word)
    clear = [jax.lax.optimization_barrier(clear[j]) for j in range(size)]
    everything, one = word((1 << size) - 1), word(1)
    not_last, not_first = everything >> one, everything & ~one
    rows: list[jax.Array] = []
    seen = jnp.asarray(1 << size // 2, word)
    for row in reversed(clear):
        right = spread(seen & row & not_last, row & not_last, jnp.left_shift, size)
        seen = seen | (right << one) & everything
        left = spread(seen & row & not_first, row & not_first, jnp.right_shift, size)
        rows.insert(0, seen | left >> one)
        seen = (right | right << one | left | left >> one) & everything
    # Without the barriers, XLA on CPU computes the chain of rows once for each row.
    rows = list(jax.lax.optimization_barrier(tuple(rows)))
    words = jax.lax.optimization_barrier(jnp.stack(rows))
    return (words[None] >> bits) & one == 1
