"""Native environments and batches behind the interfaces of other libraries."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jaxenvs.core import AutoresetMode, Environment
from jaxenvs.errors import ParameterError
from jaxenvs.factory import has_pool, make_from
from jaxenvs.vector.vectorize import vectorize


def native_engine(id: Any) -> dict[str, str]:
    """Returns the option of `make_gym` that keeps `id` from being a pool."""
    return {"engine": "mjx"} if has_pool(id) else {}


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
    batched: Sequence[str] = (),
    stagger: bool | int = False,
) -> Any:
    """Makes a `VectorEnv` with `wrappers` around it, innermost first."""
    env: Any = vectorize(
        make_single_agent(id, time_limit=time_limit, params=params),
        num_envs,
        autoreset_mode=autoreset_mode,
        batched=batched,
        stagger=stagger,
    )
    for wrapper in wrappers:
        env = env.wrap(wrapper)
    return env
