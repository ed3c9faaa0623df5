"""What the tasks of bsuite have in common."""

from jaxenvs.core import Environment
from jaxenvs.errors import ParameterError


def at_least(env: Environment, name: str, least: int) -> None:
    """Raises ParameterError if the field `name` of `env` is known not to be an int from `least` on."""
    value = getattr(env, name)
    if hasattr(value, "shape") or type(value) is object:  # an array, perhaps traced or batched
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ParameterError(
            f"{type(env).__name__} got {name}={value!r}; it must be an int of at least {least}."
        )
