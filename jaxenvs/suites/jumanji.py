"""Environments of jumanji as native environments.

jumanji ends an episode at its step limit with discount 0, like a termination. Here the limit
truncates; it is the time limit of the environment and can be changed.

Source: C. Bonnet et al., Jumanji: a Diverse Suite of Scalable Reinforcement Learning Environments
in JAX, 2023.
"""

import copy
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import RenderError, WrapperError, missing_extra
from jaxenvs.suites._shared import (
    Adapter,
    ByIdentity,
    by_name,
    check_single,
    limits,
    with_time_limit,
)

try:
    import jumanji
    from jumanji import specs, wrappers
    from jumanji.registration import _REGISTRY as _SPECS
    from jumanji.registration import load
except ImportError as error:
    raise missing_extra(__name__, "jumanji", "jumanji") from error

_BATCHING = tuple(
    getattr(wrappers, name)
    for name in ("AutoResetWrapper", "VmapWrapper", "VmapAutoResetWrapper")
    if hasattr(wrappers, name)
)
_NO_LIMIT = 2**31 - 1
_COUNTERS = ("step_count", "step")  # observations that grow with the time limit


class FromJumanji(Adapter):
    """An environment of jumanji with one reward.

    Observations are dicts by the names of jumanji's fields. `info` has its extras.
    """

    env: ByIdentity = struct.static()  # jumanji's environment, without a step limit

    @property
    def observation_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _from_spec(self.env.value.observation_spec)

    @property
    def action_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _from_spec(self.env.value.action_spec)

    def begin(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, first = self.env.value.reset(key)
        return state, TimeStep.first(by_name(first.observation), info=first.extras)

    def advance(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one
        state, timestep = self.env.value.step(state, action)
        is_last = timestep.last()
        return state, TimeStep.transition(
            by_name(timestep.observation),
            reward=timestep.reward,
            terminated=is_last & (timestep.discount == 0),
            truncated=is_last & (timestep.discount != 0),
            info=timestep.extras,
        )

    def render(self, state: Any) -> jax.Array:
        if struct.is_traced(*jax.tree.leaves(state)):
            raise RenderError(
                "jumanji draws with Matplotlib and JAX, which is not possible in a compiled"
                " program.  Call env.render(state) outside of jit and vmap."
            )
        env = copy.copy(self.env.value.unwrapped)
        env._viewer = viewer = copy.copy(env._viewer)
        pictures = []  # instead of a window; not every environment returns them
        viewer._display = lambda figure: pictures.append(viewer._display_rgb_array(figure))
        env.render(state)
        return jnp.asarray(pictures[-1][..., :3])


def from_jumanji(env: Any) -> Environment:
    """Returns an environment of jumanji as a native environment, with its time limit.

    Args:
        env: a single instance, without a wrapper that resets or batches it.

    Raises:
        WrapperError: it is no environment of jumanji, it has such a wrapper, or a reward for each
            agent.
    """
    check_single("from_jumanji", env, jumanji.Environment, _BATCHING, "_env")
    if env.reward_spec.shape:
        raise WrapperError(
            f"from_jumanji got {type(env.unwrapped).__name__}, which has rewards for"
            f" {env.reward_spec.shape[0]} agents.  Pass jumanji's MultiToSingleWrapper around it."
        )
    endless, limit = _without_limit(env)
    return with_time_limit(FromJumanji(env=ByIdentity(endless)), limit)


def names() -> list[str]:
    """Returns the names of jumanji's environments."""
    return sorted(jumanji.registered_environments())


def make(name: str, **parameters: Any) -> Environment:
    """Makes an environment of jumanji by its name.

    Args:
        name: one of `names()`.
        **parameters: arguments of the environment's constructor, such as `generator`.
    """
    spec = _SPECS[name]
    return from_jumanji(load(spec.entry_point)(**{**spec.kwargs, **parameters}))


def _without_limit(env: Any) -> tuple[Any, int | None]:
    """Returns a copy of `env` without its step limit, and the limit if there is one."""
    limit = getattr(env.unwrapped, "time_limit", None)
    if limit is None:
        return env, None
    env = copy.copy(env)
    if env is not env.unwrapped:
        env._env = _without_limit(env._env)[0]
        return env, limit
    env.time_limit = _NO_LIMIT
    if type(env).__name__ == "SearchAndRescue":  # its rewards depend on the limit
        reward = env._reward_fn
        env._reward_fn = lambda found, step, _: reward(found, step, limit)
    return env, limit


def _from_spec(spec: Any, name: str = "") -> spaces.Space:
    if not isinstance(spec, specs.Array):
        parts = {name: _from_spec(part, name) for name, part in spec._specs.items()}
        return spaces.Dict(parts)
    if isinstance(spec, specs.BoundedArray) and name in _COUNTERS:
        return spaces.Box(0, np.iinfo(spec.dtype).max, spec.shape, spec.dtype)
    if isinstance(spec, specs.DiscreteArray):
        return spaces.Discrete(int(spec.num_values))
    if isinstance(spec, specs.MultiDiscreteArray):
        return spaces.MultiDiscrete(np.asarray(spec.num_values))
    low, high = limits(spec.dtype)
    if isinstance(spec, specs.BoundedArray):
        low, high = np.asarray(spec.minimum), np.asarray(spec.maximum)
    return spaces.Box(low, high, spec.shape, spec.dtype)
