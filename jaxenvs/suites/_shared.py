"""Conversions that several libraries need."""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.errors import WrapperError


@dataclasses.dataclass(frozen=True, eq=False)
class ByIdentity:
    """An object as the value of a static field: equal only to itself, even if it has no hash."""

    value: Any


def check_single(
    name: str, env: Any, kind: type[Any], batching: tuple[type[Any], ...], inner: str
) -> None:
    """Checks that `env` describes a single instance that does not reset itself.

    Args:
        name: the name of the caller, for error messages.
        env: the environment.
        kind: the library's class of environments.
        batching: its wrappers that reset or batch instances.
        inner: the attribute with the environment in a wrapper.

    Raises:
        WrapperError: it is no environment, or such a wrapper is around it.
    """
    if not isinstance(env, kind):
        raise WrapperError(
            f"{name} got {env!r:.80}; expected an environment of {kind.__module__.split('.')[0]}."
        )
    layer = env
    while layer is not None:
        if isinstance(layer, batching):
            raise WrapperError(
                f"{name} got an environment with {type(layer).__name__}, but jaxenvs batches and"
                " resets instances itself.  Pass the environment without this wrapper."
            )
        layer = vars(layer).get(inner)


def cast_like(tree: chex.ArrayTree, like: chex.ArrayTree) -> Any:
    """Returns `tree` as arrays with the dtypes of `like`, never weakly typed.

    Python's numbers become 32-bit arrays, also under `jax_enable_x64`.
    """

    def cast(leaf: Any, like: Any) -> Any:
        dtype = like.dtype if hasattr(like, "dtype") else jnp.result_type(like)
        if isinstance(leaf, int | float) and dtype.itemsize == 8:
            dtype = np.dtype(f"{dtype.kind}4")
        is_key = jnp.issubdtype(dtype, jax.dtypes.extended)
        return leaf if is_key else jnp.asarray(leaf, dtype)

    return jax.tree.map(cast, tree, like)
