"""Base classes for wrappers that wrap a `VectorEnv` as a whole."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self, TypeVar

import chex
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec, reshard

from jaxenvs import struct
from jaxenvs.core import AutoresetMode, Environment, TimeStep, VectorEnv, Wrapper
from jaxenvs.parameters import check_numbers
from jaxenvs.spaces import Space
from jaxenvs.struct import select

S = TypeVar("S")


class View(Environment[Any]):
    """A placeholder for a part of an environment, which knows its spaces but cannot run."""

    def reset(self, key: chex.PRNGKey) -> Any:
        raise NotImplementedError

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> Any:
        raise NotImplementedError


class InstanceView(View):
    """A placeholder for one instance of a `VectorEnv`, with its spaces and parameters only."""

    vector_env: VectorEnv

    @property
    def agents(self) -> tuple[str, ...]:
        return self.vector_env.agents

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

    def replace(self, **changes: Any) -> "InstanceView":
        return dataclasses.replace(self, vector_env=self.vector_env.replace(**changes))


class OuterVectorEnv(VectorEnv[Any]):
    """A `VectorEnv` around another one, which it passes on where a subclass does not.

    Such a class wraps only batches: `vector_env.wrap(IndependentAgents)`.
    """

    env: VectorEnv  # a subclass has it as a field or a property

    @property
    def unwrapped(self) -> VectorEnv:
        return self.env.unwrapped

    @property
    def num_envs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.num_envs

    @property
    def autoreset_mode(self) -> AutoresetMode:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.autoreset_mode

    @property
    def is_staggered(self) -> bool:
        return self.env.is_staggered

    @property
    def agents(self) -> tuple[str, ...]:
        return self.env.agents

    @property
    def single_observation_space(self) -> Space:
        return self.env.single_observation_space

    @property
    def single_action_space(self) -> Space:
        return self.env.single_action_space

    @property
    def parameters(self) -> dict[str, Any]:
        return self.env.parameters

    def replace(self, **changes: Any) -> Self:
        return struct.replace(self, env=self.env.replace(**changes))

    def at_levels(self, levels: Any) -> Self:
        return struct.replace(self, env=self.env.at_levels(levels))

    def close(self) -> None:
        self.env.close()


class BatchWrapper(Wrapper[S]):
    """A wrapper that can wrap a `VectorEnv` as a whole.

    Its environment is then an `InstanceView`, and the methods below map what goes into and comes
    out of the batch. Each leaf has a leading [N] axis, except those of `statistics`, which all
    instances share.
    """

    @classmethod
    def wrap_whole(cls, batch: VectorEnv, *args: Any, **kwargs: Any) -> VectorEnv:
        """Wraps `batch` as a whole. A subclass calls it in `wrap_batch`."""
        return WrappedVectorEnv(cls(InstanceView(batch), *args, **kwargs))

    def on_batch_reset(
        self, statistics: Any, timestep: TimeStep, mask: jax.Array | None = None
    ) -> tuple[Any, Any, TimeStep]:
        """Maps a timestep from `reset`. Returns statistics, memory, and the timestep.

        Args:
            statistics: the statistics before the reset; None to start them.
            timestep: the timestep from the wrapped batch.
            mask: bool[N], the rows that count; None for all.
        """
        raise NotImplementedError

    def on_batch_action(
        self, state: "WrappedVectorState", action: Any, key: chex.PRNGKey
    ) -> tuple[Any, Any]:
        """Maps actions before a step. Returns the memory and the actions."""
        del key  # for subclasses
        return state.memory, action

    def on_batch_step(
        self,
        statistics: Any,
        memory: Any,
        timestep: TimeStep,
        acted: jax.Array | None = None,
        shown: jax.Array | None = None,
    ) -> tuple[Any, Any, TimeStep]:
        """Maps a timestep from `step`. Returns statistics, memory, and the timestep.

        Args:
            statistics: the statistics before the step.
            memory: the memory before the step.
            timestep: the timestep from the wrapped batch.
            acted: bool[N], the instances that took an action: those that were not already
                finished. None for all.
            shown: bool[N], the instances with a new observation: those that do not stay
                finished. None for all.
        """
        raise NotImplementedError

    def on_batch_autoreset(
        self, raw: TimeStep, memory: Any, timestep: TimeStep
    ) -> tuple[Any, TimeStep]:
        """Returns memory and timestep for instances that began an episode in a step.

        Args:
            raw: the timestep from the wrapped batch.
            memory: the memory from `on_batch_step`.
            timestep: the timestep from `on_batch_step`.
        """
        raise NotImplementedError

    def frozen(self, timestep: TimeStep) -> TimeStep:
        """Returns what instances go on to return after they finished with `timestep`."""
        return timestep.replace(reward=jax.tree.map(jnp.zeros_like, timestep.reward))


@chex.dataclass(frozen=True)
class WrappedVectorState:
    """The state of a `WrappedVectorEnv`."""

    inner: chex.ArrayTree  # the state of the wrapped batch
    statistics: Any  # of all instances together; None if the wrapper has none
    memory: chex.ArrayTree  # [N, ...], what the wrapper remembers of the current episodes
    # What the next step needs to know of the last one: its timestep with "disabled", the finished
    # flags, bool[N], with "next_step", and None with "same_step".
    last: Any


@struct.pytree_dataclass
class WrappedVectorEnv(OuterVectorEnv):
    """A `VectorEnv` that is wrapped as a whole, in every mode of autoreset.

    The field `wrapper` is around an `InstanceView` of the wrapped `VectorEnv`.
    """

    wrapper: BatchWrapper

    def __post_init__(self) -> None:
        check_numbers(self.wrapper)

    @property
    def env(self) -> VectorEnv:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The wrapped `VectorEnv`."""
        return batch_inside(self.wrapper)

    @property
    def single_observation_space(self) -> Space:
        return self.wrapper.observation_space

    @property
    def single_action_space(self) -> Space:
        return self.wrapper.action_space

    @property
    def parameters(self) -> dict[str, Any]:
        return self.wrapper.parameters

    def replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, wrapper=self.wrapper.replace(**changes))

    def __repr__(self) -> str:
        return repr(self.wrapper)

    def render(self, state: Any, index: int = 0) -> jax.Array:
        return self.env.render(state.inner, index)

    def at_levels(self, levels: Any) -> Self:
        instance = InstanceView(self.env.at_levels(levels))
        return dataclasses.replace(self, wrapper=struct.replace(self.wrapper, env=instance))

    def reset(self, key: chex.PRNGKey) -> tuple[WrappedVectorState, TimeStep]:
        inner, timestep = self.env.reset(key)
        return self._outputs(inner, *self.wrapper.on_batch_reset(None, timestep))

    def reset_where(
        self, mask: jax.Array, state: WrappedVectorState, timestep: TimeStep, key: chex.PRNGKey
    ) -> tuple[WrappedVectorState, TimeStep]:
        # The caller's timestep is already mapped and may have a different tree structure, so pass
        # zeros instead. Rows of the result where `mask` is false are meaningless.
        shape = jax.eval_shape(self.env.reset, key)[1]
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        inner, fresh = self.env.reset_where(mask, state.inner, blank, key)
        mask = shard_like(state.inner, jnp.asarray(mask))
        statistics, memory, fresh = self.wrapper.on_batch_reset(state.statistics, fresh, mask)
        memory, timestep = select(mask, (memory, fresh), (state.memory, timestep))
        return self._outputs(inner, statistics, memory, timestep)

    def step(
        self, state: WrappedVectorState, action: Any, key: chex.PRNGKey
    ) -> tuple[WrappedVectorState, TimeStep]:
        wrapper, mode, last = self.wrapper, self.autoreset_mode, state.last
        memory, action = wrapper.on_batch_action(state, action, key)
        inner, raw = self.env.step(state.inner, action, key)
        acted = shown = None
        if mode == "next_step":
            acted = ~last
        elif mode == "disabled":
            acted = shown = ~last.done
        statistics, *mapped = wrapper.on_batch_step(state.statistics, memory, raw, acted, shown)
        if mode == "disabled":
            kept = (state.memory, wrapper.frozen(last))
            memory, timestep = select(last.done, kept, tuple(mapped))
        elif mode == "next_step":
            begun = wrapper.on_batch_autoreset(raw, *mapped)
            memory, timestep = select(last, begun, tuple(mapped))
        else:
            memory, timestep = mapped
            new_memory, first = wrapper.on_batch_autoreset(raw, memory, timestep)
            memory, observation, info = select(
                timestep.done,
                (new_memory, first.observation, first.info),
                (memory, timestep.observation, timestep.info),
            )
            timestep = timestep.replace(observation=observation, info=info)
        return self._outputs(inner, statistics, memory, timestep)

    def _outputs(
        self, inner: Any, statistics: Any, memory: Any, timestep: TimeStep
    ) -> tuple[WrappedVectorState, TimeStep]:
        lasts = {"same_step": None, "next_step": timestep.done, "disabled": timestep}
        last = lasts[self.autoreset_mode]
        state = WrappedVectorState(inner=inner, statistics=statistics, memory=memory, last=last)
        return state, timestep


def batch_inside(wrapper: Wrapper) -> VectorEnv:
    """Returns the `VectorEnv` that `wrapper` wraps as a whole."""
    instance = wrapper.env
    assert isinstance(instance, InstanceView)
    return instance.vector_env


def shard_like(reference: chex.ArrayTree, tree: chex.ArrayTree) -> Any:
    """Shards `tree`, [N, ...], like `reference` if that lies on an explicit mesh.

    On an explicit mesh, operations do not accept arrays with different shardings.
    """
    rows = _explicit_row_sharding(reference)
    return tree if rows is None else jax.tree.map(lambda x: reshard(x, rows), tree)


def map_instances(function: Callable[..., Any], *args: chex.ArrayTree, like: chex.ArrayTree) -> Any:
    """Maps a function of one instance over trees of [N, ...] arrays.

    If `like` lies on an explicit mesh, every device maps its own rows, because `vmap` does not
    support every operation on arrays with explicit shardings.
    """
    mapped, rows = jax.vmap(function), _explicit_row_sharding(like)
    if rows is None:
        return mapped(*args)
    on_devices = jax.shard_map(
        mapped, mesh=rows.mesh, in_specs=rows.spec, out_specs=rows.spec, check_vma=False
    )
    return on_devices(*shard_like(like, args))


def _explicit_row_sharding(tree: chex.ArrayTree) -> NamedSharding | None:
    """Returns how `tree`, [N, ...], is sharded over an explicit mesh; None if it is not."""
    for leaf in jax.tree.leaves(tree):
        sharding = jax.typeof(leaf).sharding
        if leaf.ndim and sharding.spec[0] and AxisType.Explicit in sharding.mesh.axis_types:
            mesh = getattr(getattr(leaf, "sharding", None), "mesh", sharding.mesh)
            return NamedSharding(mesh, PartitionSpec(sharding.spec[0]))
    return None
