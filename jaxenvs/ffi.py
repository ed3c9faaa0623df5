"""Custom calls over batches of instances, with the results that JAX's own operations would have.

A call has a row for each instance in every operand and result. `vmap` of any depth makes one call
over all rows. Where arrays are sharded over devices, each device calls with its own rows; `jax.ffi`
alone would compute all rows on every device.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

Attributes = Callable[[int], Mapping[str, Any]]


def call(
    target: str,
    results: Sequence[jax.ShapeDtypeStruct],
    attributes: Attributes,
    *operands: jax.Array,
) -> list[jax.Array]:
    """Calls a target that takes [..., n] operands and returns [..., n] results.

    Args:
        target: the name of a registered target. It gets operands of equal rank, in which
            dimensions of the batch have the size of the results', or 1 if all instances share them.
        results: the shapes and dtypes of the results of one instance, each of rank 1.
        attributes: the number of devices that run calls at once -> the attributes of the call.
        *operands: arrays of rank 1.
    """
    return _batched(target, tuple(results), attributes, ())(*operands)


def _batched(
    target: str, results: tuple[Any, ...], attributes: Attributes, batch: tuple[int, ...]
) -> Callable[..., list[jax.Array]]:
    """Returns the call for operands with the dimensions `batch` before their last."""
    shapes = [jax.ShapeDtypeStruct((*batch, *each.shape), each.dtype) for each in results]

    def run(devices: int, shapes: Sequence[Any], *operands: jax.Array) -> tuple[jax.Array, ...]:
        return tuple(jax.ffi.ffi_call(target, shapes)(*operands, **attributes(devices)))

    @custom_vmap
    def batched(*operands: jax.Array) -> list[jax.Array]:
        mesh = jax.sharding.get_abstract_mesh()
        if not batch or mesh.manual_axes:  # inside `shard_map`
            devices = math.prod(mesh.shape[axis] for axis in mesh.manual_axes)
            return list(run(devices, shapes, *operands))
        return list(_divided(run, shapes, len(batch), *operands))

    @batched.def_vmap
    def more(size: int, is_batched: Sequence[bool], *operands: jax.Array) -> Any:
        given = [x if is_there else x[None] for x, is_there in zip(operands, is_batched, strict=True)]
        larger = _batched(target, results, attributes, (size, *batch))
        return larger(*given), [True] * len(results)

    return batched


def _divided(
    run: Callable[..., Any], shapes: Sequence[Any], rank: int, *operands: jax.Array
) -> tuple[jax.Array, ...]:
    """Returns `run(devices, shapes, *operands)`; each device runs it on its part of the batch."""

    def partition(mesh: Any, arguments: Any, found: Any) -> Any:
        spec = (*found[0].sharding.spec, *[None] * rank)[:rank]
        shares = [_size(mesh, axes) for axes in spec]

        def lower(*parts: jax.Array) -> tuple[jax.Array, ...]:
            own = [
                jax.ShapeDtypeStruct(
                    (*(n // k for n, k in zip(each.shape, shares, strict=False)), each.shape[-1]),
                    each.dtype,
                )
                for each in shapes
            ]
            return run(math.prod(shares), own, *parts)

        def sharding(shape: Any) -> NamedSharding:
            used = [axes if n > 1 else None for n, axes in zip(shape[:-1], spec, strict=True)]
            return NamedSharding(mesh, PartitionSpec(*used))

        return (
            mesh,
            lower,
            tuple(sharding(each.shape) for each in found),
            tuple(sharding(each.shape) for each in arguments),
        )

    def names(number: int, shape: Sequence[int]) -> str:
        own = [f"b{i}" if n > 1 else f"o{number}b{i}" for i, n in enumerate(shape[:-1])]
        return " ".join([*own, f"o{number}"])

    given = [names(i, x.shape) for i, x in enumerate(operands)]
    returned = [names(len(given) + i, each.shape) for i, each in enumerate(shapes)]
    divided = custom_partitioning(functools.partial(run, 1, shapes))
    divided.def_partition(
        partition=partition, sharding_rule=f"{', '.join(given)} -> {', '.join(returned)}"
    )
    return divided(*operands)


def _size(mesh: Any, axes: Any) -> int:
    """Returns the number of shards over one axis of a mesh, several, or none."""
    names = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
    return math.prod(mesh.shape[name] for name in names)
