"""Checks of device meshes, and their conversion to data that can be pickled."""

from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from jaxenvs.errors import ShardingError, closest


def check_mesh(mesh: Any, mesh_axis: str | None, num_envs: int) -> str:
    """Returns the mesh axis for `num_envs` instances: `mesh_axis`, or the first one if None.

    Raises:
        ShardingError: `mesh` is not a mesh or has no such axis, or the size of the axis does not
            divide `num_envs`.
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
            f'num_envs={num_envs} is not divisible by the {size} devices of mesh axis "{axis}".'
            f"  Use num_envs={choice}, or a mesh of another size."
        )
    return axis


def mesh_to_data(mesh: Mesh | None) -> Any:
    """Returns data that can be pickled, from which `mesh_from_data` rebuilds the mesh."""
    if mesh is None:
        return None
    ids = np.vectorize(lambda device: device.id, otypes=[int])(mesh.devices)
    return ids, mesh.axis_names, tuple(kind.name for kind in mesh.axis_types)


def mesh_from_data(data: Any) -> Mesh | None:
    """Returns the mesh over this process's devices with the same ids.

    Raises:
        ShardingError: this process does not have these devices.
    """
    if data is None:
        return None
    ids, names, kinds = data
    devices = {device.id: device for device in jax.devices()}
    if missing := sorted({int(i) for i in ids.ravel()} - devices.keys()):
        raise ShardingError(
            f"a pickled mesh uses devices {missing}, but this process has only"
            f" {sorted(devices)}.  Make the environment with a mesh of this process."
        )
    grid = np.vectorize(devices.__getitem__, otypes=[object])(ids)
    return Mesh(grid, names, axis_types=tuple(AxisType[kind] for kind in kinds))
