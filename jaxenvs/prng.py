"""Random keys and draws of environments: JAX's threefry keys, in the form that is fastest here.

Inside a program on a CPU, a key may have the type of the generator with unrolled rounds, see
`_cpu.threefry`. Keys that enter or leave the program have JAX's standard type, and every random bit
is the same (tests/vector/test_prng.py compares each kind of draw). The numbers that JAX computes
from the bits are the same too, with one exception: `jax.random.gamma` with many keys differs in the
last few units, just as JAX's own result differs between many keys and one.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random as jex_random

from jaxenvs._cpu import threefry
from jaxenvs._cpu.barrier import behind_barrier
from jaxenvs._cpu.threefry import STANDARD, UNROLLED
from jaxenvs.errors import RandomKeyError, describe

T = TypeVar("T")

_RAW_KEYS = {2: STANDARD, 4: "rbg"}  # generators by the number of words
_OTHER_GENERATOR = 0x464F5247  # the domain for keys converted from other generators


def as_typed_key(key: Any) -> chex.PRNGKey:
    """Returns `key` as a typed threefry key, or as an array of them.

    Wraps raw keys: uint32[..., 2], or [..., 4] for `rbg`. Hashes keys of other generators into
    threefry keys: draws of `rbg` under `vmap` depend on the batch, so results would depend on the
    number of devices and the order of resets.

    Raises:
        RandomKeyError: `key` is neither a typed key nor a raw key.
    """
    if shape_of_keys(key) is None:
        raise RandomKeyError(
            f"expected a random key, got {describe(key)}.  Use jax.random.key(seed)."
        )
    if not _is_typed(key):
        words = jnp.asarray(key)
        key = jax.random.wrap_key_data(words, impl=_RAW_KEYS[words.shape[-1]])
    if str(jax.random.key_impl(key)) == STANDARD or is_unrolled(key):
        return key
    return _to_threefry(key)


def shape_of_keys(value: Any) -> tuple[int, ...] | None:
    """Returns the shape of an array of typed or raw keys, () for one key; None for other values."""
    if _is_typed(value):
        return value.shape
    shape = getattr(value, "shape", ())
    is_raw = getattr(value, "dtype", None) == jnp.uint32 and shape and shape[-1] in _RAW_KEYS
    return shape[:-1] if is_raw else None


def _is_typed(value: Any) -> bool:
    return isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _to_threefry(key: chex.PRNGKey) -> chex.PRNGKey:
    """Hashes a key of another generator into a threefry key."""
    if key.shape:
        return jax.vmap(_to_threefry)(key)
    words = jax.random.key_data(key).astype(jnp.uint32).reshape(-1)
    words = jnp.pad(words, (0, len(words) % 2)).reshape(-1, 2)
    first = jax.random.wrap_key_data(words[0], impl=STANDARD)
    for low in words[1:].reshape(-1):
        first = derive(first, _OTHER_GENERATOR, low)
    return first


def derive(key: chex.PRNGKey, domain: int, index: Any = 0) -> chex.PRNGKey:
    """Derives a key that `split` and `fold_in` of `key` cannot produce.

    `split` and `fold_in` hash the key with the counters (0, i). This function uses the counters
    (domain, index). Because the domain is not 0, no sequence of splits and folds of `key` yields
    the same key.

    Args:
        key: one typed threefry key.
        domain: a number from 1 to 2**32 - 1. A large number also avoids the counters that `split`
            uses without `jax_threefry_partitionable`.
        index: distinguishes the keys of one domain. Converted to uint32.
    """
    key, high = as_typed_key(key), np.uint32(domain)
    low, words = jnp.asarray(index).astype(jnp.uint32), jax.random.key_data(key)
    if is_unrolled(key):
        hashed = behind_barrier(lambda key, low: threefry.hashed(key, low, high), words, low)
        return jax.random.wrap_key_data(jnp.stack(hashed), impl=UNROLLED)
    hashed = jex_random.threefry_2x32(words, jnp.stack([jnp.uint32(high), low]))
    return jax.random.wrap_key_data(hashed, impl=STANDARD)


def as_fast_key(key: Any) -> chex.PRNGKey:
    """Returns the same key in the fastest type with the same bits, for use inside a program."""
    key = as_typed_key(key)
    if is_unrolled(key) or not threefry.should_unroll():
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=UNROLLED)


def call_with_fast_key(call: Callable[[chex.PRNGKey], T], key: Any) -> T:
    """Returns `call(key)`, with the key converted to the fastest type that `call` accepts.

    `jax.random.poisson` raises NotImplementedError for all generators except JAX's own.
    """
    fast_key = as_fast_key(key)
    if is_unrolled(fast_key):
        try:
            return call(fast_key)
        except NotImplementedError:
            fast_key = as_standard_keys(fast_key)
    return call(fast_key)


def random_digits(key: Any, shape: tuple[int, ...], num_bits: int) -> jax.Array:
    """Returns integers of `num_bits` random bits, as uint32[shape], several from each word."""
    per_word = 32 // num_bits
    size = math.prod(shape)
    words = jax.random.bits(as_fast_key(key), (-(-size // per_word), 1), jnp.uint32)
    shifts = np.arange(per_word, dtype=np.uint32) * np.uint32(num_bits)
    digits = (words >> shifts[None]) & np.uint32(2**num_bits - 1)
    return digits.reshape(-1)[:size].reshape(shape)


def randint(key: Any, shape: tuple[int, ...], n: Any) -> jax.Array:
    """Returns integers from 0 to `n - 1`, as int32[shape], from one random word each.

    `jax.random.randint` needs two words for the same precision: the probability of a value has a
    relative error of up to n / 2**32. The result is `word * n // 2**32`, in 32-bit arithmetic.

    Args:
        key: a key or a raw key.
        shape: the shape of the result.
        n: an integer array that broadcasts to `shape`, with values from 1 to 2**31 - 1.
    """
    return below(jax.random.bits(as_fast_key(key), shape, jnp.uint32), n)


def below(word: jax.Array, n: Any, *, is_small: bool = False) -> jax.Array:
    """Returns integers from 0 to `n - 1`, as int32, given random words, as `randint` does.

    `is_small` promises that `n` is less than 2**16, which saves half of the operations.
    """
    half, mask = np.uint32(16), np.uint32(0xFFFF)
    n = n.astype(np.uint32)
    # The upper half of a product of 64 bits, from the products of 16 bits each.
    upper, lower = word >> half, word & mask
    if is_small:
        return (upper * n + (lower * n >> half) >> half).astype(jnp.int32)
    middle = upper * (n & mask) + (lower * (n & mask) >> half)
    carry = lower * (n >> half) + (middle & mask)
    return (upper * (n >> half) + (middle >> half) + (carry >> half)).astype(jnp.int32)


def as_standard_keys(tree: chex.ArrayTree) -> chex.ArrayTree:
    """Returns `tree` with every key of the internal type converted to JAX's standard type."""

    def convert(leaf: Any) -> Any:
        if not (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)):
            return leaf
        if not is_unrolled(leaf):
            return leaf
        return jax.random.wrap_key_data(jax.random.key_data(leaf), impl=STANDARD)

    return jax.tree.map(convert, tree)


def is_unrolled(key: chex.PRNGKey) -> bool:
    """Returns whether `key` has the internal type, with unrolled rounds."""
    return jax.random.key_impl(key) == UNROLLED
