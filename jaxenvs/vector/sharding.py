"""Distribution of instances over the devices of a mesh."""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, reshard


def over_mesh(
    call: Callable[..., Any], mesh: Mesh, axis: str, env: Any, env_axes: Any, key: Any, args: Any
) -> Any:
    """Runs `call(env, key, shard, *args)` on every shard; `shard` is the index of the shard.

    Args:
        call: the function to run on the instances of one device.
        mesh: the mesh.
        axis: the name of the mesh axis that instances are sharded over.
        env: the environment. Batched parameters are sharded; all others are replicated.
        env_axes: a tree like `env`: 0 if a parameter is batched, otherwise None.
        key: the key, the same for all shards.
        args: trees of [N, ...] arrays, sharded over the axis.
    """
    split, copied = PartitionSpec(axis), PartitionSpec()
    leaves, treedef = jax.tree.flatten(env)
    axes = treedef.flatten_up_to(env_axes)
    # Keep Python and NumPy numbers that all shards share as constants of the program, as without a
    # mesh. If they were arguments, constant folding would happen at a different time, and older
    # compilers would round differently.
    fixed = [
        a is None and not isinstance(leaf, jax.Array) for a, leaf in zip(axes, leaves, strict=True)
    ]
    env = [None if f else leaf for f, leaf in zip(fixed, leaves, strict=True)]
    env_specs = [copied if a is None else split for a in axes]

    def on_shard(env: Any, key: Any, args: Any) -> Any:
        whole = [c if f else leaf for f, c, leaf in zip(fixed, leaves, env, strict=True)]
        return call(jax.tree.unflatten(treedef, whole), key, lax.axis_index(axis), *args)

    if mesh.axis_types[mesh.axis_names.index(axis)] == AxisType.Explicit:
        # On an explicit mesh, sharding is part of the type, so inputs without one need it set here.
        sharding = NamedSharding(mesh, split)
        args = jax.tree.map(lambda leaf: reshard(leaf, sharding), args)
        env = [
            leaf if a is None else reshard(leaf, sharding)
            for a, leaf in zip(axes, env, strict=True)
        ]
    # Shards do not communicate, so there is no replication for JAX to check.
    return jax.shard_map(
        on_shard,
        mesh=mesh,
        in_specs=(env_specs, copied, split),
        out_specs=split,
        check_vma=False,
    )(env, key, args)
