"""Environments of XLand-MiniGrid as native environments.

They differ from `MiniGrid-...`, which are exact: see docs/suites/index.md.

Source: A. Nikulin et al., XLand-MiniGrid: Scalable Meta-Reinforcement Learning Environments in JAX,
2023.
"""

from typing import Any

import chex
import jax

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import missing_extra
from jaxenvs.spaces.unbounded import unbounded
from jaxenvs.suites._shared import (
    ByIdentity,
    WithParameters,
    by_name,
    check_kind,
    host_picture,
    with_time_limit,
)

try:
    import xminigrid
    from xminigrid.environment import Environment as XMiniGridEnvironment
except ImportError as error:
    raise missing_extra(__name__, "xminigrid", "xminigrid") from error


class FromXMiniGrid(WithParameters):
    """An environment of XLand-MiniGrid. Its state is the library's timestep.

    Sizes among the parameters are static; rules and goals are leaves.
    """

    env: ByIdentity = struct.static()

    @property
    def observation_space(self) -> spaces.Space:
        timestep = jax.eval_shape(self.env.value.reset, self.params, jax.random.key(0))
        return unbounded(by_name(timestep.observation))

    @property
    def action_space(self) -> spaces.Space:
        return spaces.Discrete(self.env.value.num_actions(self.params))

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        timestep = self.env.value.reset(self.params, key)
        return timestep, TimeStep.first(by_name(timestep.observation))

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one
        timestep = self.env.value.step(self.params, state, action)
        # The library's limit is merged with the end of the task only in `step_type`.
        return timestep, TimeStep.transition(
            by_name(timestep.observation), reward=timestep.reward, terminated=timestep.discount == 0
        )

    def render(self, state: Any) -> jax.Array:
        return host_picture(
            lambda state: self.env.value.render(self.params, state), state, self.example
        )


def from_xminigrid(env: Any, params: Any = None) -> Environment:
    """Returns an environment of XLand-MiniGrid as a native environment, with its time limit.

    Args:
        env: a single instance, without a wrapper that resets it.
        params: its parameters; None for `env.default_params()`. The number of steps `max_steps`
            becomes the time limit. It also scales rewards, so another time limit leaves them.

    Raises:
        WrapperError: `env` is not an XLand-MiniGrid environment.
    """
    check_kind("from_xminigrid", env, XMiniGridEnvironment)
    params = env.default_params() if params is None else params
    native = FromXMiniGrid(env=ByIdentity(env), params=params)
    return with_time_limit(native, params.max_steps, "max_steps")


def names() -> list[str]:
    """Returns the names of XLand-MiniGrid's environments."""
    return [*xminigrid.registered_environments()]


def make(name: str, **parameters: Any) -> Environment:
    """Makes an environment of XLand-MiniGrid by its name.

    Args:
        name: one of `names()`.
        **parameters: fields of the environment's parameters, such as `view_size` and `ruleset`.
    """
    return from_xminigrid(*xminigrid.make(name, **parameters))
