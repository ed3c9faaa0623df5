"""Checks that several wrappers make of their fields."""

from typing import Any

import numpy as np

from jaxenvs.errors import WrapperError
from jaxenvs.spaces import Box, Space
from jaxenvs.struct import is_traced


def checked_box(wrapper: Any, name: str, space: Space, *, bounded: bool = False) -> Box:
    """Returns `space`, the wrapped environment's space called `name`.

    Raises:
        WrapperError: the space is not a `Box`, or it should be `bounded` and a bound is infinite.
    """
    if not isinstance(space, Box):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; it takes a Box."
        )
    bounds = [bound for bound in (space.low, space.high) if not is_traced(bound)]
    if bounded and not all(np.isfinite(bound).all() for bound in bounds):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; its bounds must"
            " be finite.  Give it others first: TransformAction(env, jnp.tanh, Box(...))."
        )
    return space


def check_count(wrapper: Any, name: str, smallest: int) -> None:
    """Raises unless the static field `name` is an integer and at least `smallest`."""
    value = getattr(wrapper, name)
    if not is_count(value, smallest):
        raise WrapperError(
            f"{type(wrapper).__name__} got {name}={value!r}; it must be an integer, at least"
            f" {smallest}.  It decides shapes, so it cannot be traced either."
        )


def is_count(value: Any, smallest: int) -> bool:
    """Returns whether `value` is an integer of at least `smallest`; a bool is not."""
    is_integer = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return is_integer and bool(value >= smallest)
