"""Initial weights."""

import functools
import math
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp


@functools.cache  # equal modules have the same one
def orthogonal(scale: float = 1.0) -> nn.initializers.Initializer:
    """The same draws as those of `flax.linen.initializers.orthogonal`, without its deadlock.

    Up to jax 0.10 a batch of matrices is factorised by threads that wait for other threads of the
    same pool: vmapped over seeds, or for twin critics, several layers together hang forever on a
    machine of few cores. Here a batch is factorised matrix by matrix.

    Source: A. Saxe, J. McClelland, S. Ganguli, Exact solutions to the nonlinear dynamics of
    learning in deep linear neural networks, 2014.
    """

    def init(key: chex.PRNGKey, shape: Any, dtype: Any = jnp.float32, **_: Any) -> jax.Array:
        columns, rows = shape[-1], math.prod(shape[:-1])
        drawn = jax.random.normal(key, (max(rows, columns), min(rows, columns)), dtype)
        orthonormal = _orthonormalised(drawn)
        if rows < columns:
            orthonormal = orthonormal.T
        return scale * orthonormal.reshape(shape)

    return init


@jax.custom_batching.custom_vmap
def _orthonormalised(matrix: jax.Array) -> jax.Array:
    q, r = jnp.linalg.qr(matrix)
    return q * jnp.sign(jnp.diag(r))[None]


@_orthonormalised.def_vmap
def _one_by_one(axis_size: int, in_batched: list[bool], matrix: jax.Array) -> tuple:
    del axis_size, in_batched
    return jax.lax.map(_orthonormalised, matrix), True
