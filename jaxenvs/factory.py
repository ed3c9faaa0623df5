"""Construction of environments from ids.

Ids of other libraries make pools of hosted environments, whose modules are imported only then.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeGuard

import jax
import numpy as np

from jaxenvs import _entry_points
from jaxenvs import catalog as catalog  # fills the registry
from jaxenvs.catalog.suites import register_suite_id
from jaxenvs.core import AutoresetMode, Environment, VectorEnv
from jaxenvs.errors import (
    ParameterError,
    PoolError,
    UnknownEnvironmentError,
    UnknownParameterError,
    closest,
)
from jaxenvs.levels import with_levels
from jaxenvs.parameters import NO_LIMIT, check_time_limit, checked_parameters
from jaxenvs.registry import EnvSpec, find, registry, unlisted
from jaxenvs.struct import is_traced
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.wrappers.time_limit import TimeLimit

# Options of native environments -> why others do not have them, and what to do instead.
_NATIVE_ONLY = {
    "wrappers": "are compiled into native environments; use Gymnasium's wrappers in an environment"
    " function, or jaxenvs.wrappers around make_vec",
    "device": "is where JAX runs, but these run on the host",
    "batched": "names parameters of native environments; pass make_pool a list of functions",
    "stagger": "works with native environments only",
    "reset_chunk": "works with native environments only",
    "output": "works with native environments only; gymnasium.wrappers.vector.NumpyToTorch(pool)"
    " returns tensors",
    "seed": "is an argument of reset here",
    "autoreset_mode": "applies to a batch; pass num_envs",
}


def make(
    id: str,
    *,
    time_limit: int | None | Literal["default"] = "default",
    levels: Any = None,
    **params: Any,
) -> Environment:
    """Makes one native environment.

    Args:
        id: a registered id (`jaxenvs list` shows them); one of another JAX library, such as
            "brax/ant" (`jaxenvs list --suite brax`); or "module:Class" or "file.py:Class" for your
            own `Environment` or a function that returns one.
        time_limit: steps after which an episode is truncated; None for no limit, "default" for
            the limit of the id. MiniGrid and BabyAI truncate episodes themselves, and their rewards
            depend on the limit: a longer one, or none, becomes their parameter `max_steps`.
        levels: in which levels episodes start, such as the seeds `range(200)`, "train" or "test",
            see `jaxenvs.levels.with_levels`; None for all.
        **params: parameters of the environment, such as `gravity=3.7`.

    Returns:
        The environment, wrapped in `TimeLimit` if it has a limit. `env.unwrapped` is the
        environment itself.

    Raises:
        UnknownEnvironmentError: the id is not registered (the message lists similar ids), or it
            belongs to another library, which only `make_vec` supports.
        MissingExtraError: the library of the id is not installed.
        UnknownParameterError: the environment has no such parameter; the message lists similar
            names.
        ParameterError: the time limit is not an integer of at least 1, or the environment has a
            shorter one of its own that cannot be replaced.

    Example:
        >>> env = jaxenvs.make("CartPole-v1", gravity=3.7)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> timestep.observation.shape
        (4,)
    """
    spec = _find(id)
    entry_point = _load(spec, spec.entry_point)
    check_limit_argument(id, time_limit)
    try:
        env = entry_point(**_check_params(id, entry_point, {**spec.kwargs, **params}))
    except TypeError:
        _check_not_misplaced(id, params)
        raise
    if not isinstance(env, Environment):
        raise UnknownEnvironmentError(
            f"{id} made a {type(env).__name__}; expected a jaxenvs.Environment.  For an environment"
            ' of Gymnasium, register it there and use "module:ID", or pass a function to make_pool.'
        )
    for wrapper, arguments in spec.wrappers.items():
        env = _load(spec, wrapper)(env, **arguments)
    if not isinstance(time_limit, str):
        env = _replace_limit(id, env, time_limit)
    elif time_limit == "default" and spec.time_limit is not None and env.time_limit is None:
        env = TimeLimit(env, time_limit=spec.time_limit)
    return env if levels is None else with_levels(env, levels)


def make_from(
    id: str | Environment,
    *,
    time_limit: int | None | Literal["default"],
    levels: Any = None,
    **params: Any,
) -> Environment:
    """Returns `make(id)`, or an `Environment` with the same changes, by default its own limit."""
    if isinstance(id, str):
        return make(id, time_limit=time_limit, levels=levels, **params)
    check_limit_argument(id, time_limit)
    env = id.replace(**params) if params else id
    if not isinstance(time_limit, str):
        env = _replace_limit(f"{id!r:.80}", env, time_limit)
    return env if levels is None else with_levels(env, levels)


def _replace_limit(name: str, env: Environment, limit: Any) -> Environment:
    """Returns `env` with the time limit `limit`, or without one.

    Raises:
        ParameterError: `env` has a shorter limit that cannot be replaced.
    """
    if isinstance(env, TimeLimit):
        env = env.env
    own, unwrapped = env.time_limit, env.unwrapped
    truncates_itself = getattr(type(unwrapped), "time_limit", None) is not Environment.time_limit
    has_parameter = truncates_itself and "max_steps" in env.parameters
    if own is None and not has_parameter:
        return env if limit is None else TimeLimit(env, time_limit=limit)
    if own is not None and limit is not None and (is_traced(own, limit) or np.all(limit <= own)):
        return TimeLimit(env, time_limit=limit)
    if has_parameter:
        return env.replace(max_steps=NO_LIMIT if limit is None else limit)
    raise ParameterError(
        f"{name} got time_limit={limit!r:.60}, but the environment ends its episodes itself after"
        f" {own} steps.  Change the parameter or the wrapper that this limit comes from."
    )


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

    For a native id this is `vectorize(make(id), num_envs)`, with the arguments and errors of
    `vectorize` and `make`.

    For an id of another library, such as "gymnasium/CartPole-v1", it is a `HostEnv` over
    `make_pool(id, num_envs)`, which uses worker processes, or EnvPool's own threads for
    "envpool/...". Close such an environment after use. For several agents, such as
    "pettingzoo/...", it returns `MultiAgentTimeStep`s.

    Args:
        id: a registered id, or one that `make_pool` accepts, with the library in front. Plain
            "CartPole-v1" is the native environment.
        num_envs: N, divisible by the size of the mesh axis if `mesh` is given.
        autoreset_mode: what happens after an episode ends.
        batched: see `vectorize`. For native ids only, like `reset_chunk` and `stagger`.
        mesh: distributes the instances over devices. Hosted environments get one pool per device.
        mesh_axis: the mesh axis to use instead of the first.
        time_limit: steps after which an episode is truncated; None for no limit, "default" for
            the limit of the id.
        **params: parameters of the environment, and `levels` of `make`. For hosted environments
            also options of `make_pool` (with a mesh, for each pool) and `path` and
            `final_observation` of `HostEnv`.

    Raises:
        UnknownEnvironmentError: there is no such id; the message lists similar ids.
        PoolError: hosted environments do not support an argument.
        WorkerError: the constructor of a hosted environment raised.

    Example:
        >>> native = jaxenvs.make_vec("CartPole-v1", 4, gravity=3.7)
        >>> hosted = jaxenvs.make_vec("gymnasium/CartPole-v1", 4, num_workers=1)
        >>> state, timestep = hosted.reset(jax.random.key(0))
        >>> timestep.terminated.tolist()
        [False, False, False, False]
        >>> hosted.close()
    """
    of_native: Any = {"batched": batched, "reset_chunk": reset_chunk, "stagger": stagger}
    if is_hosted(id):
        from jaxenvs.bridge.making.batches import make_host_env

        check_no_native_options(PoolError, "make_vec", id, **of_native)
        check_limit_argument(id, time_limit)
        params["time_limit"] = time_limit
        return make_host_env(id, num_envs, autoreset_mode, mesh, mesh_axis, params)
    return vectorize(
        make(id, time_limit=time_limit, **params),
        num_envs,
        autoreset_mode=autoreset_mode,
        mesh=mesh,
        mesh_axis=mesh_axis,
        **of_native,
    )


def check_no_native_options(error: type[Exception], function: str, id: Any, **options: Any) -> None:
    """Raises `error` if an option is given that only native environments support."""

    def is_given(value: Any) -> bool:
        is_empty = isinstance(value, Sequence) and not value
        return not is_empty and value is not None and value is not False and value != "numpy"

    given = {name: value for name, value in options.items() if is_given(value)}
    if given:
        values = ", ".join(f"{name}={value!r:.60}" for name, value in given.items())
        reasons = "; ".join(f"{name} {_NATIVE_ONLY[name]}" for name in given)
        raise error(
            f"{function} got {values} for {id!s:.80}, which is not written in JAX: {reasons}."
        )


def is_native(id: Any) -> TypeGuard[str | Environment]:
    """Returns whether `id` is an `Environment` or names one; an unknown id counts, too."""
    return isinstance(id, Environment) or (isinstance(id, str) and not is_hosted(id))


def is_hosted(id: Any) -> bool:
    """Returns whether `id` belongs to a library that is not written in JAX, which needs a pool.

    Registers `id` if it is a "module:Class" or belongs to a suite of another JAX library.
    """
    if not isinstance(id, str) or id in registry or id in unlisted:
        return False
    if register_suite_id(id) or _entry_points.register_entry_point(id):
        return False
    from jaxenvs.bridge.foreign.ids import is_host_id

    return is_host_id(id)


def _find(id: str) -> EnvSpec:
    if not isinstance(id, str):
        fix = "jaxenvs.vectorize(env, num_envs) makes a batch of an environment"
        if not isinstance(id, Environment):
            fix = "jaxenvs.make_pool takes functions that make environments"
        raise UnknownEnvironmentError(
            f'expected an id such as "CartPole-v1", got {id!r:.80}.  {fix}.'
        )
    if is_hosted(id):
        raise UnknownEnvironmentError(
            f'"{id}" is not a JAX environment; it runs on the host, in batches.  Use'
            f' jaxenvs.make_vec("{id}", num_envs) or jaxenvs.make_pool.'
        )
    if id in registry or id in unlisted:
        return find(id)
    from jaxenvs.bridge.foreign.ids import similar_host_ids

    hosted = ", ".join(f'"{each}"' for each in similar_host_ids(str(id)))
    raise UnknownEnvironmentError(
        f'no environment is called "{id}".{closest(str(id), [*registry, *unlisted])}'
        f"{f'  For make_vec and make_pool (not JAX): {hosted}.' if hosted else ''}"
        "  `jaxenvs list` shows all native ids."
    )


def _load(spec: EnvSpec, entry_point: str | Callable[..., Any]) -> Callable[..., Any]:
    """Returns the class or function that an entry point in `spec` refers to."""
    if not isinstance(entry_point, str):
        return entry_point
    source = f'"{spec.id}"'
    if spec.id != entry_point:
        source += f', registered as "{entry_point}",'
    return _entry_points.load(entry_point, source)


def _check_params(
    id: str, entry_point: Callable[..., Any], params: dict[str, Any]
) -> dict[str, Any]:
    """Returns the parameters for `entry_point`, with numbers converted by `checked_parameters`."""
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
            f"{id} has no default for {' and '.join(missing)}.  Pass a value, or define a default."
        )
    for name in params:
        if name not in names:
            _check_not_misplaced(id, [name])
            raise UnknownParameterError(
                f'{id} has no parameter "{name}".{closest(name, [*names, "time_limit"])}'
                f"  `jaxenvs info {id}` shows all parameters."
            )
    return checked_parameters(entry_point, params)


def _check_not_misplaced(id: str, params: Iterable[str]) -> None:
    """Raises UnknownParameterError if one is an argument of a batch or a pool, or Gymnasium's."""
    from jaxenvs.bridge.making import make_pool

    batch, pool = inspect.getfullargspec(make_vec), inspect.getfullargspec(make_pool)
    for name in params:
        if name == "max_episode_steps":
            fix = "Pass time_limit, the number of steps after which an episode is truncated"
        elif name in (*batch.args, *batch.kwonlyargs):
            fix = f'It is an argument for batches: jaxenvs.make_vec("{id}", num_envs, ...)'
        elif name in pool.kwonlyargs:
            fix = (
                "It is an argument for pools, of environments that are not JAX:"
                f' jaxenvs.make_pool("{id}", num_envs, ...)'
            )
        else:
            continue
        raise UnknownParameterError(f'{id} has no parameter "{name}".  {fix}.')


def check_limit_argument(id: Any, time_limit: Any) -> None:
    """Raises ParameterError unless a time limit is a number of steps, None or "default"."""
    if time_limit is None:
        return
    if not isinstance(time_limit, str):
        check_time_limit(f"{id!s:.80}", time_limit)
    elif time_limit not in ("default", "own"):  # "own" is for the interfaces that add the default
        raise ParameterError(
            f'{id!s:.80} got time_limit={time_limit!r}; the only string allowed is "default", for'
            " the limit of the id.  Pass a number of steps, or None for no limit."
        )
