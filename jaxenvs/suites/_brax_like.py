"""Environments with the interface of brax: of brax itself and of MuJoCo Playground."""

import copy
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import TimeStep
from jaxenvs.spaces.unbounded import unbounded
from jaxenvs.suites._shared import Adapter, ByIdentity, by_name


class BraxLike(Adapter):
    """An environment with the interface of brax.

    `info` has the metrics of the library. To randomize the physics, pass another model, whose
    arrays are leaves: `env.replace(model=...)`. Observations are unbounded.
    """

    env: ByIdentity = struct.static()
    model: Any = None  # a pytree; None for the model of the library's environment

    model_attribute: ClassVar[str]  # the attribute of the library's environment

    @property
    def default_model(self) -> Any:
        """The physical model of the library's environment, a pytree."""
        return getattr(self.env.value.unwrapped, self.model_attribute)

    @property
    def observation_space(self) -> spaces.Space:
        state = jax.eval_shape(self.env.value.reset, jax.random.key(0))
        return unbounded(by_name(state.obs))

    @property
    def action_space(self) -> spaces.Space:
        return spaces.Box(-1.0, 1.0, (self.env.value.action_size,))

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state = self._with_model().reset(key)
        return state, TimeStep.first(by_name(state.obs), info=state.metrics)

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one, if any
        state = jax.tree.map(lambda leaf: leaf, state)  # the library changes dicts in place
        state = self._with_model().step(state, action)
        # Set by an EpisodeWrapper. `info["time_out"]` also marks failures, so it is no truncation.
        truncated = jnp.asarray(state.info.get("truncation", 0)) != 0
        return state, TimeStep.transition(
            by_name(state.obs),
            reward=state.reward,
            terminated=(state.done != 0) & ~truncated,
            truncated=truncated,
            info=state.metrics,
        )

    def _with_model(self) -> Any:
        env = self.env.value
        return env if self.model is None else _replace(env, self.model_attribute, self.model)


def _replace(env: Any, attribute: str, model: Any) -> Any:
    """Returns a copy of an environment, which may have wrappers, with another model."""
    env = copy.copy(env)
    if "env" in vars(env):
        env.env = _replace(env.env, attribute, model)
    else:
        setattr(env, attribute, model)
    return env
