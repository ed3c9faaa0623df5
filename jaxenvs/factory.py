"""From an id to an environment: imports its module, checks its parameters, applies its limit."""

import dataclasses
import importlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax

from jaxenvs import catalog as catalog  # fills the registry
from jaxenvs.core import AutoresetMode, Environment
from jaxenvs.errors import ParameterError, UnknownParameterError, closest
from jaxenvs.registry import EnvSpec, find
from jaxenvs.vector.vectorize import VectorizedEnv, vectorize
from jaxenvs.wrappers.time_limit import TimeLimit


def make(
    id: str, *, time_limit: int | None | Literal["default"] = "default", **params: Any
) -> Environment:
    """Makes one native environment.

    Args:
        id: a registered id; `jaxenvs list` shows them.
        time_limit: steps after which an episode is truncated; None for no limit, "default" for
            the id's own.
        **params: parameters of the environment, such as `gravity=3.7`.

    Returns:
        The environment, inside `TimeLimit` where there is a limit. `env.unwrapped` is the
        environment itself.

    Raises:
        UnknownEnvironmentError: the id is not registered; the message names the closest.
        UnknownParameterError: a parameter is misspelt; the message names the closest.
        ParameterError: the time limit is less than one step, or no number.

    Example:
        >>> env = jaxenvs.make("CartPole-v1", gravity=3.7)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> timestep.observation.shape
        (4,)
    """
    spec = find(id)
    entry_point = _load(spec)
    _check_parameters(id, entry_point, params)
    _check_time_limit(id, time_limit)
    env = entry_point(**{**spec.kwargs, **params})
    limit = spec.time_limit if isinstance(time_limit, str) else time_limit
    return env if limit is None else TimeLimit(env, max_steps=limit)


def make_from(
    id: str | Environment, *, time_limit: int | None | Literal["default"], **params: Any
) -> Environment:
    """`make` of an id, or the same changes to an `Environment`, which has no limit of its own."""
    if isinstance(id, str):
        return make(id, time_limit=time_limit, **params)
    _check_time_limit(repr(id), time_limit)
    env = id.replace(**params) if params else id
    return TimeLimit(env, max_steps=time_limit) if isinstance(time_limit, int) else env


def make_vec(
    id: str,
    num_envs: int,
    *,
    autoreset: AutoresetMode = "same_step",
    batched: Sequence[str] = (),
    reset_chunk: int | None = None,
    stagger: bool | int = False,
    mesh: jax.sharding.Mesh | None = None,
    mesh_axis: str | None = None,
    time_limit: int | None | Literal["default"] = "default",
    **params: Any,
) -> VectorizedEnv:
    """Makes `num_envs` instances of an id as one environment: `vectorize(make(id), num_envs)`.

    The arguments are those of `vectorize` and of `make`; so are the errors.
    """
    return vectorize(
        make(id, time_limit=time_limit, **params),
        num_envs,
        autoreset=autoreset,
        batched=batched,
        reset_chunk=reset_chunk,
        stagger=stagger,
        mesh=mesh,
        mesh_axis=mesh_axis,
    )


def _load(spec: EnvSpec) -> Callable[..., Any]:
    if not isinstance(spec.entry_point, str):
        return spec.entry_point
    module, name = spec.entry_point.split(":")
    return getattr(importlib.import_module(module), name)


def _check_parameters(id: str, entry_point: Callable[..., Any], params: dict[str, Any]) -> None:
    if not (isinstance(entry_point, type) and dataclasses.is_dataclass(entry_point)):
        return  # a function checks its own arguments
    names = [field.name for field in dataclasses.fields(entry_point)]
    for name in params:
        if name not in names:
            raise UnknownParameterError(
                f'{id} has no parameter "{name}".{closest(name, [*names, "time_limit"])}'
                f"  `jaxenvs info {id}` shows all."
            )


def _check_time_limit(id: str, time_limit: Any) -> None:
    is_word = isinstance(time_limit, (str, bool)) and time_limit != "default"
    if is_word or (isinstance(time_limit, int) and time_limit < 1):
        raise ParameterError(
            f"{id} got time_limit={time_limit!r}; it must be at least 1."
            "  Pass None for no limit, or leave it out for the id's own."
        )
