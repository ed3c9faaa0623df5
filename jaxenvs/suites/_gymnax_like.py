"""Environments with the interface of gymnax: of gymnax itself, and of libraries that follow it."""

from typing import Any

import chex
import jax

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.suites._shared import (
    NO_LIMIT,
    ByIdentity,
    WithParameters,
    from_gymnax_space,
    resize,
    with_time_limit,
)


class GymnaxLike(WithParameters):
    """An environment with the interface of gymnax.

    `info` is that of the library, without the discount.
    """

    env: ByIdentity = struct.static()
    # The name of a time limit in `params` that the library merges with the end of the task. It is
    # "" if the library does not.
    merged_limit: str = struct.static()

    @property
    def observation_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            declared = from_gymnax_space(self.env.value.observation_space(self.params))
        shapes = jax.eval_shape(self.env.value.reset_env, jax.random.key(0), self.params)[0]
        return resize(declared, shapes)

    @property
    def action_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return from_gymnax_space(self.env.value.action_space(self.params))

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        observation, state = self.env.value.reset_env(key, self.params)
        return state, TimeStep.first(observation)

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        env = self.env.value
        observation, state, reward, done, info = env.step_env(key, state, action, self.params)
        if self.merged_limit:
            endless = self.params.replace(**{self.merged_limit: NO_LIMIT})
            done = env.is_terminal(state, endless)
        return state, TimeStep.transition(
            observation,
            reward=reward,
            terminated=done,
            info={name: value for name, value in info.items() if name != "discount"},
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.env.value.name})"


def adapt(
    env: Any, params: Any, *, limit: str, is_merged: bool, cls: type[GymnaxLike] = GymnaxLike
) -> Environment:
    """Returns an environment with the interface of gymnax as a native one with its time limit.

    Args:
        env: the environment.
        params: its parameters.
        limit: the name of the time limit in the parameters.
        is_merged: whether `step_env` and `is_terminal` report a reached limit as the end.
        cls: the class of the adapter.
    """
    native = cls(env=ByIdentity(env), merged_limit=limit if is_merged else "", params=params)
    _ = native.observation_space, native.action_space  # unsupported spaces fail here
    return with_time_limit(native, getattr(params, limit), limit)
