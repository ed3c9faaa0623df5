"""A native environment with the interface of Stoa."""

from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import missing_extra
from jaxenvs.faces._third_party import make_env_for, reset_with_half, step_with_half

try:
    import stoa.spaces as stoa_spaces
    from stoa.env_adapters.base import AdapterStateWithKey
    from stoa.env_types import StepType
    from stoa.env_types import TimeStep as StoaTimeStep
    from stoa.environment import Environment as StoaEnvironment
except ImportError as error:
    raise missing_extra(__name__, "stoa-env", "stoa") from error


class StoaEnv(StoaEnvironment):
    """A native environment as a `stoa.Environment`, without a reset after an episode.

    The state is the native one, in `base_env_state`, and `rng_key` for the next step, which Stoa's
    wrappers read. `extras` is the info. The `env_params` of a call are a native environment with
    other parameters. Stoa has one flag for the end of an episode, so an episode that terminates and
    is truncated in the same step counts as terminated.
    """

    def __init__(self, env: Environment) -> None:
        super().__init__()
        self.native = env

    def reset(
        self, rng_key: chex.PRNGKey, env_params: Environment | None = None
    ) -> tuple[AdapterStateWithKey, StoaTimeStep]:
        """Starts an episode."""
        return _to_stoa(StepType.FIRST, *reset_with_half(self._env(env_params), rng_key))

    def step(
        self, state: Any, action: Any, env_params: Environment | None = None
    ) -> tuple[AdapterStateWithKey, StoaTimeStep]:
        """Takes an action."""
        env = self._env(env_params)
        results = step_with_half(env, state.base_env_state, action, state.rng_key)
        return _to_stoa(StepType.MID, *results)

    def observation_space(self, env_params: Environment | None = None) -> stoa_spaces.Space:
        """Returns the space of observations."""
        return _space_to_stoa(self._env(env_params).observation_space)

    def action_space(self, env_params: Environment | None = None) -> stoa_spaces.Space:
        """Returns the space of actions."""
        return _space_to_stoa(self._env(env_params).action_space)

    def state_space(self, env_params: Environment | None = None) -> stoa_spaces.Space:
        """Native environments do not describe their states."""
        raise NotImplementedError("environments of jaxenvs have no state space.")

    def render(self, state: Any, env_params: Environment | None = None) -> jax.Array:
        """Draws `state` as uint8[H, W, 3]."""
        return self._env(env_params).render(state.base_env_state)

    def _env(self, env_params: Environment | None) -> Environment:
        return self.native if env_params is None else env_params


def make_stoa(
    id: str | Environment,
    *,
    time_limit: int | None | Literal["default"] = "default",
    **params: Any,
) -> StoaEnv:
    """Makes a native environment with the interface of Stoa.

    Args:
        id: a native id or an `Environment`.
        time_limit: see `make`.
        **params: parameters of the environment, such as `gravity=3.7`.

    Raises:
        ParameterError: `id` is neither.
    """
    return StoaEnv(make_env_for("make_stoa", id, time_limit, params))


def _to_stoa(
    otherwise: jax.Array, native: Any, timestep: TimeStep, key: chex.PRNGKey
) -> tuple[AdapterStateWithKey, StoaTimeStep]:
    kind = jnp.where(timestep.truncated, StepType.TRUNCATED, otherwise)
    return AdapterStateWithKey(base_env_state=native, rng_key=key), StoaTimeStep(
        step_type=jnp.where(timestep.terminated, StepType.TERMINATED, kind),
        reward=timestep.reward,
        discount=timestep.discount,
        observation=timestep.observation,
        extras=dict(timestep.info),
    )


def _space_to_stoa(space: Any) -> stoa_spaces.Space:
    if isinstance(space, spaces.Dict):
        return stoa_spaces.DictSpace(
            {name: _space_to_stoa(each) for name, each in space.spaces.items()}
        )
    if isinstance(space, spaces.Tuple):
        return stoa_spaces.TupleSpace([_space_to_stoa(each) for each in space.spaces])
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return stoa_spaces.DiscreteSpace(space.n, np.int32)
    if isinstance(space, spaces.MultiDiscrete) and not space.start.any():
        return stoa_spaces.MultiDiscreteSpace(space.nvec, np.int32)
    low, high = space.bounds
    return stoa_spaces.BoundedArraySpace(space.shape, space.dtype, low, high)
