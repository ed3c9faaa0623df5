"""What the classic control tasks have in common."""

from typing import TypeVar

import jax
import jax.numpy as jnp

from jaxenvs.core import Environment

E = TypeVar("E", bound=Environment)


def in_dtype(env: E) -> E:
    """Returns `env` with every parameter as an array of `env.dtype`.

    So a parameter given as float64 (a `jnp.linspace` under `jax_enable_x64`) cannot widen the
    state, and constants are rounded alike whether `env` is closed over or passed to `jit`.
    """
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(env.dtype), env)
