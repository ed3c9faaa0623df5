"""Functions to generate levels: walls, random numbers, and objects in random places.

Grids are indexed by row and column, [y, x]; row 0 is the upper wall. Places are pairs (x, y). A
region is a mask of cells, bool[H, W].
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, prng
from jaxenvs.bits import nth_true, pack, spread
from jaxenvs.envs.minigrid import cells

Place = tuple[Any, Any]


class Dice:
    """Random draws of one episode's level, from a key or from random words.

    A key is expanded into words in chunks; a draw uses one word. Draws must not be shared between
    iterations of `jax.lax` loops: scan over `dice.words((n, k))` and make dice of each row.
    """

    def __init__(self, source: chex.PRNGKey | jax.Array) -> None:
        is_key = jnp.issubdtype(source.dtype, jax.dtypes.prng_key)
        self._key = prng.as_fast_key(source) if is_key else None
        self._words = None if is_key else source
        self._chunk = self._used = 0

    def words(self, shape: tuple[int, ...]) -> jax.Array:
        """Draws random words: uint32[shape]."""
        if self._key is None:
            raise RuntimeError("dice of words cannot draw more words")
        self._chunk += 1
        return jax.random.bits(jax.random.fold_in(self._key, self._chunk), shape, jnp.uint32)

    def key(self) -> chex.PRNGKey:
        """Draws a key."""
        return prng.as_fast_key(self.words((2,)))

    def _word(self) -> jax.Array:
        if self._words is None or self._used == len(self._words):
            self._words, self._used = self.words((32,)), 0
        self._used += 1
        return self._words[self._used - 1]

    def integer(self, low: Any, high: Any) -> jax.Array:
        """Draws an integer from `low` to `high - 1`: int32[]."""
        return prng.below(self._word(), jnp.asarray(high - low)) + low

    def boolean(self) -> jax.Array:
        """Draws true or false: bool[]."""
        return self._word() >> 31 == 0

    def uniform(self) -> jax.Array:
        """Draws a number from [0, 1): float32[]."""
        return (self._word() >> 8).astype(jnp.float32) * np.float32(2**-24)

    def color(self) -> jax.Array:
        """Draws one of the six colors: int32[]."""
        return self.integer(0, len(cells.COLORS))

    def choose(self, allowed: Any) -> jax.Array:
        """Draws the index of a true element of bool[K]: int32[], 0 if none is true.

        All true elements are equally likely, as after drawing any index until the element is true.
        """
        words, counts = pack(jnp.asarray(allowed))
        rank = self.integer(0, jnp.maximum(counts[-1], 1))
        return jnp.where(counts[-1] > 0, nth_true(words, counts, rank[None])[0], 0)

    def shuffle(self, n: int, k: int) -> list[jax.Array]:
        """Draws `k` different integers from 0 to `n - 1`, in random order."""
        allowed, found = np.ones(n, bool), []
        for _ in range(k):
            found.append(self.choose(allowed))
            allowed = allowed & (np.arange(n, dtype=np.int32) != found[-1])
        return found

    def cell(self, region: jax.Array) -> Place:
        """Draws a cell of a region, all with the same probability."""
        index = self.choose(region.reshape(-1))
        return index % region.shape[1], index // region.shape[1]

    def put(self, grid: jax.Array, cell: Any, region: Any = True) -> tuple[jax.Array, Place]:
        """Puts an object into a random empty cell of a region; returns the grid and the cell.

        minigrid draws cells of a rectangle until one is empty and passes a test. The distribution
        is the same. There must be such a cell.
        """
        place = self.cell(empty(grid) & region)
        return put(grid, place, cell), place


def filled(width: int, height: int, cell: Any = cells.EMPTY) -> jax.Array:
    """Returns a grid with the same object in each cell, uint32[height, width].

    `MiniGrid.start` converts it to the type of the level's cells.
    """
    return jnp.full((height, width), cell, np.uint32)


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


def walled(width: int, height: int) -> jax.Array:
    """Returns an empty grid with walls around it, as `filled` does."""
    grid = filled(width, height)
    return fill(grid, outline(grid, 0, 0, width, height), cells.WALL)


def empty(grid: jax.Array) -> jax.Array:
    """Returns the region of the cells without an object."""
    return cells.kind(grid) == cells.EMPTY


def connected(start: jax.Array, passable: jax.Array) -> jax.Array:
    """Returns the region that is connected with `start` through passable cells.

    The grid has at most 32 columns.
    """
    height, width = passable.shape
    lanes = np.arange(width, dtype=np.uint32)[None]
    through, reached = (
        jnp.sum(region.astype(jnp.uint32) << lanes, axis=1, dtype=jnp.uint32)
        for region in (passable, start & passable)
    )

    def down(rows: jax.Array, distance: np.ndarray) -> jax.Array:
        return jnp.pad(rows, (int(distance), 0))[:height]

    def up(rows: jax.Array, distance: np.ndarray) -> jax.Array:
        return jnp.pad(rows, (0, int(distance)))[int(distance) :]

    def grow(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        reached, _ = carry
        wider = reached
        for shift, size in (
            *((jnp.left_shift, width), (jnp.right_shift, width)),
            *((down, height), (up, height)),
        ):
            wider = jax.lax.optimization_barrier(spread(wider, through, shift, size))
        return wider, (wider != reached).any()

    reached, _ = loops.while_loop(lambda carry: carry[1], grow, (reached, jnp.bool_(True)))
    return (reached[:, None] >> lanes) & 1 == 1


def widen(region: jax.Array) -> jax.Array:
    """Returns the region with the cells next to it."""
    wide = jnp.pad(region, 1)
    beside = wide[1:-1, 2:] | wide[1:-1, :-2]
    return region | beside | wide[2:, 1:-1] | wide[:-2, 1:-1]
