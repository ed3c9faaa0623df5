"""Base class for wrappers that map actions and timesteps."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar, cast

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys, prng, struct
from jaxenvs.core import Environment, TimeStep, VectorEnv, Wrapper
from jaxenvs.multi_agent import MultiAgentTimeStep
from jaxenvs.spaces import Dict, Space
from jaxenvs.wrappers._checks import check_single_agent
from jaxenvs.wrappers.vector import (
    BatchWrapper,
    InstanceView,
    View,
    WrappedVectorEnv,
    WrappedVectorState,
    batch_inside,
    map_instances,
)


@chex.dataclass(frozen=True)
class TransformState:
    """The wrapped state and the wrapper's memory."""

    inner: chex.ArrayTree  # the wrapped state
    memory: chex.ArrayTree  # the wrapper's memory of the current episode, None without memory


class Transform(BatchWrapper[TransformState]):
    """A wrapper that maps actions and timesteps and does not affect when episodes start or end.

    A subclass overrides the methods it needs. Each describes a single instance:

        on_reset(timestep) -> memory, timestep                 the first timestep of an episode
        on_action(memory, action, key) -> memory, action       before each step
        on_step(memory, timestep) -> memory, timestep          after each step

    It also overrides `observation_space` or `action_space` if it changes them. The memory is any
    pytree, with the same structure in all three methods. It is reset at the start of every episode.

    A transform never accesses the wrapped state, so it can wrap any `VectorEnv`, even one whose
    instances are not accessible.

    With several agents, `env.wrap(...)` transforms the actions and timesteps of each. Entries that
    it adds to `info` become dicts keyed by agent.

    Raises:
        WrapperError: the environment has several agents, and the constructor was called directly.
    """

    per_agent: ClassVar[bool] = True  # whether it supports a single agent only

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.per_agent:
            name = type(self).__name__
            check_single_agent(self, f"env.wrap({name}, ...) wraps each agent.")

    @classmethod
    def wrap_agents(cls, env: Environment, *args: Any, **kwargs: Any) -> Environment:
        if not cls.per_agent:
            return super().wrap_agents(env, *args, **kwargs)
        return TransformedAgents(
            env=env,
            transforms={
                # Without its environment, which must be in a tree only once.
                agent: _with_env(cls(AgentView(env, agent), *args, **kwargs), None)
                for agent in env.agents
            },
        )

    @classmethod
    def wrap_batch(cls, batch: VectorEnv, *args: Any, **kwargs: Any) -> VectorEnv:
        # Wrap the instances if possible: then their resets also reset the memory, which is cheaper.
        if type(batch).wrap_instances is VectorEnv.wrap_instances:
            return cls.wrap_whole(batch, *args, **kwargs)
        return super().wrap_batch(batch, *args, **kwargs)

    def on_reset(self, timestep: TimeStep) -> tuple[Any, TimeStep]:
        """Maps the first timestep of an episode and returns the initial memory."""
        return None, timestep

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        """Maps an action to one for the wrapped environment."""
        return memory, action

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        """Maps a timestep from the wrapped environment."""
        return memory, timestep

    def inner(self, state: TransformState) -> Any:
        return state.inner

    def reset(self, key: chex.PRNGKey) -> tuple[TransformState, TimeStep]:
        inner, timestep = self.env.reset(key)
        memory, timestep = self.on_reset(timestep)
        return TransformState(inner=inner, memory=memory), timestep

    def step(
        self, state: TransformState, action: Any, key: chex.PRNGKey
    ) -> tuple[TransformState, TimeStep]:
        memory, action = self.on_action(state.memory, action, _wrapper_key(self, key))
        inner, timestep = self.env.step(state.inner, action, key)
        memory, timestep = self.on_step(memory, timestep)
        return TransformState(inner=inner, memory=memory), timestep

    # The following methods are for a batch whose instances are not accessible. They have nothing in
    # common, so there are no statistics.

    def on_batch_reset(
        self, statistics: None, timestep: TimeStep, mask: jax.Array | None = None
    ) -> tuple[None, Any, TimeStep]:
        del mask  # rows do not depend on each other
        return statistics, *_map_timesteps(lambda each: self.on_reset(each), timestep)

    def on_batch_action(
        self, state: WrappedVectorState, action: Any, key: chex.PRNGKey
    ) -> tuple[Any, Any]:
        return map_instances(
            lambda memory, action, key: self.on_action(memory, action, _wrapper_key(self, key)),
            state.memory,
            jax.tree.map(jnp.asarray, action),
            _instance_keys(key, batch_inside(self).num_envs),
            like=state.inner,
        )

    def on_batch_step(
        self,
        statistics: None,
        memory: Any,
        timestep: TimeStep,
        acted: jax.Array | None = None,
        shown: jax.Array | None = None,
    ) -> tuple[None, Any, TimeStep]:
        del acted, shown  # rows do not depend on each other
        # Where an episode ended, observation and info belong to the next one.
        ended = timestep.replace(observation=timestep.final_observation, info=timestep.final_info)
        return statistics, *_map_timesteps(
            lambda memory, each: self.on_step(memory, each), ended, memory
        )

    def on_batch_autoreset(
        self, raw: TimeStep, memory: Any, timestep: TimeStep
    ) -> tuple[Any, TimeStep]:
        del memory, timestep  # of the episode before
        return self.on_batch_reset(None, _as_reset_timestep(raw))[1:]


class AgentView(View):
    """A placeholder for one agent of an environment, with its spaces only."""

    env: Environment
    agent: str = struct.static()

    @property
    def observation_space(self) -> Space:
        return cast("Dict", self.env.observation_space).spaces[self.agent]

    @property
    def action_space(self) -> Space:
        return cast("Dict", self.env.action_space).spaces[self.agent]

    @property
    def time_limit(self) -> chex.Numeric | None:
        return self.env.time_limit


class TransformedAgents(Wrapper[TransformState]):
    """An environment with a transform around each agent, whose memories are a dict."""

    transforms: dict[str, Transform]  # without an environment, see `_around`

    def inner(self, state: TransformState) -> Any:
        return state.inner

    @property
    def parameters(self) -> dict[str, Any]:
        return self.env.parameters

    @property
    def observation_space(self) -> Dict:
        return Dict({agent: self._around(agent).observation_space for agent in self.agents})

    @property
    def action_space(self) -> Dict:
        return Dict({agent: self._around(agent).action_space for agent in self.agents})

    def reset(self, key: chex.PRNGKey) -> tuple[TransformState, TimeStep]:
        inner, timestep = self.env.reset(key)
        return self._map(inner, timestep, lambda agent, each: self._around(agent).on_reset(each))

    def step(
        self, state: TransformState, action: Any, key: chex.PRNGKey
    ) -> tuple[TransformState, TimeStep]:
        own_key = _wrapper_key(self, key)
        memory, actions = {}, {}
        for i, agent in enumerate(self.agents):
            memory[agent], actions[agent] = self._around(agent).on_action(
                state.memory[agent], action[agent], jax.random.fold_in(own_key, np.uint32(i))
            )
        inner, timestep = self.env.step(state.inner, actions, key)
        return self._map(
            inner, timestep, lambda agent, each: self._around(agent).on_step(memory[agent], each)
        )

    def _map(
        self, inner: Any, timestep: TimeStep, hook: Callable[..., Any]
    ) -> tuple[TransformState, TimeStep]:
        timestep = cast("MultiAgentTimeStep", timestep)
        results = {agent: hook(agent, timestep.of(agent)) for agent in self.agents}
        memory = {agent: memory for agent, (memory, _) in results.items()}
        mapped = {agent: each for agent, (_, each) in results.items()}
        info, before = {}, timestep.info
        for name, value in mapped[self.agents[0]].info.items():
            is_kept = name in before and value is before[name]
            info[name] = value if is_kept else {a: mapped[a].info[name] for a in self.agents}
        return TransformState(inner=inner, memory=memory), timestep.replace(
            observation={agent: mapped[agent].observation for agent in self.agents},
            reward={agent: mapped[agent].reward for agent in self.agents},
            info=info,
        )

    def _around(self, agent: str) -> Transform:
        return _with_env(self.transforms[agent], AgentView(self.env, agent))


def _with_env(transform: Transform, env: Any) -> Transform:
    """Returns `transform` around `env`, which was checked before."""
    copied = copy.copy(transform)
    vars(copied)["env"] = env
    return copied


def _wrapper_key(transform: Wrapper, key: chex.PRNGKey) -> chex.PRNGKey:
    """Returns the key for `transform` to draw from in a step with `key`."""
    return keys.wrapper_key(key, _count_transforms(transform.env))


def _count_transforms(env: Any) -> int:
    """Returns the number of transforms in `env`, including those around its instances."""
    if isinstance(env, InstanceView):
        return _count_transforms(env.vector_env)
    if isinstance(env, WrappedVectorEnv):
        return _count_transforms(env.wrapper)
    # The instances inside a VectorEnv may be wrapped too.
    inside = getattr(env, "env", None)
    is_transform = isinstance(env, Transform | TransformedAgents)
    return is_transform + (0 if inside is None else _count_transforms(inside))


def _map_timesteps(hook: Callable[..., Any], timestep: TimeStep, *memory: Any) -> Any:
    """Maps `hook` over all instances and sets the final fields to the mapped result."""
    given = timestep.replace(final_observation=None, final_info=None)
    memory, timestep = map_instances(hook, *memory, given, like=given)
    return memory, timestep.replace(
        final_observation=timestep.observation, final_info=timestep.info
    )


def _as_reset_timestep(timestep: TimeStep) -> TimeStep:
    """Returns `timestep` with the reward and flags of a reset."""
    reward, *flags = jax.tree.map(
        jnp.zeros_like, (timestep.reward, timestep.terminated, timestep.truncated)
    )
    return timestep.replace(reward=reward, terminated=flags[0], truncated=flags[1])


def _instance_keys(key: chex.PRNGKey, num_envs: int) -> chex.PRNGKey:
    """Returns the keys of the instances, given one key or [N] keys."""
    key = prng.as_typed_key(key)
    if key.shape:
        return key
    return keys.instance_keys(key, jnp.arange(num_envs, dtype=jnp.uint32))
