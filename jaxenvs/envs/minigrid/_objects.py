"""Random objects in a room, for the levels `Fetch`, `GoToObject`, and `PutNear`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import RandomStream, divide, lookup


def draw_objects(
    rng: RandomStream,
    grid: jax.Array,
    number: int,
    kinds: tuple[int, ...],
    *,
    unique: bool,
    gap: int = 0,
) -> tuple[jax.Array, Any, jax.Array, jax.Array]:
    """Puts objects of random kinds and colors into random empty cells.

    Args:
        rng: the source of random numbers.
        grid: the grid.
        number: of objects.
        kinds: of objects to draw from.
        unique: whether all objects differ in kind or color.
        gap: the least number of cells between two objects, in rows or in columns.

    Returns:
        The grid, and the objects, their columns, and their rows: int32[number].
    """
    unused = jnp.ones(len(kinds) * len(cells.COLORS), bool)
    rows, columns = np.indices(grid.shape, np.int32, sparse=True)

    def add_next(carry: Any, words: jax.Array) -> tuple[Any, Any]:
        (grid, region, unused), rng = carry, RandomStream(words)
        pair = rng.choose(unused)
        if unique:
            unused = unused & (np.arange(len(unused), dtype=np.int32) != pair)
        kind, color = divide(pair, len(cells.COLORS), limit=unused.size)
        cell = cells.make(lookup(np.array(kinds, np.int32), kind), color)
        grid, (x, y) = rng.put(grid, cell, region)
        region = region & ((abs(columns - x) > gap) | (abs(rows - y) > gap))
        return (grid, region, unused), (cell, x, y)

    carry = grid, jnp.ones(grid.shape, bool), unused
    words = rng.next_words(2 * number).reshape(number, 2)
    (grid, *_), (objects, xs, ys) = loops.scan(add_next, carry, words)
    return grid, objects, xs, ys
