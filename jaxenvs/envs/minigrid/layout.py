"""Functions to generate levels: walls, random numbers, and objects in random places.

Grids are indexed by row and column, [y, x]; row 0 is the upper wall. Places are pairs (x, y). A
region is a mask of cells, bool[H, W].
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import prng
from jaxenvs.bits import nth_true, pack
from jaxenvs.envs.minigrid import cells

Place = tuple[Any, Any]


def draw(key: chex.PRNGKey, low: Any, high: Any) -> jax.Array:
    """Draws an integer from `low` to `high - 1`: int32[]."""
    return prng.randint(key, (), jnp.asarray(high - low, jnp.int32)) + low


def draw_color(key: chex.PRNGKey) -> jax.Array:
    """Draws one of the six colors: int32[]."""
    return draw(key, 0, len(cells.COLORS))


def draw_bool(key: chex.PRNGKey) -> jax.Array:
    """Draws true or false: bool[]."""
    return draw(key, 0, 2) == 0


def choose(key: chex.PRNGKey, allowed: Any) -> jax.Array:
    """Draws the index of a true element of bool[K]: int32[]. It is out of range if there is none.

    All true elements are equally likely, as after drawing any index until the element is true.
    """
    words, counts = pack(jnp.asarray(allowed))
    rank = prng.randint(key, (1,), jnp.maximum(counts[-1:], 1))
    return nth_true(words, counts, rank)[0]


def shuffle(key: chex.PRNGKey, n: int, k: int | None = None) -> list[jax.Array]:
    """Draws `k` different integers from 0 to `n - 1` in random order; all `n` by default."""
    allowed, found = np.ones(n, bool), []
    for each in jax.random.split(key, n if k is None else k):
        found.append(choose(each, allowed))
        allowed = allowed & (np.arange(n, dtype=np.int32) != found[-1])
    return found


def filled(width: int, height: int, cell: Any = cells.EMPTY, dtype: Any = np.uint8) -> jax.Array:
    """Returns a grid with the same object in each cell."""
    return jnp.full((height, width), cell, dtype)


def rectangle(grid: jax.Array, x: Any, y: Any, width: Any, height: Any) -> jax.Array:
    """Returns the region of a rectangle, given its upper left corner and its size."""
    rows, columns = np.indices(grid.shape, np.int32, sparse=True)
    return (rows >= y) & (rows < y + height) & (columns >= x) & (columns < x + width)


def outline(grid: jax.Array, x: Any, y: Any, width: Any, height: Any) -> jax.Array:
    """Returns the region of the cells at the edges of a rectangle."""
    inner = rectangle(grid, x + 1, y + 1, width - 2, height - 2)
    return rectangle(grid, x, y, width, height) & ~inner


def at(grid: jax.Array, place: Place) -> jax.Array:
    """Returns the region of one cell."""
    rows, columns = np.indices(grid.shape, np.int32, sparse=True)
    return (columns == place[0]) & (rows == place[1])


def fill(grid: jax.Array, region: Any, cell: Any) -> jax.Array:
    """Puts an object into each cell of a region."""
    return jnp.where(region, jnp.asarray(cell).astype(grid.dtype), grid)


def put(grid: jax.Array, place: Place, cell: Any) -> jax.Array:
    """Puts an object into one cell."""
    return fill(grid, at(grid, place), cell)


def walled(width: int, height: int, dtype: Any = np.uint8) -> jax.Array:
    """Returns an empty grid with walls around it."""
    grid = filled(width, height, dtype=dtype)
    return fill(grid, outline(grid, 0, 0, width, height), cells.WALL)


def empty(grid: jax.Array) -> jax.Array:
    """Returns the region of the cells without an object."""
    return cells.kind(grid) == cells.EMPTY


def random_place(key: chex.PRNGKey, allowed: jax.Array) -> Place:
    """Draws a cell of a region, all with the same probability."""
    index = choose(key, allowed.reshape(-1))
    return index % allowed.shape[1], index // allowed.shape[1]


def place(
    key: chex.PRNGKey, grid: jax.Array, cell: Any, region: Any = True
) -> tuple[jax.Array, Place]:
    """Puts an object into a random empty cell of a region.

    minigrid draws cells of a rectangle until one is empty and passes a test. The distribution is
    the same. Without any such cell, where minigrid gives up or tries forever, the grid remains as
    it is.

    Returns:
        The grid and the place of the object.
    """
    where = random_place(key, empty(grid) & region)
    return put(grid, where, cell), where
