"""What the classic control tasks have in common."""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.core import Environment
from jaxenvs.errors import ParameterError

OUTLINE = 1.0  # pixels by which the outlines in Gymnasium's pictures widen a filled shape

E = TypeVar("E", bound=Environment)
S = TypeVar("S")


def in_dtype(env: E) -> E:
    """Returns `env` with every parameter as an array of `env.dtype`.

    So a parameter given as float64 (a `jnp.linspace` under `jax_enable_x64`) cannot widen the
    state, and constants are rounded alike whether `env` is closed over or passed to `jit`.
    """
    dtype: Any = env.dtype  # pyright: ignore[reportAttributeAccessIssue]
    if jax.dtypes.canonicalize_dtype(dtype) != np.dtype(dtype):
        raise ParameterError(
            f"{type(env).__name__} got dtype={np.dtype(dtype)} while JAX keeps to 32 bits.  "
            'Call jax.config.update("jax_enable_x64", True) first, or leave dtype=float32.'
        )
    return jax.tree.map(lambda leaf: jnp.asarray(leaf).astype(dtype), env)


def one_of(env: Environment, name: str, allowed: tuple[Any, ...]) -> None:
    """Raises ParameterError unless the static field `name` of `env` has an allowed value."""
    value = getattr(env, name)
    if value not in allowed:
        raise ParameterError(
            f"{type(env).__name__} got {name}={value!r}; it must be one of "
            f"{', '.join(map(repr, allowed))}."
        )


def for_drawing(env: E, state: S) -> tuple[E, S]:
    """Returns both in float32, which is enough for a picture whatever `env.dtype` is."""
    env = in_dtype(env.replace(dtype=np.float32))
    return env, jax.tree.map(lambda leaf: leaf.astype(jnp.float32), state)
