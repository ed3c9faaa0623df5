"""Batches of hosted environments for JAX programs, which `make_vec` returns."""

from typing import Any

from jax.sharding import Mesh

from jaxenvs._machine import num_cores
from jaxenvs.bridge.foreign.ids import is_vectorized_id
from jaxenvs.bridge.jit import HostEnv
from jaxenvs.bridge.making.pools import make_pool
from jaxenvs.bridge.memory.arrays import AutoresetMode
from jaxenvs.bridge.native.libraries import POOL, is_there
from jaxenvs.errors import PoolError, check_integer
from jaxenvs.meshes import check_mesh


def make_host_env(
    id: str,
    num_envs: int,
    autoreset_mode: AutoresetMode,
    mesh: Mesh | None,
    mesh_axis: str | None,
    options: dict[str, Any],
) -> HostEnv:
    """Makes a `HostEnv` over a pool, or over one for each device of a mesh, see `make_vec`.

    Args:
        id: an id of another library.
        num_envs: N.
        autoreset_mode: what happens after an episode ends.
        mesh: the devices, or None.
        mesh_axis: the axis of the mesh to use instead of the first.
        options: those of `make_pool`, the environments, and `HostEnv`.

    Raises:
        PoolError: hosted environments do not support an argument.
        ShardingError: N is not divisible by the size of the mesh axis, or there is no such axis.
        WorkerError: the constructor of an environment raised.
    """
    check_integer(PoolError, f"{id} got num_envs", num_envs)
    is_vectorized = is_vectorized_id(id)
    if is_vectorized and autoreset_mode != "next_step":
        raise PoolError(
            f'make_vec got autoreset_mode="{autoreset_mode}" for {id}, but EnvPool only supports'
            ' "next_step".  Pass autoreset_mode="next_step".'
        )
    of_host_env = {
        name: options.pop(name) for name in ("path", "final_observation") if name in options
    }
    _check_options(id, options)
    axis = None if mesh is None else check_mesh(mesh, mesh_axis, num_envs)
    devices = 1 if mesh is None else mesh.shape[axis]
    if devices > 1:
        options = _options_per_pool(id, devices, options)
    if not is_vectorized and is_there(POOL):  # programs can step processes without Python
        options = {"backend": "process", **options}
    pools = []
    try:
        for _ in range(devices):
            pools.append(
                make_pool(id, num_envs // devices, autoreset_mode=autoreset_mode, **options)
            )
        return HostEnv(pools, mesh=mesh, mesh_axis=axis, **of_host_env)
    except BaseException:
        for pool in pools:
            pool.close()
        raise


def _check_options(id: str, options: dict[str, Any]) -> None:
    for name, instead in (
        ("max_episode_steps", "make_vec calls it time_limit"),
        ("copy", "compiled programs always get copies"),
    ):
        if name in options:
            raise PoolError(f"make_vec got {name} for {id}; {instead}.  Omit {name}.")
    if "seed" in options and not (id.startswith("envpool/") or options.get("backend") == "native"):
        raise PoolError(
            f"make_vec got seed={options['seed']!r} for {id}, whose environments are seeded by the"
            " key of reset.  Omit seed."
        )


def _options_per_pool(id: str, devices: int, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of one of `devices` pools, which share the cores."""
    if options.get("batch_size") is not None:
        raise PoolError(
            f"make_vec got batch_size={options['batch_size']} for {id} over {devices} devices,"
            " which step independently.  Omit it, or make an environment for each device."
        )
    names = ("num_workers", "envs_per_worker")
    if any(name in options for name in names) or options.get("backend") == "serial":
        return options
    return {"num_workers": max(1, num_cores() // devices), **options}
