"""Helpers of the classic control tasks."""

from typing import Any

from jaxenvs.core import Environment
from jaxenvs.errors import ParameterError

OUTLINE = 1.0  # pixels by which the outlines in Gymnasium's pictures widen a filled shape

def one_of(env: Environment, name: str, allowed: tuple[Any, ...]) -> None:
    """Raises ParameterError unless the static field `name` of `env` has an allowed value."""
    value = getattr(env, name)
    if value not in allowed:
        raise ParameterError(
            f"{type(env).__name__} got {name}={value!r}; it must be one of "
            f"{', '.join(map(repr, allowed))}."
        )

