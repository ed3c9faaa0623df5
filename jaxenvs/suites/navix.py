"""Environments of NAVIX as native environments.

They differ from `MiniGrid-...`, which are exact: see docs/suites/index.md.

Source: E. Pignatelli et al., NAVIX: Scaling MiniGrid Environments with JAX, 2024.
"""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import SpaceError, missing_extra
from jaxenvs.suites._shared import Adapter, ByIdentity, check_kind, resize, with_time_limit

try:
    import navix
    from navix import observations
    from navix import spaces as navix_spaces
except ImportError as error:
    raise missing_extra(__name__, "navix", "navix") from error


class FromNavix(Adapter):
    """An environment of NAVIX. Its state is NAVIX's timestep. `info` is NAVIX's."""

    env: ByIdentity = struct.static()  # NAVIX's environment, without automatic resets

    @property
    def observation_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            declared = _from_navix_space(self.env.value.observation_space)
        timestep = jax.eval_shape(self.env.value.reset, jax.random.key(0))
        return resize(declared, timestep.observation)

    @property
    def action_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _from_navix_space(self.env.value.action_space)

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        timestep = self.env.value.reset(key)
        timestep = timestep.replace(info={**timestep.info, "return": jnp.float32(0)})
        return timestep, TimeStep.first(timestep.observation, info=timestep.info)

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one
        timestep = self.env.value.step(state, action)
        return timestep, TimeStep.transition(
            timestep.observation,
            reward=timestep.reward,
            terminated=timestep.is_termination(),
            info=timestep.info,
        )

    def render(self, state: Any) -> jax.Array:
        return observations.rgb(state.state)


def from_navix(env: Any) -> Environment:
    """Returns an environment of NAVIX as a native environment, with its time limit.

    Raises:
        WrapperError: `env` is not a NAVIX environment.
    """
    check_kind("from_navix", env, navix.Environment)
    native = FromNavix(env=ByIdentity(env.replace(disable_autoreset=True)))
    return with_time_limit(native, env.max_steps, "max_steps")


def names() -> list[str]:
    """Returns the names of NAVIX's environments."""
    return sorted(navix.registry())


def make(name: str, **parameters: Any) -> Environment:
    """Makes an environment of NAVIX by its name.

    Args:
        name: one of `names()`.
        **parameters: arguments of `navix.make`, such as `observation_fn`.
    """
    return from_navix(navix.make(name, **parameters))


def _from_navix_space(space: Any) -> spaces.Space:
    if isinstance(space, navix_spaces.Discrete):
        if space.shape:
            return spaces.Box(0, int(np.max(space.maximum)), space.shape, space.dtype)
        return spaces.Discrete(int(space.maximum) + 1)
    if isinstance(space, navix_spaces.Continuous):
        low, high = np.asarray(space.minimum), np.asarray(space.maximum)
        return spaces.Box(low, high, space.shape, space.dtype)
    raise SpaceError(f"there is no space of jaxenvs for {space!r:.80}.")
