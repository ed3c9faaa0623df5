"""JAX's threefry generator with unrolled rounds: the same bits, faster on CPU.

On CPU, JAX lowers every threefry draw to a rolled loop that XLA cannot fuse with other operations.
The same generator with its 20 rounds unrolled is up to ten times faster, and random draws dominate
the cost of small environments. It is registered as a separate key type that is only used inside a
program, see `prng`.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, Parallel Random Numbers: As Easy
as 1, 2, 3, 2011 (Threefry-2x32, 20 rounds). Counters and word order are those of `jax.random` with
`jax_threefry_partitionable`.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import random as jex_random

from jaxenvs._cpu.barrier import behind_barrier

STANDARD = "threefry2x32"

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY, _ZERO = np.uint32(0x1BD11BDA), np.uint32(0)


def hashed(key: jax.Array, low: jax.Array, high: Any = _ZERO) -> tuple[jax.Array, jax.Array]:
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
    x0, x1 = hashed(key, low)
    return x0 ^ x1


def _counters(shape: tuple[int, ...]) -> jax.Array:
    return jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)


def _seed(seed: jax.Array) -> jax.Array:
    return jax.random.key_data(jax.random.key(seed, impl=STANDARD))


def _split(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    return jnp.stack(behind_barrier(hashed, key, _counters(shape)), axis=-1)


def _fold_in(key: jax.Array, data: Any) -> jax.Array:
    return jnp.stack(behind_barrier(hashed, key, jnp.asarray(data, jnp.uint32)))


def _random_bits(key: jax.Array, bit_width: int, shape: tuple[int, ...]) -> jax.Array:
    counters = _counters(shape)
    if bit_width == 64:
        high, low = behind_barrier(hashed, key, counters)
        return (high.astype(jnp.uint64) << np.uint64(32)) | low.astype(jnp.uint64)
    # Put one array behind the barrier. With two, XLA computes all rounds twice.
    return behind_barrier(_random_word, key, counters).astype(f"uint{bit_width}")


UNROLLED = jex_random.define_prng_impl(
    key_shape=(2,),
    seed=_seed,
    split=_split,
    random_bits=_random_bits,
    fold_in=_fold_in,
    name="jaxenvs_unrolled_threefry2x32",
    tag="jaxenvs",
)


def should_unroll() -> bool:
    """Returns whether the unrolled generator has the bits of JAX's, and is faster."""
    return (
        bool(jax.config.jax_threefry_partitionable)  # pyright: ignore[reportAttributeAccessIssue]
        and jax.default_backend() == "cpu"
    )
