"""The adapter that fits an environment of another library."""

from typing import Any

import gymnasium
from gymnasium import spaces

from jaxenvs.bridge.foreign.classic_gym import ClassicGymAdapter, takes
from jaxenvs.bridge.foreign.dm_env import DmEnvAdapter
from jaxenvs.bridge.foreign.pettingzoo import ParallelEnvAdapter, parallel
from jaxenvs.bridge.foreign.text import TextAsBytes, has_text
from jaxenvs.errors import PoolError


class AlreadyVectorized(PoolError):
    """An environment function returned a vectorized environment."""


def adapted(env: Any) -> Any:
    """Returns an environment of Gymnasium as it is, and others wrapped in an adapter.

    Observations with texts are wrapped in `TextAsBytes`.

    Raises:
        PoolError: the environment is vectorized, its agents take turns, or its interface is
            unknown.
    """
    if is_vectorized(env):
        raise AlreadyVectorized(
            f"the environment function returned {type(env).__name__}, which is vectorized already."
            '  Pass backend="native", or return a single environment.'
        )
    if isinstance(env, gymnasium.Env):
        return TextAsBytes(env) if has_text(env.observation_space) else env
    if hasattr(env, "observation_spec") and hasattr(env, "action_spec"):
        return DmEnvAdapter(env)
    if hasattr(env, "possible_agents"):
        return ParallelEnvAdapter(parallel(env))
    if not (hasattr(env, "step") and hasattr(env, "reset") and hasattr(env, "action_space")):
        raise PoolError(
            f"the environment function returned {type(env).__name__}, which has no step, reset and"
            " action_space.  Return an environment of Gymnasium, gym, dm_env or PettingZoo."
        )
    of_gymnasium = isinstance(env.action_space, spaces.Space)
    return env if of_gymnasium and takes(env, "seed") else ClassicGymAdapter(env)


def is_vectorized(env: Any) -> bool:
    """Returns whether `env` is a vectorized environment."""
    return isinstance(env, gymnasium.vector.VectorEnv) or is_envpool(env)


def is_envpool(env: Any) -> bool:
    """Returns whether `env` is an EnvPool, of any interface and release."""
    return hasattr(env, "async_reset") and hasattr(env, "recv") and hasattr(env, "all_env_ids")
