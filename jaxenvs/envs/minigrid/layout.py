"""Functions that make levels: walls, random numbers, and objects in random places.

Grids are indexed by row and column, [y, x]; row 0 is the upper wall. Places are pairs (x, y). A
region is a mask of cells, bool[H, W].
"""

from functools import partial
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops, prng
from jaxenvs._cpu import bits
from jaxenvs.envs.minigrid import cells

Place = tuple[Any, Any]


class RandomStream:
    """Random numbers for one level, from a key or from random words.

    A key is expanded into words in chunks; a draw uses one word. Iterations of a `jax.lax` loop
    need streams of their own: scan over `words` or `next_words`, and make a stream of each row.
    """

    def __init__(self, source: chex.PRNGKey | jax.Array) -> None:
        is_key = jnp.issubdtype(source.dtype, jax.dtypes.prng_key)
        self._key = prng.as_fast_key(source) if is_key else None
        self._words = None if is_key else source
        self._chunk = self._used = 0

    def words(self, shape: tuple[int, ...]) -> jax.Array:
        """Draws random words: uint32[shape]."""
        if self._key is None:
            raise RuntimeError("a stream of words cannot draw more words")
        self._chunk += 1
        return jax.random.bits(jax.random.fold_in(self._key, self._chunk), shape, jnp.uint32)

    def key(self) -> chex.PRNGKey:
        """Draws a key."""
        return prng.as_fast_key(self.words((2,)))

    def next_words(self, number: int) -> jax.Array:
        """Returns the words of the next draws, for streams in a loop: uint32[number]."""
        parts = []
        while number:
            if self._words is None or self._used == len(self._words):
                self._words, self._used = self.words((32,)), 0
            parts.append(self._words[self._used : self._used + number])
            self._used += len(parts[-1])
            number -= len(parts[-1])
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def _word(self) -> jax.Array:
        return self.next_words(1)[0]

    def integer(self, low: Any, high: Any) -> jax.Array:
        """Draws an integer from `low` to `high - 1`: int32[]."""
        number = high - low
        is_small = isinstance(number, int | np.integer) and number < 2**16
        return prng.below(self._word(), jnp.asarray(number), is_small=is_small) + low  # pyright: ignore[reportArgumentType]

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
        draw = partial(prng.below, self._word(), is_small=len(allowed) < 2**16)
        return bits.choose(jnp.asarray(allowed), draw)

    def shuffle(self, n: int, k: int) -> jax.Array:
        """Draws `k` different integers from 0 to `n - 1`, in random order: int32[k]."""

        def draw(allowed: jax.Array, words: jax.Array) -> tuple[jax.Array, jax.Array]:
            found = RandomStream(words).choose(allowed)
            return allowed & (np.arange(n, dtype=np.int32) != found), found

        return loops.scan(draw, jnp.ones(n, bool), self.next_words(k)[:, None])[1]

    def cell(self, region: jax.Array) -> Place:
        """Draws a cell of a region uniformly; returns (0, 0) if the region is empty."""
        index = self.choose(region.reshape(-1))
        row, column = divide(index, region.shape[1], limit=region.size)
        return column, row

    def put(self, grid: jax.Array, cell: Any, region: Any = True) -> tuple[jax.Array, Place]:
        """Puts an object into a random empty cell of a region; returns the grid and the cell.

        minigrid draws cells of a rectangle until one is empty and passes a test. The distribution
        is the same. There must be such a cell.
        """
        place = self.cell(empty(grid) & region)
        return put(grid, place, cell), place


def lookup(table: Any, index: jax.Array) -> jax.Array:
    """Returns the entries of a table at indices that are in range.

    A table of small integers is packed into a word for each column, so that XLA does not need a
    kernel for each lookup.
    """
    if isinstance(table, np.ndarray):
        least = int(table.min())
        width = max(1, (int(table.max()) - least).bit_length())
        if width * len(table) <= 32:
            lanes = np.arange(len(table)) * width
            words = ((table.astype(np.int64) - least).T << lanes).sum(-1).astype(np.uint32)
            words = words.reshape((1,) * index.ndim + table.shape[1:])
            shift = index.astype(jnp.uint32) * np.uint32(width)
            found = words >> shift.reshape(index.shape + (1,) * (table.ndim - 1))
            found = (found & np.uint32((1 << width) - 1)).astype(jnp.int32) + least
            return found.astype(table.dtype)
    table = jnp.asarray(table)
    return table.at[index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def divide(number: jax.Array, by: int, *, limit: int) -> tuple[jax.Array, jax.Array]:
    """Returns quotient and remainder of integers from 0 to `limit - 1`."""
    if limit * by <= 2**20 and limit <= 4096 * by:  # XLA does not fuse divisions
        product = number.astype(jnp.uint32) * np.uint32(-(-(2**20) // by))
        quotient = (product >> np.uint32(20)).astype(jnp.int32)
    else:
        quotient = jax.lax.div(number, jnp.full_like(number, by))
    return quotient, number - quotient * by


def filled(width: int, height: int, cell: Any = cells.EMPTY) -> jax.Array:
    """Returns a grid with the same object in each cell, uint32[height, width].

    `MiniGrid.make_state` converts it to the type of the level's cells.
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
            wider = jax.lax.optimization_barrier(bits.spread(wider, through, shift, size))
        return wider, (wider != reached).any()

    reached, _ = loops.while_loop(lambda carry: carry[1], grow, (reached, jnp.bool_(True)))
    return (reached[:, None] >> lanes) & 1 == 1


def widen(region: jax.Array) -> jax.Array:
    """Returns the region with the cells next to it."""
    wide = jnp.pad(region, 1)
    beside = wide[1:-1, 2:] | wide[1:-1, :-2]
    return region | beside | wide[2:, 1:-1] | wide[:-2, 1:-1]
