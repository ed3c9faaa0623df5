"""Custom calls over batches of instances, with the results that JAX's own operations would have.

A call has a row for each instance in every operand and result. `vmap` of any depth makes one call
over all rows. Where arrays are sharded over devices, each device calls with its own rows; `jax.ffi`
alone would compute all rows on every device.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

# (devices that run calls at once, the shapes of results, *operands) -> results
Run = Callable[..., Sequence[jax.Array]]


def call(
    run: Run, results: Sequence[jax.ShapeDtypeStruct], *operands: jax.Array
) -> list[jax.Array]:
    """Calls a function of [..., n] operands that returns [..., n] results.

    Args:
        run: calls it. It gets operands of equal rank, in which dimensions of the batch have the
            size of the results', or 1 if all instances share them.
        results: the shapes and dtypes of the results of one instance, each of rank 1.
        *operands: arrays of rank 1.
    """
    return _batched(run, tuple(results), ())(*operands)


def call_on_host(
    target: str, shapes: Sequence[Any], *operands: jax.Array, **attributes: Any
) -> Sequence[jax.Array]:
    """Calls a target that is compiled for CPUs only.

    In programs for other devices, a callback calls it on the host with copies of the operands.
    """

    def direct(*operands: jax.Array) -> Sequence[jax.Array]:
        return jax.ffi.ffi_call(target, shapes)(*operands, **attributes)

    on_host = jax.jit(direct)

    def call_back(*operands: Any) -> list[np.ndarray]:
        with jax.default_device(jax.devices("cpu")[0]):
            return [np.asarray(x) for x in on_host(*map(np.asarray, operands))]

    if jax.default_backend() == "cpu":
        return direct(*operands)
    return jax.lax.platform_dependent(
        *operands,
        cpu=direct,
        default=lambda *operands: jax.pure_callback(call_back, shapes, *operands),
    )


def _batched(run: Run, results: tuple[Any, ...], batch: tuple[int, ...]) -> Any:
    """Returns the call for operands with the dimensions `batch` before their last."""
    shapes = [jax.ShapeDtypeStruct((*batch, *each.shape), each.dtype) for each in results]

    @custom_vmap
    def batched(*operands: jax.Array) -> list[jax.Array]:
        mesh = jax.sharding.get_abstract_mesh()
        if not batch or mesh.manual_axes:  # inside `shard_map`
            devices = math.prod(mesh.shape[axis] for axis in mesh.manual_axes)
            return list(run(devices, shapes, *operands))
        return list(_divided(run, shapes, len(batch), *operands))

    @batched.def_vmap
    def more(size: int, is_batched: Sequence[bool], *operands: jax.Array) -> Any:
        given = [
            x if is_there else x[None] for x, is_there in zip(operands, is_batched, strict=True)
        ]
        return _batched(run, results, (size, *batch))(*given), [True] * len(results)

    return batched


def _divided(
    run: Run, shapes: Sequence[Any], rank: int, *operands: jax.Array
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
            return tuple(run(math.prod(shares), own, *parts))

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
    divided = custom_partitioning(lambda *operands: tuple(run(1, shapes, *operands)))
    divided.def_partition(
        partition=partition, sharding_rule=f"{', '.join(given)} -> {', '.join(returned)}"
    )
    return divided(*operands)


def _size(mesh: Any, axes: Any) -> int:
    """Returns the number of shards over one axis of a mesh, several, or none."""
    names = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
    return math.prod(mesh.shape[name] for name in names)
