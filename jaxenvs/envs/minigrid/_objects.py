"""Random objects in a room, for the levels `Fetch`, `GoToObject`, and `PutNear`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.layout import Dice


def draw_objects(
    dice: Dice, grid: jax.Array, number: int, kinds: tuple[int, ...], *, unique: bool, gap: int = 0
) -> tuple[jax.Array, Any, jax.Array, jax.Array]:
    """Puts objects of random kinds and colors into random empty cells.

    Args:
        dice: the source of random draws.
        grid: the grid.
        number: of objects.
        kinds: of objects to draw from.
        unique: whether all objects differ in kind or color.
        gap: the least number of cells between two objects, in rows or in columns.

    Returns:
        The grid, and the objects, their columns, and their rows: int32[number].
    """
    unused = np.ones(len(kinds) * len(cells.COLORS), bool)
    rows, columns = np.indices(grid.shape, np.int32, sparse=True)
    region, found = jnp.ones(grid.shape, bool), []
    for _ in range(number):
        pair = dice.choose(unused)
        if unique:
            unused = unused & (np.arange(len(unused), dtype=np.int32) != pair)
        kind = jnp.asarray(np.array(kinds, np.int32))[pair // len(cells.COLORS)]
        cell = cells.make(kind, pair % len(cells.COLORS))
        grid, (x, y) = dice.put(grid, cell, region)
        region = region & ((abs(columns - x) > gap) | (abs(rows - y) > gap))
        found.append((cell, x, y))
    objects, xs, ys = (jnp.stack(entries) for entries in zip(*found, strict=True))
    return grid, objects, xs, ys
