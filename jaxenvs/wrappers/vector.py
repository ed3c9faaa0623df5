"""Base classes for wrappers that wrap a `VectorEnv` as a whole."""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec, reshard

from jaxenvs import struct
from jaxenvs.core import (
    AutoresetMode,
    Environment,
    TimeStep,
    VectorEnv,
    Wrapper,
)
from jaxenvs.parameters import check_numbers
from jaxenvs.spaces import Space


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
    """A `VectorEnv` around another one."""

    env: VectorEnv  # a subclass has it as a field or a property

    @property
    def num_envs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.num_envs

    @property
    def autoreset_mode(self) -> AutoresetMode:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.autoreset_mode

    @property
    def is_staggered(self) -> bool:
        return self.env.is_staggered

    def close(self) -> None:
        self.env.close()


@struct.pytree_dataclass
class WrappedVectorEnv(OuterVectorEnv):
    """A `VectorEnv` that is wrapped as a whole.

    The field `wrapper` is a wrapper around an `InstanceView` of the wrapped `VectorEnv`. A subclass
    defines `reset`, `step` and `reset_where`. Its state has a field `inner`, the wrapped state.
    """

    wrapper: Wrapper

    def __post_init__(self) -> None:
        check_numbers(self.wrapper)

    @property
    def env(self) -> VectorEnv:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The wrapped `VectorEnv`."""
        instance = self.wrapper.env
        assert isinstance(instance, InstanceView)
        return instance.vector_env

    @property
    def agents(self) -> tuple[str, ...]:
        return self.env.agents

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

    def _reset_inner_where(
        self, mask: jax.Array, inner: Any, key: chex.PRNGKey
    ) -> tuple[Any, TimeStep]:
        """Resets instances of the wrapped `VectorEnv` where `mask` is true.

        Rows of the timestep where `mask` is false are meaningless.
        """
        # The caller's timestep is already mapped and may have a different tree structure, so pass
        # zeros instead.
        shape = jax.eval_shape(self.env.reset, key)[1]
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shape)
        return self.env.reset_where(mask, inner, blank, key)

    def _last_for_state(self, timestep: TimeStep) -> Any:
        """Returns what the next step needs to know about this timestep.

        This is the timestep itself with "disabled", the finished flags, bool[N], with "next_step",
        and None with "same_step".
        """
        return {"same_step": None, "next_step": timestep.done, "disabled": timestep}[
            self.autoreset_mode
        ]


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
