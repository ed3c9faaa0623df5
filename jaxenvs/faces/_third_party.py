"""The environment or batch behind the interface of another library."""

from collections.abc import Callable
from typing import Any

import chex
import jax

from jaxenvs import prng
from jaxenvs.core import AutoresetMode, Environment, TimeStep
from jaxenvs.errors import ParameterError
from jaxenvs.faces._native import make_single_agent
from jaxenvs.faces.gym import make_gym
from jaxenvs.faces.gym_vector_env import GymVectorEnv
from jaxenvs.factory import is_native


def make_batch_for(
    interface: str,
    autoreset_mode: AutoresetMode,
    env: str | Environment | GymVectorEnv,
    num_envs: int | None,
    options: dict[str, Any],
) -> GymVectorEnv:
    """Makes the batch for `interface(env, num_envs, **options)`.

    Args:
        interface: the name of the class, for error messages.
        autoreset_mode: the mode that the library expects.
        env: an id, an `Environment`, or an existing batch, which is returned unchanged.
        num_envs: N; required for an id or an `Environment`, not allowed otherwise.
        options: options of `make_gym`; not allowed with an existing batch.

    Raises:
        ParameterError: `num_envs` or an option is missing, not allowed or wrong.
    """
    if not (isinstance(env, GymVectorEnv) or is_native(env)):
        raise ParameterError(
            f"{interface} got {env!r:.80}; expected the id of a native environment, an"
            " Environment, or a batch from make_gym.  For environments that are not written in"
            " JAX, use make_pool."
        )
    if isinstance(env, GymVectorEnv):
        if num_envs not in (None, env.num_envs) or options:
            given = ", ".join([*options] or ["num_envs"])
            raise ParameterError(
                f"{interface} got {given} with an existing environment.  Pass it to make_gym, or"
                " pass an id."
            )
    elif num_envs is None:
        raise ParameterError(
            f"{interface} got {env!r} without num_envs.  Pass the number of instances."
        )
    else:
        env = make_gym(env, num_envs, **{"autoreset_mode": autoreset_mode, **options})
    if not isinstance(env, GymVectorEnv):
        raise ParameterError(f'{interface} got api="gym"; it needs api="gymnasium".  Omit api.')
    if env.env.autoreset_mode != autoreset_mode:
        raise ParameterError(
            f'{interface} got autoreset_mode="{env.env.autoreset_mode}"; its learners expect'
            f' "{autoreset_mode}".  Omit it, or pass "{autoreset_mode}" to make_gym.'
        )
    if env.output != "numpy":
        raise ParameterError(
            f'{interface} got output="{env.output}"; its learners expect NumPy arrays.'
            "  Omit output."
        )
    return env


def make_env_for(
    interface: str, env: str | Environment, time_limit: Any, params: dict[str, Any]
) -> Environment:
    """Makes the single environment for `interface(env, time_limit=..., **params)`.

    Raises:
        ParameterError: `env` is neither the id of a native environment nor an `Environment`, or
            it has several agents.
    """
    if not is_native(env):
        raise ParameterError(
            f"{interface} got {env!r:.80}; expected the id of a native environment or an"
            " Environment, which describes a single instance."
        )
    return make_single_agent(env, time_limit=time_limit, params=params)


def reset_with_half(env: Environment, key: Any) -> tuple[Any, TimeStep, chex.PRNGKey]:
    """Resets with one half of a typed or raw key, for libraries whose states hold keys.

    Returns:
        The state, the timestep, and the other half for the next step, a typed key.
    """
    return _call_with_half(env.reset, key)


def step_with_half(
    env: Environment, state: Any, action: Any, key: Any
) -> tuple[Any, TimeStep, chex.PRNGKey]:
    """Takes a step with one half of a key. Returns what `reset_with_half` does."""
    return _call_with_half(lambda key: env.step(state, action, key), key)


def _call_with_half(call: Callable[[chex.PRNGKey], Any], key: Any) -> Any:
    key, next_key = jax.random.split(prng.as_fast_key(key))
    return *call_native(call, key), prng.as_standard_keys(next_key)


def call_native(call: Callable[[chex.PRNGKey], Any], key: Any) -> Any:
    """Returns `call(key)` with the fastest type of key inside, and the standard one outside."""
    return prng.call_with_fast_key(lambda key: prng.as_standard_keys(call(key)), key)
