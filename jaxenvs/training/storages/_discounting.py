"""Discounted sums over an unroll."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from jaxenvs import loops


def discounted_sums(terms: jax.Array, factors: ArrayLike) -> jax.Array:
    """Returns `S[t] = terms[t] + factors[t] S[t + 1]` with `S[T] = 0`, all float32[T, N]."""

    def backwards(later, step):
        term, factor = step
        total = term + factor * later
        return total, total

    zeros = jnp.zeros_like(terms[0])
    return loops.scan(backwards, zeros, (terms, factors), reverse=True, unroll=8)[1]
