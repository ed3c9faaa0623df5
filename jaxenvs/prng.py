"""JAX's threefry generator with unrolled rounds: the same bits, faster on CPU.

On CPU, JAX lowers every threefry draw to a rolled loop that XLA cannot fuse with other operations.
The same generator with its 20 rounds unrolled is up to ten times faster, and random draws dominate
the cost of small environments. The unrolled generator is registered as a separate key type that is
only used inside a program. Keys that enter or leave the program have JAX's standard type, and every
random bit is the same (tests/vector/test_prng.py compares each kind of draw). The numbers that JAX
computes from the bits are the same too, with one exception: `jax.random.gamma` with many keys
differs in the last few units, just as JAX's own result differs between many keys and one.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, Parallel Random Numbers: As Easy
as 1, 2, 3, 2011 (Threefry-2x32, 20 rounds). Counters and word order are those of `jax.random` with
`jax_threefry_partitionable`.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random as jex_random

from jaxenvs.barrier import behind_barrier
from jaxenvs.errors import RandomKeyError, describe

T = TypeVar("T")

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY, _ZERO = np.uint32(0x1BD11BDA), np.uint32(0)
_STANDARD = "threefry2x32"
_RAW_KEYS = {2: _STANDARD, 4: "rbg"}  # generators by the number of words
_OTHER_GENERATOR = 0x464F5247  # the domain for keys converted from other generators


def _threefry(key: jax.Array, low: jax.Array, high: Any = _ZERO) -> tuple[jax.Array, jax.Array]:
    """Applies Threefry-2x32 to counters (high, low). Returns two uint32 arrays shaped like low."""
    schedule = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    x0, x1 = jnp.full(low.shape, schedule[0] + high), low + schedule[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1
            x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
            x1 = x0 ^ x1
        x0 = x0 + schedule[(group + 1) % 3]
        x1 = x1 + schedule[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def _random_word(key: jax.Array, low: jax.Array) -> jax.Array:
    """Returns 32 random bits for each counter, as uint32."""
    x0, x1 = _threefry(key, low)
    return x0 ^ x1


def _counters(shape: tuple[int, ...]) -> jax.Array:
    return jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)


def _seed(seed: jax.Array) -> jax.Array:
    return jax.random.key_data(jax.random.key(seed, impl=_STANDARD))


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.stack(behind_barrier(_threefry, key, _counters(shape)), axis=-1)


def _fold_in(key: jax.Array, data: Any) -> jax.Array:
    return jnp.stack(behind_barrier(_threefry, key, jnp.asarray(data, jnp.uint32)))


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    counters = _counters(shape)
    if bit_width == 64:
        high, low = behind_barrier(_threefry, key, counters)
        return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
    # Put one array behind the barrier. With two, XLA computes all rounds twice.
    return behind_barrier(_random_word, key, counters).astype(f"uint{bit_width}")


_UNROLLED = jex_random.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="jaxenvs_unrolled_threefry2x32",
    tag="jaxenvs",
)


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
    if str(jax.random.key_impl(key)) == _STANDARD or is_unrolled(key):
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
    first = jax.random.wrap_key_data(words[0], impl=_STANDARD)
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
        hashed = behind_barrier(lambda key, low: _threefry(key, low, high), words, low)
        return jax.random.wrap_key_data(jnp.stack(hashed), impl=_UNROLLED)
    hashed = jex_random.threefry_2x32(words, jnp.stack([jnp.uint32(high), low]))
    return jax.random.wrap_key_data(hashed, impl=_STANDARD)


def as_fast_key(key: Any) -> chex.PRNGKey:
    """Returns the same key in the fastest type with the same bits, for use inside a program."""
    key = as_typed_key(key)
    if is_unrolled(key) or not _should_unroll():
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_UNROLLED)


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
        return jax.random.wrap_key_data(jax.random.key_data(leaf), impl=_STANDARD)

    return jax.tree.map(convert, tree)


def is_unrolled(key: chex.PRNGKey) -> bool:
    """Returns whether `key` has the internal type, with unrolled rounds."""
    return jax.random.key_impl(key) == _UNROLLED


def _should_unroll() -> bool:
    return (
        bool(jax.config.jax_threefry_partitionable)  # pyright: ignore[reportAttributeAccessIssue]
        and jax.default_backend() == "cpu"
    )
