"""From an id to an environment: imports its module, checks its parameters, applies its limit.

Ids of environments that are not JAX lead to pools; nothing of these is imported for others.
"""

import dataclasses
import inspect
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import jax

from jaxenvs import _entry_points
from jaxenvs import catalog as catalog  # fills the registry
from jaxenvs.core import AutoresetMode, Environment, VectorEnv, as_numbers, check_time_limit
from jaxenvs.errors import (
    ParameterError,
    PoolError,
    UnknownEnvironmentError,
    UnknownParameterError,
    closest,
)
from jaxenvs.registry import EnvSpec, registry
from jaxenvs.vector.sharding import check_mesh
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.wrappers.time_limit import TimeLimit

if TYPE_CHECKING:
    from jaxenvs.bridge.xla import HostEnv


def make(
    id: str, *, time_limit: int | None | Literal["default"] = "default", **params: Any
) -> Environment:
    """Makes one native environment.

    Args:
        id: a registered id, `jaxenvs list` shows them; or "module:Class" or "file.py:Class", an
            `Environment` of your own or a function that returns one.
        time_limit: steps after which an episode is truncated; None for no limit, "default" for
            the id's own.
        **params: parameters of the environment, such as `gravity=3.7`.

    Returns:
        The environment, inside `TimeLimit` where there is a limit. `env.unwrapped` is the
        environment itself.

    Raises:
        UnknownEnvironmentError: the id is not registered, and the message names the closest; or it
            is of an environment that is not JAX, of which `make_vec` makes a batch.
        UnknownParameterError: a parameter is misspelt; the message names the closest.
        ParameterError: the time limit is less than one step, or no number.

    Example:
        >>> env = jaxenvs.make("CartPole-v1", gravity=3.7)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> timestep.observation.shape
        (4,)
    """
    spec = _find(id)
    entry_point = _load(spec)
    params = {**spec.kwargs, **params}
    params = _checked(id, entry_point, params)
    _check_word(id, time_limit)
    env = entry_point(**params)
    if not isinstance(env, Environment):
        raise UnknownEnvironmentError(
            f"{id} made a {type(env).__name__}; expected a jaxenvs.Environment.  One of Gymnasium"
            ' is registered there, and called "module:ID"; or give make_pool a function.'
        )
    limit = spec.time_limit if isinstance(time_limit, str) else time_limit
    return env if limit is None else TimeLimit(env, time_limit=limit)


def make_from(
    id: str | Environment, *, time_limit: int | None | Literal["default"], **params: Any
) -> Environment:
    """`make` of an id, or the same changes to an `Environment`, which has no limit of its own."""
    if isinstance(id, str):
        return make(id, time_limit=time_limit, **params)
    _check_word(repr(id), time_limit)
    env = id.replace(**params) if params else id
    if time_limit is None or isinstance(time_limit, str):
        return env
    return TimeLimit(env, time_limit=time_limit)


def make_vec(
    id: str,
    num_envs: int,
    *,
    autoreset_mode: AutoresetMode = "same_step",
    batched: Sequence[str] = (),
    reset_chunk: int | None = None,
    stagger: bool | int = False,
    mesh: jax.sharding.Mesh | None = None,
    mesh_axis: str | None = None,
    time_limit: int | None | Literal["default"] = "default",
    **params: Any,
) -> VectorEnv:
    """Makes `num_envs` instances of an id as one environment.

    Of a native id it is `vectorize(make(id), num_envs)`: the arguments are those of `vectorize` and
    of `make`, and so are the errors.

    Of an id of other libraries, "gymnasium/CartPole-v1", "ALE/Pong-v5", "dm_control/...", it is a
    `HostEnv` over `make_pool(id, num_envs)` of worker processes, or of EnvPool's threads for
    "envpool/...". Such an environment has to be closed.

    Args:
        id: a registered id, or one that `make_pool` takes with its library in front. Plain
            "CartPole-v1" is the native one.
        num_envs: N, divisible by the mesh axis if `mesh` is given.
        autoreset_mode: what follows a finished episode.
        batched: see `vectorize`; like `reset_chunk` and `stagger`, of native ids alone.
        mesh: lays the instances over devices. Of a host's, each device gets a pool of its own,
            whose failures are logged, not raised (`on_failure="restart"`).
        mesh_axis: another axis than the mesh's first.
        time_limit: steps after which an episode is truncated; None for no limit, "default" for
            the id's own. A host's own limit holds besides.
        **params: parameters of the environment; of a host's also the options of `make_pool`, which
            with a mesh are those of each pool, and `path` and `final_observation` of `HostEnv`.

    Raises:
        UnknownEnvironmentError: there is no such id; the message names the closest.
        PoolError: an argument that hosted environments cannot follow.
        WorkerError: a hosted environment's constructor raised.

    Example:
        >>> native = jaxenvs.make_vec("CartPole-v1", 4, gravity=3.7)
        >>> hosted = jaxenvs.make_vec("gymnasium/CartPole-v1", 4, num_workers=1)
        >>> state, timestep = hosted.reset(jax.random.key(0))
        >>> timestep.terminated.tolist()
        [False, False, False, False]
        >>> hosted.close()
    """
    if is_hosted(id):
        _refuse_native_only(id, batched=batched, reset_chunk=reset_chunk, stagger=stagger)
        return _make_hosted(id, num_envs, autoreset_mode, mesh, mesh_axis, time_limit, params)
    return vectorize(
        make(id, time_limit=time_limit, **params),
        num_envs,
        autoreset_mode=autoreset_mode,
        batched=batched,
        reset_chunk=reset_chunk,
        stagger=stagger,
        mesh=mesh,
        mesh_axis=mesh_axis,
    )


def is_hosted(id: Any) -> bool:
    """Whether it is an id of an environment that is not JAX. What is registered here is ours.

    What "module:Class" names is registered here as soon as somebody asks.
    """
    if not isinstance(id, str) or id in registry or _entry_points.register_entry_point(id):
        return False
    from jaxenvs.bridge.hosts import is_host_id

    return is_host_id(id)


def _make_hosted(
    id: str,
    num_envs: int,
    autoreset_mode: AutoresetMode,
    mesh: jax.sharding.Mesh | None,
    mesh_axis: str | None,
    time_limit: Any,
    params: dict[str, Any],
) -> "HostEnv":
    from jaxenvs.bridge.hosts import is_vectorized_id
    from jaxenvs.bridge.making import make_pool
    from jaxenvs.bridge.xla import HostEnv

    _check_num_envs(id, num_envs)
    is_vectorized = is_vectorized_id(id)
    if is_vectorized and autoreset_mode != "next_step":
        raise PoolError(
            f'make_vec got autoreset_mode="{autoreset_mode}" for {id}, which EnvPool resets in the'
            ' next step.  Pass autoreset_mode="next_step".'
        )
    hosting = {name: params.pop(name) for name in ("path", "final_observation") if name in params}
    _refuse_settled(id, params)
    axis = None if mesh is None else check_mesh(mesh, mesh_axis, num_envs)
    devices = 1 if mesh is None else mesh.shape[axis]
    if devices > 1:
        params = _for_each_of(id, devices, params)
    options = {"time_limit": host_limit(id, time_limit), **params}
    if not is_vectorized:  # compiled programs step processes without Python
        options = {"backend": "process", **options}
    pools = []
    try:
        for _ in range(devices):
            pools.append(
                make_pool(id, num_envs // devices, autoreset_mode=autoreset_mode, **options)
            )
        return HostEnv(pools, mesh=mesh, mesh_axis=axis, **hosting)
    except BaseException:
        for pool in pools:
            pool.close()
        raise


def host_limit(id: str, time_limit: Any) -> int | None:
    """`time_limit` as `make_pool` takes it.

    Raises:
        ParameterError: it is less than one step, or no number.
        PoolError: it is None, and the environment's own limit cannot be taken away.
    """
    _check_word(id, time_limit)
    if time_limit is None:
        raise PoolError(
            f"{id} got time_limit=None; what limit it has of its own is its library's, and stays."
            "  Leave it out, or make the environment in a function and pass that to make_pool."
        )
    if isinstance(time_limit, str):
        return None
    check_time_limit(id, time_limit)
    return int(time_limit)


def _refuse_native_only(id: str, **given: Any) -> None:
    names = [name for name, value in given.items() if value not in ((), [], None, False)]
    if names:
        raise PoolError(
            f"make_vec got {', '.join(names)} for {id}, which is not JAX: its environments are"
            " called one by one on the host, and differ, reset and begin as they are made to."
            "  Leave it out; make_pool takes a list of functions, one for each environment."
        )


def _refuse_settled(id: str, params: dict[str, Any]) -> None:
    for name, instead in (
        ("max_episode_steps", "make_vec calls it time_limit"),
        ("copy", "compiled programs have arrays of their own"),
    ):
        if name in params:
            raise PoolError(f"make_vec got {name} for {id}; {instead}.  Leave {name} out.")
    if "seed" in params and not (id.startswith("envpool/") or params.get("backend") == "native"):
        raise PoolError(
            f"make_vec got seed={params['seed']!r} for {id}; the key of reset seeds its"
            " environments.  Leave seed out."
        )


def _for_each_of(id: str, devices: int, params: dict[str, Any]) -> dict[str, Any]:
    """The options of each of several pools, which share this machine's cores."""
    if params.get("batch_size") is not None:
        raise PoolError(
            f"make_vec got batch_size={params['batch_size']} for {id} over {devices} devices,"
            " which finish independently.  Leave it out, or make an environment for each device."
        )
    params = {"on_failure": "restart", **params}  # an error on one device would hang the others
    if "num_workers" in params or "envs_per_worker" in params or params.get("backend") == "serial":
        return params
    return {"num_workers": max(1, (os.cpu_count() or 1) // devices), **params}


def _check_num_envs(id: str, num_envs: Any) -> None:
    if not isinstance(num_envs, int) or isinstance(num_envs, bool) or num_envs < 1:
        raise PoolError(f"{id} got num_envs={num_envs!r}; expected a number from 1 on.")


def _find(id: str) -> EnvSpec:
    if is_hosted(id):
        raise UnknownEnvironmentError(
            f'"{id}" is not JAX: it runs outside of compiled programs, and as a batch.  Use'
            f' jaxenvs.make_vec("{id}", num_envs) or jaxenvs.make_pool.'
        )
    if id in registry:
        return registry[id]
    from jaxenvs.bridge.hosts import close_host_ids

    hosted = ", ".join(f'"{each}"' for each in close_host_ids(str(id)))
    raise UnknownEnvironmentError(
        f'no environment is called "{id}".{closest(str(id), registry)}'
        f"{f'  Not JAX, for make_vec and make_pool: {hosted}.' if hosted else ''}"
        "  `jaxenvs list` shows all native ones."
    )


def _load(spec: EnvSpec) -> Callable[..., Any]:
    if not isinstance(spec.entry_point, str):
        return spec.entry_point
    source = f'"{spec.id}"'
    if spec.id != spec.entry_point:
        source += f', registered as "{spec.entry_point}",'
    return _entry_points.load(spec.entry_point, source)


def _checked(id: str, entry_point: Callable[..., Any], params: dict[str, Any]) -> dict[str, Any]:
    """Returns the parameters that `entry_point` is called with."""
    if not (isinstance(entry_point, type) and dataclasses.is_dataclass(entry_point)):
        if inspect.isfunction(entry_point):
            try:
                inspect.signature(entry_point).bind(**params)
            except TypeError as error:
                raise UnknownParameterError(
                    f"{id} was called with {', '.join(params) or 'nothing'}: {error}."
                ) from None
        return params
    fields = dataclasses.fields(entry_point)
    names = [field.name for field in fields]
    missing = [
        field.name
        for field in fields
        if field.default is field.default_factory is dataclasses.MISSING
        and field.name not in params
    ]
    if missing:
        raise UnknownParameterError(
            f"{id} has no default for {' and '.join(missing)}.  Pass one, or give the class one."
        )
    for name in params:
        if name not in names:
            raise UnknownParameterError(
                f'{id} has no parameter "{name}".{closest(name, [*names, "time_limit"])}'
                f"  `jaxenvs info {id}` shows all."
            )
    return as_numbers(entry_point, params)


def _check_word(id: str, time_limit: Any) -> None:
    if isinstance(time_limit, str) and time_limit != "default":
        raise ParameterError(
            f'{id} got time_limit={time_limit!r}; the only word is "default", the id\'s own limit.'
            "  Pass a number of steps, or None for no limit."
        )
