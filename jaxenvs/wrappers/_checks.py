"""Argument checks shared by several wrappers."""

from typing import Any

import numpy as np

from jaxenvs.errors import WrapperError, check_integer
from jaxenvs.spaces import Box, Space
from jaxenvs.struct import is_traced


def wrapped_box(wrapper: Any, name: str, *, scales: bool = False) -> Box:
    """Returns the wrapped environment's space `name`, which must be a `Box`.

    Raises:
        WrapperError: the space is not a `Box`, or `scales` is True and a bound is infinite or the
            numbers are not floating-point.
    """
    space = getattr(wrapper.env, name)
    if not isinstance(space, Box):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; it needs a Box."
        )
    if scales and not np.issubdtype(space.dtype, np.floating):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; it needs a"
            " floating-point Box.  Convert it first, such as TransformAction(env, lambda x:"
            f" jnp.rint(x).astype(jnp.{space.dtype}), Box(low, high, shape))."
        )
    bounds = [bound for bound in (space.low, space.high) if not is_traced(bound)]
    if scales and not all(np.isfinite(bound).all() for bound in bounds):
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment whose {name} is {space}; its bounds must"
            " be finite.  Bound it first: TransformAction(env, jnp.tanh, Box(...))."
        )
    return space


def check_single_agent(wrapper: Any, fix: str) -> None:
    """Raises WrapperError, which ends with `fix`, if the wrapped environment has several agents."""
    if wrapper.env.agents:
        raise WrapperError(
            f"{type(wrapper).__name__} got an environment with the agents"
            f" {', '.join(wrapper.env.agents)}; it supports a single agent only.  {fix}"
        )


def check_function(wrapper: Any) -> None:
    """Raises WrapperError unless the field `func` is callable."""
    if not callable(wrapper.func):
        raise WrapperError(
            f"{type(wrapper).__name__} got func={wrapper.func!r}; it must be a function."
        )


def check_given_space(wrapper: Any, name: str) -> None:
    """Raises WrapperError unless the field `name` is a space."""
    space = getattr(wrapper, name)
    if not isinstance(space, Space):
        raise WrapperError(
            f"{type(wrapper).__name__} got {name}={space!r}; it must be a space.  Pass env.{name}"
            " if func does not change it."
        )


def check_count(wrapper: Any, name: str, least: int = 1) -> None:
    """Raises WrapperError unless the static field `name` is an integer of at least `least`."""
    value = getattr(wrapper, name)
    check_integer(WrapperError, f"{type(wrapper).__name__} got {name}", value, least)
