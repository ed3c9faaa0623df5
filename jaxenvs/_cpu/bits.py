"""Boolean arrays packed into words, to count and find their true elements fast."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

_WORD = 32  # flags packed into one integer


def pack(mask: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Packs bool[N] into uint32[ceil(N / 32)] and counts the true flags.

    A cumulative sum over words takes a fifteenth of the time of one over flags (N = 16,384, CPU).

    Returns:
        The words, and int32[ceil(N / 32)]: the number of true flags up to and including each word.
    """
    words = _words(mask)
    return words, jnp.cumsum(popcount(words), dtype=jnp.int32)


def _words(mask: jax.Array) -> jax.Array:
    padding = -mask.shape[0] % _WORD
    bits = jnp.pad(mask, (0, padding)).reshape(-1, _WORD).astype(jnp.uint32)
    lanes = np.arange(_WORD, dtype=np.uint32)[None]
    return jnp.sum(bits << lanes, axis=-1, dtype=jnp.uint32)


def nth_true(words: jax.Array, counts: jax.Array, ranks: jax.Array) -> jax.Array:
    """Returns the indices of the true flags with the given ranks, counted from 0.

    Args:
        words: from `pack`.
        counts: from `pack`.
        ranks: int32[n].

    Returns:
        int32[n]. Where fewer flags are true, the index is at least 32 * len(words), hence out of
        range.
    """
    # Find the group of words, then the word, then the bit. Two comparisons with about
    # sqrt(N / 32) numbers each can be vectorized; a binary search would be a loop.
    group = max(1, round(len(counts) ** 0.5))
    table = jnp.pad(counts, (0, -len(counts) % group), mode="edge").reshape(-1, group)
    row = jnp.sum(table[:, -1][None] <= ranks[:, None], axis=-1, dtype=jnp.int32)
    found = row < len(table)
    column = jnp.sum(
        table[jnp.minimum(row, len(table) - 1)] <= ranks[:, None], axis=-1, dtype=jnp.int32
    )
    index = jnp.where(found, row * group + column, len(words))
    word = words[jnp.minimum(index, len(words) - 1)]
    before = counts[jnp.minimum(index, len(words) - 1)] - popcount(word)
    return index * _WORD + nth_bit(word, ranks - before)


def choose(mask: jax.Array, draw: Callable[[jax.Array], jax.Array]) -> jax.Array:
    """Returns the index of a true flag of bool[N]: int32[], or 0 if none is true.

    `draw(n)` returns its rank, given the number of true flags, or 1 if none is true. Meant for
    short masks: XLA compiles it to a few kernels, without a loop.
    """
    words = _words(mask)
    each = [words[i] for i in range(len(words))]
    before, start, word = jnp.int32(0), jnp.int32(0), each[0]
    counts = [*itertools.accumulate(map(popcount, each))]
    rank = draw(jnp.maximum(counts[-1], 1))
    for i, count in enumerate(counts[:-1], start=1):
        is_later = rank >= count
        before, start, word = (
            jnp.where(is_later, new, old)
            for new, old in ((count, before), (np.int32(i * _WORD), start), (each[i], word))
        )
    index = jnp.where(counts[-1] > 0, start + nth_bit(word, rank - before), 0)
    # Without the barrier, XLA computes all this at each use.
    return jax.lax.optimization_barrier(index)


def nth_bit(word: jax.Array, rank: jax.Array) -> jax.Array:
    """Returns the position of the set bit of `word` with this rank, by bisection."""
    position = jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):
        low = word & np.uint32((1 << width) - 1)
        in_low = popcount(low)
        go_up = rank >= in_low
        rank = jnp.where(go_up, rank - in_low, rank)
        position = jnp.where(go_up, position + width, position)
        word = jnp.where(go_up, word >> np.uint32(width), low)
    return position


def popcount(words: jax.Array) -> jax.Array:
    """Returns the number of set bits of each word."""
    return jax.lax.population_count(words).astype(jnp.int32)


def spread(
    start: jax.Array, through: jax.Array, shift: Callable[..., jax.Array], size: int
) -> jax.Array:
    """Returns the elements that are reached from `start` through others by shifts, by doubling.

    Args:
        start: the first elements, a subset of `through`.
        through: the elements to pass through.
        shift: `shift(elements, distance)` moves elements; those beyond the end are lost.
        size: the number of elements in the direction of the shift.
    """
    distance = 1
    while distance < size:
        by = np.array(distance, start.dtype)
        start = start | through & shift(start, by)
        through = through & shift(through, by)
        distance *= 2
    return start
