"""Order inside compiled programs, by data dependencies."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax


def after(value: Any, dependency: Any) -> Any:
    """Returns `value` unchanged, with a data dependency on `dependency`.

    XLA orders the operations of a program by data dependencies only. To compute something while
    the environments step, the computation must depend on the result of `send`, and `recv` must
    depend on the computation:

        state = env.send(state, action)
        weights = learn(weights, after(batch, state))
        state, timestep = env.recv(after(state, weights))

    Without the first `after`, `learn` may run before `send`; without the second, after `recv`.
    `lax.optimization_barrier` does not help: on a CPU it is removed before the order is chosen.

    Args:
        value: any pytree of arrays.
        dependency: the arrays to compute first, any pytree.

    Example:
        >>> after(jnp.arange(3), jnp.ones(2))
        Array([0, 1, 2], dtype=int32)
    """
    # A population count is at most 32, so this is always 0, but the compiler does not know that.
    bits = [lax.population_count(_word(leaf)) >> 6 for leaf in jax.tree.leaves(dependency)]
    if not bits:
        return value
    is_there = functools.reduce(lax.bitwise_or, bits) == 0
    return jax.tree.map(lambda leaf: _selected(is_there, leaf), value)


def _word(leaf: Any) -> jax.Array:
    """Returns a uint32[] that depends on an array."""
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    one = lax.stop_gradient(leaf.ravel()[:1].sum())
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
        return lax.bitcast_convert_type(one.real.astype(jnp.float32), jnp.uint32)
    return one.astype(jnp.uint32)


def _selected(is_there: jax.Array, leaf: Any) -> jax.Array:
    leaf = jnp.asarray(leaf)
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        data = _selected(is_there, jax.random.key_data(leaf))
        return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
    return lax.select(jnp.broadcast_to(is_there, leaf.shape), leaf, jnp.zeros_like(leaf))
