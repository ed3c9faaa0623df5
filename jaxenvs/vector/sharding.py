"""Laying instances over the devices of a mesh."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, reshard

from jaxenvs.errors import ShardingError, closest


def check_mesh(mesh: Any, mesh_axis: str | None, num_envs: int) -> str:
    """Returns the axis of `mesh` to lay `num_envs` instances over: its first, unless named.

    Raises:
        ShardingError: not a mesh, no such axis, or N is not divisible by the axis.
    """
    if not isinstance(mesh, Mesh):
        raise ShardingError(
            f"mesh must be a jax.sharding.Mesh, got {type(mesh).__name__}."
            '  Make one with jax.make_mesh((jax.device_count(),), ("env",)).'
        )
    axis = mesh.axis_names[0] if mesh_axis is None else mesh_axis
    if axis not in mesh.axis_names:
        raise ShardingError(
            f'the mesh has no axis "{axis}"; it has {list(mesh.axis_names)}.'
            f"{closest(str(axis), mesh.axis_names)}"
        )
    size = mesh.shape[axis]
    if num_envs % size:
        lower, upper = num_envs // size * size, -(-num_envs // size) * size
        choice = f"{upper}" if lower == 0 else f"{lower} or {upper}"
        raise ShardingError(
            f'num_envs={num_envs} cannot be divided by the {size} devices of mesh axis "{axis}".'
            f"  Take num_envs={choice}, or a mesh of another size."
        )
    return axis


def over_mesh(
    call: Callable[..., Any], mesh: Mesh, axis: str, env: Any, env_axes: Any, key: Any, args: Any
) -> Any:
    """Runs `call(env, key, first, *args)` once per shard; `first` is the shard's first instance.

    Args:
        call: what to run on the instances of one device.
        mesh: the mesh.
        axis: the name of the axis that instances are laid over.
        env: the environment; its parameters are replicated, but for the batched ones.
        env_axes: a tree like `env`: 0 where a parameter is batched, else None.
        key: the key that all shards share.
        args: trees of [N, ...], divided over the axis.
    """
    split, copied = PartitionSpec(axis), PartitionSpec()
    leaves, treedef = jax.tree.flatten(env)
    axes = treedef.flatten_up_to(env_axes)
    # Numbers that all shards share are constants of the program, as without a mesh: passed in,
    # they are folded at another time, which older compilers round otherwise.
    fixed = [
        a is None and not isinstance(leaf, jax.Array) for a, leaf in zip(axes, leaves, strict=True)
    ]
    env = [None if f else leaf for f, leaf in zip(fixed, leaves, strict=True)]
    env_specs = [copied if a is None else split for a in axes]

    def on_shard(env: Any, key: Any, args: Any) -> Any:
        whole = [c if f else leaf for f, c, leaf in zip(fixed, leaves, env, strict=True)]
        return call(jax.tree.unflatten(treedef, whole), key, lax.axis_index(axis), *args)

    if mesh.axis_types[mesh.axis_names.index(axis)] == AxisType.Explicit:
        # There shapes carry their sharding, and what was made without one must be given it.
        sharding = NamedSharding(mesh, split)
        args = jax.tree.map(lambda leaf: reshard(leaf, sharding), args)
        env = [
            leaf if a is None else reshard(leaf, sharding)
            for a, leaf in zip(axes, env, strict=True)
        ]
    # Every shard works alone, so there is no replication for JAX to check.
    return jax.shard_map(
        on_shard,
        mesh=mesh,
        in_specs=(env_specs, copied, split),
        out_specs=split,
        check_vma=False,
    )(env, key, args)


def mesh_as_data(mesh: Mesh | None) -> Any:
    """What `mesh_from_data` rebuilds the mesh from, in this process or in one like it."""
    if mesh is None:
        return None
    ids = np.vectorize(lambda device: device.id, otypes=[int])(mesh.devices)
    return ids, mesh.axis_names, tuple(kind.name for kind in mesh.axis_types)


def mesh_from_data(data: Any) -> Mesh | None:
    """The mesh over the devices of the same numbers.

    Raises:
        ShardingError: this process has no such devices.
    """
    if data is None:
        return None
    ids, names, kinds = data
    known = {device.id: device for device in jax.devices()}
    if missing := sorted({int(i) for i in ids.ravel()} - known.keys()):
        raise ShardingError(
            f"a pickled mesh lies over devices {missing}, which are not here: jax.devices() has"
            f" {sorted(known)}.  Make the environment with a mesh of this process."
        )
    devices = np.vectorize(known.__getitem__, otypes=[object])(ids)
    return Mesh(devices, names, axis_types=tuple(AxisType[kind] for kind in kinds))
