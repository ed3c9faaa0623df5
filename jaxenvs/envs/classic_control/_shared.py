"""Helpers for the classic control tasks."""

from typing import Any

from jaxenvs.core import Environment
from jaxenvs.errors import ParameterError

OUTLINE = 1.0  # pixels, the amount by which Gymnasium's outlines widen a filled shape


def check_one_of(env: Environment, name: str, allowed: tuple[Any, ...]) -> None:
    """Raises ParameterError unless the static field `name` of `env` has an allowed value."""
    value = getattr(env, name)
    if value not in allowed:
        raise ParameterError(
            f"{type(env).__name__} got {name}={value!r}; it must be one of "
            f"{', '.join(map(repr, allowed))}."
        )
