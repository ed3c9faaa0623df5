"""Optimizers: learning rates, clipping, and Adam on packed weights."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxenvs.training.ranges import NotNegative

# A constant, or a function of the gradient steps so far.
LearningRate = NotNegative | optax.Schedule


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Schedule:
    """A learning rate given by a function, which is static."""

    function: Callable[..., Any]

    def __call__(self, gradient_steps: Any) -> Any:
        return self.function(gradient_steps)


def adam(learning_rate: Any, max_gradient_norm: Any = None, epsilon: Any = 1e-8) -> Any:
    """Returns Adam, with the gradient's norm clipped if a maximum is given."""
    return with_clipping(optax.adam(learning_rate, eps=epsilon), max_gradient_norm)


def with_clipping(inner: Any, max_gradient_norm: Any) -> Any:
    """Returns `inner` on packed weights, with the gradient's norm clipped unless it is None."""
    steps = [] if max_gradient_norm is None else [optax.clip_by_global_norm(max_gradient_norm)]
    return with_packed_weights(optax.chain(*steps, inner))


def linear_decay(learning_rate: Any, gradient_steps: Any) -> Any:
    """Returns a schedule that falls linearly to 0 over `gradient_steps`, which may be a tracer."""

    def rate(count: Any) -> Any:  # optax.linear_schedule does not support tracers
        return learning_rate * (1 - jnp.minimum(count, gradient_steps) / gradient_steps)

    return rate


def global_norm(gradients: Any) -> jax.Array:
    """Returns the norm of all gradients, float32[].

    It is the same expression as in gradient clipping, so XLA computes it once.
    """
    squares = [jnp.sum(x.astype(jnp.float32) ** 2) for x in _pack(gradients)]
    return jnp.sqrt(sum(squares, jnp.float32(0)))


def with_packed_weights(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Applies `inner`, which must not depend on shapes, to one vector of all small weights.

    For small networks, this saves a sixth of the kernels: PPO on CartPole-v1 takes 0.93 to 0.98
    times as long, and 0.5 s of 4 less to compile. Large weights are not packed, because copying
    them takes longer (5.7 ms instead of 2 ms for 1.7 million numbers with `optax.flatten`).
    """

    def init(params: Any) -> Any:
        return inner.init(_pack(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        shown = None if params is None else _pack(params)
        changes, state = inner.update(_pack(updates), state, shown)
        return _unpack(changes, updates), state

    return optax.GradientTransformation(init, update)


def _is_small(leaf: Any) -> bool:
    # Copying pays off for a layer between 64 and 64 units, but not between 128 and 128.
    return leaf.size <= 4096 and leaf.dtype == jnp.float32


def _pack(tree: Any) -> Any:
    leaves = jax.tree.leaves(tree)
    small = [leaf.ravel() for leaf in leaves if _is_small(leaf)]
    large = [leaf for leaf in leaves if not _is_small(leaf)]
    return [jnp.concatenate(small), *large] if small else large


def _unpack(parts: Any, like: Any) -> Any:
    """Inverts `_pack` for a tree like `like`."""
    leaves, structure = jax.tree.flatten(like)
    sizes, parts = [leaf.size for leaf in leaves if _is_small(leaf)], iter(parts)
    small = iter(jnp.split(next(parts), np.cumsum(sizes)[:-1]) if sizes else [])
    return jax.tree.unflatten(
        structure,
        [next(small).reshape(leaf.shape) if _is_small(leaf) else next(parts) for leaf in leaves],
    )
