"""Native environments and batches behind the interfaces of other libraries."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium
import jax

from jaxenvs._forks import check_not_forked
from jaxenvs.core import AutoresetMode, Environment, VectorEnv
from jaxenvs.errors import ParameterError, WrapperError, describe
from jaxenvs.factory import make_from
from jaxenvs.vector.vectorize import vectorize


def make_single_agent(
    id: str | Environment, *, time_limit: Any, params: Mapping[str, Any]
) -> Environment:
    """Returns `make_from(id, ...)`, for the interfaces that know one agent.

    Raises:
        ParameterError: the environment has several agents.
    """
    env = make_from(id, time_limit=time_limit, **params)
    if env.agents:
        raise ParameterError(
            f"{env!r:.80} has the agents {', '.join(env.agents)}; this interface is for a single"
            " agent.  Use jaxenvs.make_pettingzoo, or the native environment."
        )
    return env


def make_native_batch(
    id: str | Environment,
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode,
    wrappers: Sequence[Callable[[Any], Any]],
    time_limit: Any,
    params: Mapping[str, Any],
    device: jax.Device | None = None,
    **options: Any,
) -> Any:
    """Makes a `VectorEnv` for a device, with `wrappers` around it, innermost first.

    `options` are those of `vectorize`.

    Raises:
        WrapperError: a wrapper is not one of jaxenvs, or does not return a batch.
        ForkError: JAX does not work in this process.
    """
    check_not_forked()
    _check_wrappers(wrappers)
    with jax.default_device(device or jax.devices("cpu")[0]):  # where an engine has to run
        env: Any = make_single_agent(id, time_limit=time_limit, params=params)
    env = vectorize(env, num_envs, autoreset_mode=autoreset_mode, **options)
    for wrapper in wrappers:
        wrapped = env.wrap(wrapper)
        if not isinstance(wrapped, VectorEnv):
            raise WrapperError(
                f"the wrapper {wrapper!r:.80} returned {describe(wrapped)}; expected a VectorEnv."
                "  It gets the whole batch. For a wrapper of one instance, pass its class or a"
                " functools.partial of it."
            )
        env = wrapped
    return env


def _check_wrappers(wrappers: Any) -> None:
    if not isinstance(wrappers, Sequence) or isinstance(wrappers, str):
        raise WrapperError(f"wrappers={wrappers!r:.80} is not a list.  Pass a list of wrappers.")
    for wrapper in wrappers:
        inner = getattr(wrapper, "func", wrapper)  # of a partial
        kinds = (gymnasium.Wrapper, gymnasium.vector.VectorWrapper)
        if not callable(wrapper) or (isinstance(inner, type) and issubclass(inner, kinds)):
            raise WrapperError(
                f"wrappers contains {wrapper!r:.80}, which cannot be compiled into the step;"
                " expected wrappers of jaxenvs.wrappers, or functions of a batch.  To use wrappers"
                " of Gymnasium, put them around the result of make_gym."
            )
