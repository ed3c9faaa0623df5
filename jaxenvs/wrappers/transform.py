"""The base class of wrappers that transform actions and timesteps."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs import keys, prng, struct
from jaxenvs.core import TimeStep, VectorEnv, Wrapper
from jaxenvs.struct import select
from jaxenvs.wrappers.vector import InstanceView, WrappedVectorEnv, each, laid_like


@chex.dataclass(frozen=True)
class TransformState:
    inner: chex.ArrayTree  # the wrapped state
    memory: chex.ArrayTree  # what the wrapper remembers of this episode; None if nothing


class Transform(Wrapper[TransformState]):
    """A wrapper that changes actions and timesteps, but not when episodes start and end.

    A subclass overrides the methods that it needs. Each describes one instance:

        on_reset(timestep) -> memory, timestep                 the first timestep of an episode
        on_action(memory, action, key) -> memory, action       before each step
        on_step(memory, timestep) -> memory, timestep          after each step

    It also overrides `observation_space` or `action_space` if their members change. The memory is
    a pytree of the same structure from all three methods. Each episode starts with a new one.

    A transform never accesses the state of the wrapped environment, so it can wrap any
    `VectorEnv`, including one that does not expose its instances.
    """

    @classmethod
    def wrap_batch(cls, batch: VectorEnv, *args: Any, **kwargs: Any) -> VectorEnv:
        # Inside the instances, their resets also clear the memory, which costs less.
        if type(batch).wrap_instances is VectorEnv.wrap_instances:
            return TransformedVectorEnv(cls(InstanceView(batch), *args, **kwargs))
        return super().wrap_batch(batch, *args, **kwargs)

    def on_reset(self, timestep: TimeStep) -> tuple[Any, TimeStep]:
        """Returns the memory that an episode starts with, and its first timestep, transformed."""
        return None, timestep

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        """Returns the memory and the action that the wrapped environment is given."""
        return memory, action

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        """Returns the memory and the transformed timestep."""
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
        memory, action = self.on_action(state.memory, action, _own_key(self, key))
        inner, timestep = self.env.step(state.inner, action, key)
        memory, timestep = self.on_step(memory, timestep)
        return TransformState(inner=inner, memory=memory), timestep


def _own_key(transform: Transform, key: chex.PRNGKey) -> chex.PRNGKey:
    """Returns the key that `transform` draws from in a step with the key `key`."""
    return keys.wrapper_key(key, _transforms_within(transform.env))


def _transforms_within(env: Any) -> int:
    if isinstance(env, InstanceView):
        return _transforms_within(env.vector_env)
    if isinstance(env, WrappedVectorEnv):
        return _transforms_within(env.wrapper)
    # A VectorEnv may have instances of one environment inside, with wrappers of their own.
    inside = getattr(env, "env", None)
    return isinstance(env, Transform) + (0 if inside is None else _transforms_within(inside))


@chex.dataclass(frozen=True)
class TransformedState:
    inner: chex.ArrayTree  # the state of the wrapped VectorEnv
    memory: chex.ArrayTree  # [N, ...]
    last: Any  # what the next step needs, see `WrappedVectorEnv._last`


@struct.pytree_dataclass
class TransformedVectorEnv(WrappedVectorEnv):
    """A `VectorEnv` whose instances are transformed from outside."""

    wrapper: Transform

    def reset(self, key: chex.PRNGKey) -> tuple[TransformedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        memory, timestep = self._first(timestep)
        return self._pack(inner, memory, timestep), timestep

    def reset_where(
        self, mask: jax.Array, state: TransformedState, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[TransformedState, TimeStep]:
        inner, fresh = self._reset_inside(mask, state.inner, key)
        mask = laid_like(state.inner, jnp.asarray(mask))
        memory, timestep = select(mask, self._first(fresh), (state.memory, timestep))
        return self._pack(inner, memory, timestep), timestep

    def step(
        self, state: TransformedState, action: Any, key: chex.PRNGKey
    ) -> tuple[TransformedState, TimeStep]:
        memory, action = each(
            lambda memory, action, key: self.wrapper.on_action(
                memory, action, _own_key(self.wrapper, key)
            ),
            state.memory,
            jax.tree.map(jnp.asarray, action),
            _instance_keys(key, self.num_envs),
            like=state.inner,
        )
        inner, timestep = self.env.step(state.inner, action, key)
        raw = timestep  # where an episode ended, observation and info belong to the next one
        memory, timestep = self._each(
            lambda memory, timestep: self.wrapper.on_step(memory, timestep),
            timestep.replace(observation=timestep.final_observation, info=timestep.final_info),
            memory,
        )
        if self.autoreset_mode == "same_step":
            begun, first = self._first(_as_first(raw))
            memory, observation, info = select(
                timestep.done,
                (begun, first.observation, first.info),
                (memory, timestep.observation, timestep.info),
            )
            timestep = timestep.replace(observation=observation, info=info)
        elif self.autoreset_mode == "next_step":
            begun = self._first(_as_first(raw))
            memory, timestep = select(state.last, begun, (memory, timestep))
        else:
            frozen = state.last.replace(reward=jnp.zeros_like(timestep.reward))
            memory, timestep = select(state.last.done, (state.memory, frozen), (memory, timestep))
        return self._pack(inner, memory, timestep), timestep

    def _first(self, timestep: TimeStep) -> tuple[Any, TimeStep]:
        return self._each(lambda timestep: self.wrapper.on_reset(timestep), timestep)

    def _each(self, hook: Callable[..., Any], timestep: TimeStep, *memory: Any) -> Any:
        """Maps a method that describes one instance over all instances."""
        given = timestep.replace(final_observation=None, final_info=None)
        memory, timestep = each(hook, *memory, given, like=given)
        return memory, timestep.replace(
            final_observation=timestep.observation, final_info=timestep.info
        )

    def _pack(self, inner: Any, memory: Any, timestep: TimeStep) -> TransformedState:
        return TransformedState(inner=inner, memory=memory, last=self._last(timestep))


def _as_first(timestep: TimeStep) -> TimeStep:
    """Returns the timestep with the reward and flags that `reset` returns."""
    reward, *flags = jax.tree.map(
        jnp.zeros_like, (timestep.reward, timestep.terminated, timestep.truncated)
    )
    return timestep.replace(reward=reward, terminated=flags[0], truncated=flags[1])


def _instance_keys(key: chex.PRNGKey, num_envs: int) -> chex.PRNGKey:
    """Returns the keys of the instances, as `VectorEnv` defines them."""
    key = prng.as_typed_key(key)
    if key.shape:
        return key
    return keys.instance_keys(key, jnp.arange(num_envs, dtype=jnp.uint32))
