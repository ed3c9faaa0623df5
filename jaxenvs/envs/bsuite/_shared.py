"""Helpers for the bsuite tasks."""

from jaxenvs.core import Environment
from jaxenvs.errors import ParameterError, check_integer


def check_at_least(env: Environment, name: str, least: int) -> None:
    """Raises ParameterError unless the field `name` of `env` is an int of at least `least`."""
    value = getattr(env, name)
    if hasattr(value, "shape"):  # traced, or an array with one number per instance
        return
    check_integer(ParameterError, f"{type(env).__name__} got {name}", value, least)
