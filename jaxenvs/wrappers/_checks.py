"""What wrappers check of their own fields."""

import contextlib
from typing import Any

import jax
import numpy as np

from jaxenvs.core import VectorEnv
from jaxenvs.errors import SpaceError, WrapperError
from jaxenvs.spaces import Box, Space


def known(value: Any) -> np.ndarray | None:
    """The value of a field as far as Python knows it: of a traced one, or one on a device, None.

    A field's check must pass on what it does not know, since wrappers are rebuilt from their
    leaves with tracers, shapes or placeholders in place of numbers.
    """
    return np.asarray(value) if isinstance(value, int | float | np.ndarray | np.generic) else None


def checked_box(wrapper: Any, name: str, space: Space, *, bounded: bool = False) -> Box:
    """`space`, the wrapped environment's space called `name`, if it is a `Box`.

    Raises:
        WrapperError: it is none, or `bounded` was asked for and a bound is known to be infinite.
    """
    if not isinstance(space, Box):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; it takes a Box."
        )
    bounds = (known(space.low), known(space.high))
    if bounded and not all(np.isfinite(bound).all() for bound in bounds if bound is not None):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; its bounds must"
            " be finite.  Give it others first: TransformAction(env, jnp.tanh, Box(...))."
        )
    return space


def check_space(wrapper: Any, name: str = "observation_space") -> None:
    """Makes the space `name`, so that a value that cannot work is named where it was given.

    Only around plain numbers. JAX also builds wrappers, out of traced values, of gradients and of
    placeholders, and the parameters may be batched: then there is nothing to judge yet.
    """
    leaves = jax.tree.leaves(wrapper.env, is_leaf=lambda leaf: leaf is None)
    if all(isinstance(leaf, int | float | np.number | np.bool_ | VectorEnv) for leaf in leaves):
        # A space that cannot be made of these numbers is not the wrapper's fault.
        with contextlib.suppress(SpaceError):
            getattr(wrapper, name)


def check_count(wrapper: Any, name: str, smallest: int) -> None:
    """Raises unless the static field `name` is an integer and at least `smallest`."""
    value = getattr(wrapper, name)
    if not is_count(value, smallest):
        raise WrapperError(
            f"{type(wrapper).__name__} got {name}={value!r}; it must be an integer, at least"
            f" {smallest}.  It decides shapes, so it cannot be traced either."
        )


def is_count(value: Any, smallest: int) -> bool:
    """Whether `value` is an integer, True and False not being ones, and at least `smallest`."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_integer and bool(value >= smallest)
