"""Barriers that XLA does not fuse across."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import loops

T = TypeVar("T")

# Until jax 0.11, XLA removes optimization barriers before fusion.
BARRIER_STOPS_FUSION = tuple(int(part) for part in jax.__version__.split(".")[:2]) >= (0, 11)


def behind_barrier(compute: Callable[..., T], *args: Any) -> T:
    """Returns `compute(*args)`, a tree of arrays, and prevents fusion across it.

    Without a barrier, XLA recomputes a value at every use. A chain of operations whose results are
    used several times then takes minutes to compile.

    Args:
        compute: a function of arrays. It may close over other arrays.
        *args: arrays.
    """
    if BARRIER_STOPS_FUSION:
        return jax.lax.optimization_barrier(compute(*args))
    # A loop with a single iteration also prevents fusion. The barrier hides the bound from the
    # passes that unroll loops, and `vmap` does not batch it. The initial values are unused.
    bound = jax.lax.optimization_barrier(np.int32(1))
    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(compute, *args))
    _, computed = loops.while_loop(
        lambda carry: carry[0] < bound,
        lambda carry: (carry[0] + 1, compute(*args)),
        (np.int32(0), start),
    )
    return computed
