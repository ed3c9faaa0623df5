"""Argument checks shared by several wrappers."""

from typing import Any

import numpy as np

from jaxenvs.errors import WrapperError
from jaxenvs.spaces import Box, Space
from jaxenvs.struct import is_traced


def checked_box(wrapper: Any, name: str, space: Space, *, bounded: bool = False) -> Box:
    """Checks that the wrapped environment's space `name` is a `Box` and returns it.

    Raises:
        WrapperError: the space is not a `Box`, or `bounded` is True and a bound is infinite.
    """
    if not isinstance(space, Box):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; it needs a Box."
        )
    bounds = [bound for bound in (space.low, space.high) if not is_traced(bound)]
    if bounded and not all(np.isfinite(bound).all() for bound in bounds):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; its bounds must"
            " be finite.  Bound it first: TransformAction(env, jnp.tanh, Box(...))."
        )
    return space


def check_count(wrapper: Any, name: str, smallest: int) -> None:
    """Raises WrapperError unless the static field `name` is an integer of at least `smallest`."""
    value = getattr(wrapper, name)
    if not is_count(value, smallest):
        raise WrapperError(
            f"{type(wrapper).__name__} got {name}={value!r}; it must be an integer, at least"
            f" {smallest}.  It determines shapes, so it cannot be a tracer."
        )


def is_count(value: Any, smallest: int) -> bool:
    """Returns whether `value` is an integer, not a bool, of at least `smallest`."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_integer and bool(value >= smallest)
