"""Uniform integers from random words, without a division.

A word times `count` is a number of twice the width whose high half lies in [0, count)
(D. Lemire, Fast Random Integer Generation in an Interval, 2019). The low half is what
randomness is left, so one word serves several small counts (N. Brackett-Rozinsky and D. Lemire,
Batched Ranged Random Integer Generation, 2024).
"""

import math
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxenvs import prng


def uniform_integers(
    key: chex.PRNGKey,
    shape: tuple[int, ...],
    count: Any,
    *,
    largest: int = 1 << 64,
    word: DTypeLike = np.uint32,
) -> jax.Array:
    """Draws words[shape] uniformly from [0, count), with a single call of the generator.

    Powers of two are exact. Otherwise the probability of a value, or of any combination of
    values that come from one word, is off by less than one part in 2**16: counts above 2**16
    take two words each (of 64-bit words, counts above 2**48).

    Args:
        key: the key of the whole batch.
        shape: how many to draw.
        count: a Python int, or words that broadcast to `shape` (of as many axes, or none). The
            word 0 stands for the number of all words.
        largest: an upper bound of `count`, where that is traced.
        word: uint32 or uint64.
    """
    bits = 8 * np.dtype(word).itemsize
    if isinstance(count, np.ndarray) and count.size:
        counts = np.unique(count - np.ones_like(count))  # 0 becomes the largest word
        largest = int(counts[-1]) + 1
        count = largest if len(counts) == 1 else count
    if isinstance(count, int):
        lanes = _lanes(count, bits)
        if lanes:
            return _several_a_word(key, shape, count, lanes, word)
        count, largest = np.asarray(count, word), count
    if largest <= 1 << bits - 16:
        return _high_half(jax.random.bits(prng.fast(key), shape, word), count, largest)
    words = jax.random.bits(prng.fast(key), (2, *shape), word)
    carry = _high_half(words[0], count, largest)
    low = words[1] * count + carry
    value = _high_half(words[1], count, largest) + (low < carry).astype(word)
    return jnp.where(count == 0, words[1], value)


def _lanes(count: int, bits: int) -> int:
    """How many draws share a word, a power of two for speed; 0 if a word is too little for one."""
    if count == 1:
        return bits
    if count & (count - 1) == 0:
        fitting = bits // (count.bit_length() - 1)
    else:
        fitting = int((bits - 16) / math.log2(count))
    return 1 << fitting.bit_length() - 1 if fitting else 0


def _several_a_word(
    key: chex.PRNGKey, shape: tuple[int, ...], count: int, lanes: int, word: DTypeLike
) -> jax.Array:
    size = math.prod(shape)
    if count == 1 or size == 0:
        return jnp.zeros(shape, word)
    lanes = min(lanes, size)
    words = jax.random.bits(prng.fast(key), (-(-size // lanes), 1), word)
    bits, exponents = 8 * words.dtype.itemsize, range(lanes)
    if count & (count - 1) == 0:
        width = count.bit_length() - 1
        shifts = np.array([[width * i for i in exponents]], word)
        values = words >> shifts
        values = values if width == bits else values & np.asarray(count - 1, word)
    else:
        powers = np.array([[pow(count, i, 1 << bits) for i in exponents]], word)
        values = _high_half(words * powers, np.asarray(count, word), count)
    return values.reshape(-1)[:size].reshape(shape)


def _high_half(words: jax.Array, count: Any, largest: int) -> jax.Array:
    """floor(words * count / 2**bits), from products of half words."""
    bits = 8 * words.dtype.itemsize
    half = np.asarray(bits // 2, words.dtype)
    mask = np.asarray((1 << bits // 2) - 1, words.dtype)
    low, high = words & mask, words >> half
    if largest <= 1 << bits // 2:
        # high * 2**half cannot overflow: the values of high end at 2**half - 1.
        return (high * count + ((low * count) >> half)) >> half
    count_low, count_high = count & mask, count >> half
    middle = high * count_low + ((low * count_low) >> half)
    other = low * count_high + (middle & mask)
    return high * count_high + (middle >> half) + (other >> half)
