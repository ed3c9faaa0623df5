"""Environments of jumanji as native environments.

jumanji ends an episode at its step limit with discount 0, like a termination. Here the limit
truncates; it is the time limit of the environment and can be changed. MultiCVRP's cap of steps
still terminates, because its last reward replaces those of the rest of the tour.

Source: C. Bonnet et al., Jumanji: a Diverse Suite of Scalable Reinforcement Learning Environments
in JAX, 2023.
"""

import copy
from typing import Any, cast

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import missing_extra
from jaxenvs.multi_agent import MultiAgentEnvironment, MultiAgentTimeStep
from jaxenvs.spaces.unbounded import limits
from jaxenvs.suites._shared import (
    NO_LIMIT,
    Adapter,
    ByIdentity,
    by_name,
    check_single,
    python_picture,
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
_COUNTERS = ("step_count", "step")  # observations that grow with the time limit
# Observations with a row for each agent. A shape does not tell: Connector's grid is [10, 10] for 10
# agents.
_ROWS = ("action_mask", "agents_view", "positions", "searcher_views")


class FromJumanji(Adapter):
    """An environment of jumanji with one reward, which several agents may share.

    Observations are dicts by the names of jumanji's fields. `info` has its extras.
    """

    env: ByIdentity = struct.static()  # jumanji's environment, without a step limit

    @property
    def observation_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _from_observation_spec(self.env.value)

    @property
    def action_space(self) -> spaces.Space:
        with jax.ensure_compile_time_eval():
            return _from_action_spec(self.env.value)

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, first = self.env.value.reset(key)
        return state, TimeStep.first(by_name(first.observation), info=first.extras)

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        del key  # the state has one
        state, timestep = self.env.value.step(state, self._cast(action))
        is_last = timestep.last()
        return state, TimeStep.transition(
            by_name(timestep.observation),
            reward=timestep.reward,
            terminated=is_last & (timestep.discount == 0),
            truncated=is_last & (timestep.discount != 0),
            info=timestep.extras,
        )

    def _cast(self, action: Any) -> jax.Array:
        """Returns an action with jumanji's dtype."""
        with jax.ensure_compile_time_eval():
            dtype = self.env.value.action_spec.dtype
        return jnp.asarray(action, dtype)

    def render(self, state: Any) -> jax.Array:
        return python_picture("jumanji", repr(self.env.value), self._draw, state)

    def _draw(self, state: Any) -> Any:
        env = copy.copy(self.env.value.unwrapped)
        env._viewer = viewer = copy.copy(env._viewer)
        pictures = []  # instead of a window; not every environment returns them
        viewer._display = lambda figure: pictures.append(viewer._display_rgb_array(figure))
        env.render(state)
        return pictures[-1][..., :3]


class FromJumanjiAgents(FromJumanji, MultiAgentEnvironment[Any]):
    """An environment of jumanji with a reward for each agent: "agent_0", "agent_1" and so on.

    Agents observe what is theirs, such as "action_mask", bool[num_actions], and what all share. An
    agent has terminated where its discount is 0.
    """

    @property
    def agents(self) -> tuple[str, ...]:
        with jax.ensure_compile_time_eval():
            return tuple(f"agent_{i}" for i in range(self.env.value.reward_spec.shape[0]))

    @property
    def observation_space(self) -> spaces.Dict:
        parts = cast("spaces.Dict", super().observation_space).spaces
        return spaces.Dict(
            {
                agent: spaces.Dict(
                    {
                        name: _row(space, i) if name in _ROWS else space
                        for name, space in parts.items()
                    }
                )
                for i, agent in enumerate(self.agents)
            }
        )

    @property
    def action_space(self) -> spaces.Dict:
        space = super().action_space
        return spaces.Dict({agent: _row(space, i) for i, agent in enumerate(self.agents)})

    def _reset(self, key: chex.PRNGKey) -> tuple[Any, MultiAgentTimeStep]:
        state, first = self.env.value.reset(key)
        return state, MultiAgentTimeStep.first(self._observe(first), info=first.extras)

    def _step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, MultiAgentTimeStep]:
        del key  # the state has one
        actions = jnp.stack([action[agent] for agent in self.agents])
        state, timestep = self.env.value.step(state, actions)
        over = timestep.discount == 0
        return state, MultiAgentTimeStep.transition(
            self._observe(timestep),
            reward=self._by_agent(timestep.reward),
            terminated=self._by_agent(over),
            truncated=self._by_agent(timestep.last() & ~over),
            info=timestep.extras,
        )

    def _by_agent(self, rows: jax.Array) -> dict[str, jax.Array]:
        return {agent: rows[i] for i, agent in enumerate(self.agents)}

    def _observe(self, timestep: Any) -> dict[str, Any]:
        seen = by_name(timestep.observation)
        return {
            agent: {name: value[i] if name in _ROWS else value for name, value in seen.items()}
            for i, agent in enumerate(self.agents)
        }


def from_jumanji(env: Any) -> Environment:
    """Returns an environment of jumanji as a native environment, with its time limit.

    Args:
        env: a single instance, without a wrapper that resets or batches it.

    Raises:
        WrapperError: `env` is not a jumanji environment, or has such a wrapper.
    """
    check_single("from_jumanji", env, jumanji.Environment, _BATCHING, "_env")
    adapter = FromJumanjiAgents if env.reward_spec.shape else FromJumanji
    endless, limit = _without_limit(env)
    return with_time_limit(adapter(env=ByIdentity(endless)), limit, "time_limit")


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
    env.time_limit = NO_LIMIT
    if type(env).__name__ == "SearchAndRescue":  # its rewards depend on the limit
        reward = env._reward_fn
        env._reward_fn = lambda found, step, _: reward(found, step, limit)
    return env, limit


def _row(space: Any, i: int) -> spaces.Space:
    """Returns row i of a space of arrays with a row for each agent."""
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.Discrete(int(space.nvec[i]))
    low, high = (np.broadcast_to(bound, space.shape)[i] for bound in (space.low, space.high))
    return spaces.Box(low, high, space.shape[1:], space.dtype)


def _from_observation_spec(env: Any) -> spaces.Space:
    """Returns the space of observations, with what jumanji's spec of TSP lacks."""
    space = cast("spaces.Dict", _from_spec(env.observation_spec))
    if type(env.unwrapped).__name__ != "TSP":
        return space
    # The position is -1 before the first city.
    position = spaces.Discrete(int(env.observation_spec.position.num_values) + 1, start=-1)
    return spaces.Dict({**space.spaces, "position": position})


def _from_action_spec(env: Any) -> spaces.Space:
    """Returns the space of actions. Bounded integers are choices, as many as the mask has."""
    spec = env.action_spec
    is_discrete = isinstance(spec, specs.DiscreteArray | specs.MultiDiscreteArray)
    if is_discrete or not np.issubdtype(spec.dtype, np.integer):
        return _from_spec(spec)
    mask = env.observation_spec.action_mask  # MultiCVRP's own upper bound is too high by one
    return spaces.MultiDiscrete(np.full(spec.shape, mask.shape[-1]))


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
