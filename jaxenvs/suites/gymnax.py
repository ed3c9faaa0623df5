"""Environments of gymnax, 0.0.9 and 1.x, as native environments.

Until 1.0, gymnax merges its time limit with the end of the task. Here the limit truncates.
"""

from typing import Any

from jaxenvs.core import Environment
from jaxenvs.errors import missing_extra
from jaxenvs.suites import _gymnax_like
from jaxenvs.suites._shared import check_kind, field_names

try:
    import gymnax
    from gymnax.environments.environment import Environment as GymnaxEnvironment
except ImportError as error:
    raise missing_extra(__name__, "gymnax", "gymnax") from error

_LIMIT = "max_steps_in_episode"
_IS_MERGED = not hasattr(GymnaxEnvironment, "is_truncated")


def from_gymnax(env: Any, params: Any = None) -> Environment:
    """Returns an environment of gymnax as a native environment.

    Args:
        env: the environment.
        params: its parameters; None for `env.default_params`. The number of steps
            `max_steps_in_episode` becomes the time limit.

    Raises:
        WrapperError: it is no environment of gymnax.
        SpaceError: jaxenvs has no such space.
    """
    check_kind("from_gymnax", env, GymnaxEnvironment)
    params = env.default_params if params is None else params
    return _gymnax_like.adapt(env, params, limit=_LIMIT, is_merged=_IS_MERGED)


def names() -> list[str]:
    """Returns the names of gymnax's environments."""
    return [*gymnax.registered_envs]


def make(name: str, **parameters: Any) -> Environment:
    """Makes an environment of gymnax by its name.

    Args:
        name: one of `names()`.
        **parameters: fields of the environment's parameters, or arguments of its constructor.
    """
    fields = field_names(gymnax.make(name)[1])
    changes = {key: parameters.pop(key) for key in fields if key in parameters}
    env, params = gymnax.make(name, **parameters)
    return from_gymnax(env, params.replace(**changes))
