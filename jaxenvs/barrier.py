"""Barriers that XLA does not fuse across."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

T = TypeVar("T")

# Until jax 0.11, XLA removes optimization barriers before fusion.
_BARRIER_STOPS_FUSION = tuple(int(part) for part in jax.__version__.split(".")[:2]) >= (0, 11)


def behind_barrier(compute: Callable[..., T], *args: Any) -> T:
    """Returns `compute(*args)`, a tree of arrays, and prevents fusion across it.

    XLA recomputes a value in every operation that uses it, so a chain of operations whose results
    are used more than once takes exponential time, to compile and to run. A barrier computes each
    result once.
    """
    if _BARRIER_STOPS_FUSION:
        return jax.lax.optimization_barrier(compute(*args))
    # A loop with a single iteration also prevents fusion. The barrier hides the bound from the
    # passes that unroll loops, and `vmap` does not batch it. The initial values are unused; they
    # only have to vary over the devices of a `shard_map` as the result does.
    bound = jax.lax.optimization_barrier(np.int32(1))
    shapes = jax.eval_shape(compute, *args)
    start = sum(x.ravel()[0].astype(np.float32) * 0 for x in jax.tree.leaves(args))
    _, computed = jax.lax.while_loop(
        lambda carry: carry[0] < bound,
        lambda carry: (carry[0] + 1, compute(*args)),
        (
            np.int32(0),
            jax.tree.map(
                lambda x: jax.numpy.broadcast_to(start, x.shape).astype(x.dtype), shapes
            ),
        ),
    )
    return computed
