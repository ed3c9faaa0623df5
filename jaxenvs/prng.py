"""JAX's threefry generator, unrolled where that is faster: the same bits in less time.

On CPU, JAX lowers every threefry draw to a rolled loop that other code cannot fuse with. With its
20 rounds unrolled, the same generator is up to ten times faster there, which decides the speed of
small environments. It is registered as a separate key type and used only inside programs: keys
that enter and leave have JAX's type, and all random bits are the same (tests/vector/test_prng.py
compares each kind of draw). The values that JAX computes from the bits are the same too, except for
`jax.random.gamma` of many keys: it differs in the last few units, as JAX's own does between many
keys and one.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, Parallel Random Numbers: As Easy
as 1, 2, 3, 2011 (Threefry-2x32, 20 rounds); counters and word order are those of
`jax.random` with `jax_threefry_partitionable`.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random as jex_random

from jaxenvs.errors import RandomKeyError, describe

T = TypeVar("T")

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY, _ZERO = np.uint32(0x1BD11BDA), np.uint32(0)
_STOCK = "threefry2x32"
_FOREIGN = 0x464F5247  # the domain of keys that are hashed from other generators' keys

# Up to jax 0.10 XLA removes optimization barriers before it fuses.
_BARRIER_HOLDS = tuple(int(part) for part in jax.__version__.split(".")[:2]) >= (0, 11)


def _rounds(key: jax.Array, low: jax.Array, high: Any = _ZERO) -> tuple[jax.Array, jax.Array]:
    """Returns Threefry-2x32 of the counters (high, low): two uint32 arrays of low's shape."""
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


def _word(key: jax.Array, low: jax.Array) -> jax.Array:
    """Returns the 32 random bits of each counter."""
    x0, x1 = _rounds(key, low)
    return x0 ^ x1


def _walled(compute: Callable[[jax.Array, jax.Array], T], key: jax.Array, low: jax.Array) -> T:
    """Returns `compute(key, low)`, uint32 arrays of low's shape, behind a fusion barrier.

    Without it, chained draws fuse into one another, compile for minutes, and are computed again at
    every use.
    """
    if _BARRIER_HOLDS:
        return jax.lax.optimization_barrier(compute(key, low))
    # A loop with one iteration is a fusion barrier, too. The barrier on its bound hides it from
    # passes that unroll loops; the bound is not batched under `vmap`. The initial value is unused,
    # but has to vary over the devices of a `shard_map` as the result does.
    bound = jax.lax.optimization_barrier(np.int32(1))
    start = low + key[0]
    _, computed = jax.lax.while_loop(
        lambda carry: carry[0] < bound,
        lambda carry: (carry[0] + 1, compute(key, low)),
        (np.int32(0), jax.tree.map(lambda _: start, jax.eval_shape(compute, key, low))),
    )
    return computed


def _counters(shape: tuple[int, ...]) -> jax.Array:
    return jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)


def _seed(seed: jax.Array) -> jax.Array:
    return jax.random.key_data(jax.random.key(seed, impl=_STOCK))


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.stack(_walled(_rounds, key, _counters(shape)), axis=-1)


def _fold_in(key: jax.Array, data: Any) -> jax.Array:
    return jnp.stack(_walled(_rounds, key, jnp.asarray(data, jnp.uint32)))


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    counters = _counters(shape)
    if bit_width == 64:
        high, low = _walled(_rounds, key, counters)
        return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
    # One array behind the wall: for two of them XLA does all the rounds twice.
    return _walled(_word, key, counters).astype(f"uint{bit_width}")


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
    """Returns a typed threefry key, or an array of them.

    Raw keys, uint32[..., 2] (or [..., 4] for `rbg`), are wrapped. Keys of other generators are
    hashed into threefry keys, because draws of `rbg` under `vmap` depend on the batch, so that
    results would depend on the devices and on the order of resets.

    Raises:
        RandomKeyError: `key` is neither typed nor raw.
    """
    if not (isinstance(key, jax.Array) and jnp.issubdtype(key.dtype, jax.dtypes.prng_key)):
        words = {2: _STOCK, 4: "rbg"}.get((getattr(key, "shape", None) or (0,))[-1])
        if words is None or getattr(key, "dtype", None) != jnp.uint32:
            raise RandomKeyError(
                f"expected a random key, got {describe(key)}.  Make one with jax.random.key(seed)."
            )
        key = jax.random.wrap_key_data(jnp.asarray(key), impl=words)
    if str(jax.random.key_impl(key)) == _STOCK or is_unrolled(key):
        return key
    return _hashed(key)


def _hashed(key: chex.PRNGKey) -> chex.PRNGKey:
    """Returns a threefry key that is hashed from another generator's key."""
    if key.shape:
        return jax.vmap(_hashed)(key)
    words = jax.random.key_data(key).astype(jnp.uint32).reshape(-1)
    words = jnp.pad(words, (0, len(words) % 2)).reshape(-1, 2)
    first = jax.random.wrap_key_data(words[0], impl=_STOCK)
    for low in words[1:].reshape(-1):
        first = derive(first, _FOREIGN, low)
    return first


def derive(key: chex.PRNGKey, domain: int, index: Any = 0) -> chex.PRNGKey:
    """Returns a key that no `split` or `fold_in` of `key` can produce.

    Those hash the key with the counters (0, i); this function uses (domain, index), and the domain
    is not 0.

    Args:
        key: one typed threefry key.
        domain: 1 to 2**32 - 1. A large number also avoids the counters that `split` uses without
            `jax_threefry_partitionable`.
        index: distinguishes the keys of one domain, as uint32.
    """
    key, high = as_typed_key(key), np.uint32(domain)
    low, words = jnp.asarray(index).astype(jnp.uint32), jax.random.key_data(key)
    if is_unrolled(key):
        hashed = _walled(lambda key, low: _rounds(key, low, high), words, low)
        return jax.random.wrap_key_data(jnp.stack(hashed), impl=_UNROLLED)
    hashed = jex_random.threefry_2x32(words, jnp.stack([jnp.uint32(high), low]))
    return jax.random.wrap_key_data(hashed, impl=_STOCK)


def fast(key: Any) -> chex.PRNGKey:
    """Returns `key` as the fastest type that draws the same bits, for use inside a program."""
    key = as_typed_key(key)
    if is_unrolled(key) or not _unrolled_pays():
        return key
    return jax.random.wrap_key_data(jax.random.key_data(key), impl=_UNROLLED)


def with_fast(call: Callable[[chex.PRNGKey], T], key: Any) -> T:
    """Returns `call(key)`, with the fastest type of key that `call` accepts.

    jax.random.poisson raises NotImplementedError for every generator except JAX's own.
    """
    quick = fast(key)
    if is_unrolled(quick):
        try:
            return call(quick)
        except NotImplementedError:
            quick = stock(quick)
    return call(quick)


def stock(tree: chex.ArrayTree) -> chex.ArrayTree:
    """Returns `tree` with keys of the internal type converted to JAX's type."""

    def convert(leaf: Any) -> Any:
        if not (hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)):
            return leaf
        if not is_unrolled(leaf):
            return leaf
        return jax.random.wrap_key_data(jax.random.key_data(leaf), impl=_STOCK)

    return jax.tree.map(convert, tree)


def is_unrolled(key: chex.PRNGKey) -> bool:
    """Returns whether `key` is of the internal type."""
    return jax.random.key_impl(key) == _UNROLLED


def _unrolled_pays() -> bool:
    return (
        bool(jax.config.jax_threefry_partitionable)  # pyright: ignore[reportAttributeAccessIssue]
        and jax.default_backend() == "cpu"
    )
