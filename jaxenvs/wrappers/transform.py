"""Wrappers that map actions on the way in and timesteps on the way out."""

import dataclasses
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import prng, struct
from jaxenvs.core import AutoresetMode, Environment, TimeStep, VectorEnv, Wrapper
from jaxenvs.spaces import Space

# A transform draws from the instance's key folded with this number plus how many transforms it
# is around, so that it neither disturbs what it wraps nor repeats another one's draws.
_STREAM = np.uint32(0x57524150)


@chex.dataclass(frozen=True)
class TransformState:
    inner: chex.ArrayTree  # the wrapped state
    memory: chex.ArrayTree  # what the wrapper remembers of this episode, None for nothing


class Transform(Wrapper[TransformState]):
    """A wrapper that leaves it to the wrapped environment when an episode begins and ends.

    A subclass overrides those of the three methods that it needs, each about one instance:

        on_reset(timestep) -> memory, timestep                 the first timestep of an episode
        on_action(memory, action, key) -> memory, action       before each step
        on_step(memory, timestep) -> memory, timestep          after each step

    and `observation_space` or `action_space` where it changes what lies in them. The memory is
    any pytree, the same from all three. It begins anew with every episode.

    Because it never touches the state of what it wraps, such a wrapper goes around any
    `VectorEnv`, instances out of its reach included.
    """

    def __new__(cls, env: Any = None, *args: Any, **kwargs: Any) -> Any:
        # Where the instances can be reached, their resets also begin the memory anew, at the
        # price of what finished; elsewhere it is done beside them.
        if isinstance(env, VectorEnv) and type(env).wrap is VectorEnv.wrap:
            return TransformedVectorEnv(cls(_InstanceOf(env), *args, **kwargs))
        return super().__new__(cls, env, *args, **kwargs)

    def on_reset(self, timestep: TimeStep) -> tuple[Any, TimeStep]:
        """Begins the memory of an episode and maps its first timestep."""
        return None, timestep

    def on_action(self, memory: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, Any]:
        """Maps an action to what the wrapped environment is given."""
        return memory, action

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        """Maps what the wrapped environment returned."""
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
        memory, action = self.on_action(state.memory, action, wrapper_key(self, key))
        inner, timestep = self.env.step(state.inner, action, key)
        memory, timestep = self.on_step(memory, timestep)
        return TransformState(inner=inner, memory=memory), timestep


def wrapper_key(transform: Transform, key: chex.PRNGKey) -> chex.PRNGKey:
    """The key that `transform` draws from in a step whose key is `key`."""
    return jax.random.fold_in(key, _STREAM + np.uint32(_transforms_within(transform.env)))


def _transforms_within(env: Any) -> int:
    if isinstance(env, _InstanceOf):
        inside = env.vector_env
        return _transforms_within(
            inside.transform if isinstance(inside, TransformedVectorEnv) else None
        )
    if not isinstance(env, Wrapper):
        return 0
    return isinstance(env, Transform) + _transforms_within(env.env)


class _InstanceOf(Environment[Any]):
    """Stands for one instance of a `VectorEnv`, of which a transform sees the spaces alone."""

    vector_env: VectorEnv

    @property
    def observation_space(self) -> Space:
        return self.vector_env.single_observation_space

    @property
    def action_space(self) -> Space:
        return self.vector_env.single_action_space

    @property
    def parameters(self) -> dict[str, Any]:
        return self.vector_env.parameters

    def __repr__(self) -> str:
        return repr(self.vector_env)

    def reset(self, key: chex.PRNGKey) -> Any:
        raise NotImplementedError

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> Any:
        raise NotImplementedError

    def replace(self, **changes: Any) -> "_InstanceOf":
        return dataclasses.replace(self, vector_env=self.vector_env.replace(**changes))


@chex.dataclass(frozen=True)
class TransformedState:
    inner: chex.ArrayTree  # the state of the wrapped VectorEnv
    memory: chex.ArrayTree  # [N, ...]
    last: Any  # TimeStep [N, ...] under "disabled", bool[N] finished under "next_step", else None


@struct.pytree_dataclass
class TransformedVectorEnv(VectorEnv[TransformedState]):
    """A transform around each instance of a `VectorEnv` that resets its instances itself."""

    transform: Transform

    @property
    def env(self) -> VectorEnv:
        """The `VectorEnv` inside."""
        instance = self.transform.env
        assert isinstance(instance, _InstanceOf)
        return instance.vector_env

    @property
    def num_envs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.num_envs

    @property
    def autoreset(self) -> AutoresetMode:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.autoreset

    @property
    def single_observation_space(self) -> Space:
        return self.transform.observation_space

    @property
    def single_action_space(self) -> Space:
        return self.transform.action_space

    @property
    def parameters(self) -> dict[str, Any]:
        return self.transform.parameters

    def replace(self, **changes: Any) -> "TransformedVectorEnv":
        return dataclasses.replace(self, transform=self.transform.replace(**changes))

    def __repr__(self) -> str:
        return repr(self.transform)

    def render(self, state: TransformedState, index: int = 0) -> jax.Array:
        return self.env.render(state.inner, index)

    def reset(self, key: chex.PRNGKey) -> tuple[TransformedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        memory, timestep = self._first(timestep)
        return self._pack(inner, memory, timestep), timestep

    def reset_where(
        self, mask: jax.Array, state: TransformedState, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[TransformedState, TimeStep]:
        # The given rows are mapped already: only their places are needed inside.
        shape = jax.eval_shape(self.env.reset, key)[1]
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        inner, fresh = self.env.reset_where(mask, state.inner, blank, key)
        memory, timestep = _select(mask, self._first(fresh), (state.memory, timestep))
        return self._pack(inner, memory, timestep), timestep

    def step(
        self, state: TransformedState, action: Any, key: chex.PRNGKey
    ) -> tuple[TransformedState, TimeStep]:
        keys = _instance_keys(key, self.num_envs)
        memory, action = jax.vmap(
            lambda memory, action, key: self.transform.on_action(
                memory, action, wrapper_key(self.transform, key)
            )
        )(state.memory, action, keys)
        inner, timestep = self.env.step(state.inner, action, key)
        raw = timestep.observation  # of a new episode already, where one ended in this step
        memory, timestep = self._each(
            lambda memory, timestep: self.transform.on_step(memory, timestep),
            timestep.replace(observation=timestep.final_observation),
            memory,
        )
        if self.autoreset == "same_step":
            begun, first = self._first(_as_first(timestep.replace(observation=raw)))
            memory, observation = _select(
                timestep.done, (begun, first.observation), (memory, timestep.observation)
            )
            timestep = timestep.replace(observation=observation)
        elif self.autoreset == "next_step":
            begun = self._first(_as_first(timestep.replace(observation=raw)))
            memory, timestep = _select(state.last, begun, (memory, timestep))
        else:
            frozen = state.last.replace(reward=jnp.zeros_like(timestep.reward))
            memory, timestep = _select(state.last.done, (state.memory, frozen), (memory, timestep))
        return self._pack(inner, memory, timestep), timestep

    def _first(self, timestep: TimeStep) -> tuple[Any, TimeStep]:
        return self._each(lambda timestep: self.transform.on_reset(timestep), timestep)

    def _each(self, hook: Callable[..., Any], timestep: TimeStep, *memory: Any) -> Any:
        """Maps one instance's hook over all; the observation given is the one that counts."""
        memory, timestep = jax.vmap(hook)(*memory, timestep.replace(final_observation=None))
        return memory, timestep.replace(final_observation=timestep.observation)

    def _pack(self, inner: Any, memory: Any, timestep: TimeStep) -> TransformedState:
        last = {"same_step": None, "next_step": timestep.done, "disabled": timestep}
        return TransformedState(inner=inner, memory=memory, last=last[self.autoreset])


def _as_first(timestep: TimeStep) -> TimeStep:
    """The same timestep as one from `reset`."""
    reward, *flags = jax.tree.map(
        jnp.zeros_like, (timestep.reward, timestep.terminated, timestep.truncated)
    )
    return timestep.replace(reward=reward, terminated=flags[0], truncated=flags[1])


def _instance_keys(key: chex.PRNGKey, num_envs: int) -> chex.PRNGKey:
    """The keys that instances draw from, as `VectorEnv` says."""
    key = prng.as_typed_key(key)
    if key.shape:
        return key
    indices = jnp.arange(num_envs, dtype=jnp.uint32)
    return jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, indices)


def _select(mask: jax.Array, true: chex.ArrayTree, false: chex.ArrayTree) -> Any:
    return jax.tree.map(
        lambda t, f: jnp.where(mask.reshape(mask.shape + (1,) * (t.ndim - 1)), t, f), true, false
    )
