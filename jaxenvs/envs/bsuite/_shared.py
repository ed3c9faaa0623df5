"""Helpers for the bsuite tasks."""

from jaxenvs.core import Environment
from jaxenvs.errors import ParameterError


def check_at_least(env: Environment, name: str, least: int) -> None:
    """Raises ParameterError unless the field `name` of `env` is an int of at least `least`."""
    value = getattr(env, name)
    if hasattr(value, "shape"):  # traced, or an array with one number per instance
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ParameterError(
            f"{type(env).__name__} got {name}={value!r}; it must be an int of at least {least}."
        )
