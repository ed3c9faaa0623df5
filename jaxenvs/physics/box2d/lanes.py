"""Functions of arrays with lanes last, [..., L], and of arrays of rows, [N, ...]."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxenvs._cpu.chunks import overwrite_where
from jaxenvs.physics.box2d.geometry import Array


def chunk_of(number: int, parts: int) -> int | None:
    """Returns the size of the chunks of `overwrite_where`, None for all rows at once."""
    if jax.default_backend() != "cpu":  # where loops cost more than rows
        return None
    return max(1, number // parts)


def in_batches(compute: Callable[..., Any]) -> Callable[..., Any]:
    """Turns a function of worlds [N, ...] into one of a single world, for `vmap`.

    Each batch is one call of the function; nested `vmap`s make one batch.
    """
    batched = custom_vmap(compute)

    @batched.def_vmap
    def _(size: int, in_batched: Any, *args: Any) -> tuple[Any, Any]:
        args = jax.tree.map(
            lambda x, is_batched: x if is_batched else jnp.broadcast_to(x, (size, *x.shape)),
            args,
            tuple(in_batched),
        )
        shape = jax.tree.leaves(args)[0].shape[:2]
        new = batched(*jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), args))
        new = jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), new)
        return new, jax.tree.map(lambda _: True, new)

    def compute_one(*args: Any) -> Any:
        return jax.tree.map(lambda x: x[0], batched(*jax.tree.map(lambda x: x[None], args)))

    return compute_one


def on_lanes(compute: Any, mask: Array, inputs: Any, outputs: Any) -> Any:
    """Returns `outputs` with `compute(inputs)` in the lanes of `mask`.

    Inputs and outputs are trees of arrays with lanes last.
    """
    rows, unpack_inputs = pack(inputs)
    old, unpack_outputs = pack(outputs)

    def at(rows: Array, indices: Array) -> Array:
        return pack(compute(unpack_inputs(rows_at(rows, indices))))[0]

    return unpack_outputs(overwrite_where(at, chunk_of(len(rows), 4), mask, rows, old))


def pack(tree: Any) -> tuple[Array, Any]:
    """Packs arrays with L lanes into float32[L, R]. Returns it and the inverse function.

    Gathering rows of one array is faster than gathering elements of many.
    """
    leaves, structure = jax.tree.flatten(tree)
    lanes = leaves[0].shape[-1]
    rows = [leaf.reshape(-1, lanes).astype(jnp.float32) for leaf in leaves]
    sizes = np.cumsum([len(row) for row in rows])

    def unpack(packed: Array) -> Any:
        parts = jnp.split(packed.T, sizes[:-1])
        return structure.unflatten(
            [
                part.reshape(*leaf.shape[:-1], len(packed)).astype(leaf.dtype)
                for part, leaf in zip(parts, leaves, strict=True)
            ]
        )

    return jnp.concatenate(rows).T, unpack


def rows_at(tree: Any, indices: Array) -> Any:
    """Returns rows of arrays [N, ...]; the last one where indices are out of range."""
    return jax.tree.map(lambda x: x[jnp.minimum(indices, x.shape[0] - 1)], tree)


def at_index(tree: Any, *index: Array) -> Any:
    """Returns arrays at an index of each of their first axes."""
    for i in index:
        tree = jax.tree.map(
            lambda x, i=i: lax.dynamic_index_in_dim(x, i, 0, False, allow_negative_indices=False),
            tree,
        )
    return tree


def split_bodies(bodies: Array) -> tuple[Array, Array]:
    """Splits bodies [N, B, 6] into positions and velocities, [B, 3, N]."""
    rows = jnp.moveaxis(bodies, 0, -1)
    return rows[:, :3], rows[:, 3:]


def join_bodies(position: Array, velocity: Array) -> Array:
    """Joins positions and velocities [B, 3, N] into bodies [N, B, 6]."""
    return jnp.moveaxis(jnp.concatenate([position, velocity], axis=1), -1, 0)
