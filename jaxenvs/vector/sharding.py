"""Laying instances over the devices of a mesh."""

from collections.abc import Callable
from typing import Any

import jax
from jax import lax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec, reshard


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
