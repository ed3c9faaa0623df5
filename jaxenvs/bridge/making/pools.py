"""`make_pool`: makes a pool from an id or from environment functions."""

import asyncio
import errno
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np

from jaxenvs._machine import num_cores
from jaxenvs.bridge.backends.base import Backend, Broken, Post, Settings
from jaxenvs.bridge.backends.native import NativeBackend
from jaxenvs.bridge.foreign.adapters import AlreadyVectorized, adapted, agent_fields
from jaxenvs.bridge.foreign.ids import env_fn_of, is_vectorized_id, vector_maker_of
from jaxenvs.bridge.making.choosing import BackendChoice, make_backend
from jaxenvs.bridge.making.tuning import BackendConfig
from jaxenvs.bridge.memory.arrays import MODES, AutoresetMode
from jaxenvs.bridge.memory.layout import leaves_of
from jaxenvs.bridge.pool import Pool
from jaxenvs.bridge.pool.arguments import check_seed, is_whole, seconds_or_none, whole_or_none
from jaxenvs.bridge.workers.instances import Validate, traceback_of
from jaxenvs.bridge.workers.worker import has_coroutines
from jaxenvs.errors import JaxenvsError, PoolError, WorkerError

_Samples = Callable[[], Sequence[Mapping[str, Any]]]  # infos of one environment
BackendName = Literal["auto", "serial", "thread", "process", "asyncio", "ray", "native"]


def make_pool(
    env: str | Callable[[], Any] | Sequence[Callable[[], Any]],
    num_envs: int | None = None,
    *,
    batch_size: int | None = None,
    num_workers: int | Literal["auto"] = "auto",
    envs_per_worker: int | None = None,
    caller_steps: bool | None = None,
    backend: BackendName = "auto",
    seed: int | Sequence[int] | None = None,
    autoreset_mode: AutoresetMode | gymnasium.vector.AutoresetMode | None = None,
    timeout: float | None = None,
    on_failure: Literal["raise", "restart"] = "raise",
    time_limit: int | None = None,
    info_fields: Sequence[str] | Mapping[str, gymnasium.Space] = (),
    validate: Validate = "first",
    copy: bool = False,
    ray_options: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Pool:
    """Makes a pool of environments that are not written in JAX.

    Args:
        env: an id such as "gymnasium/CartPole-v1", "CartPole-v1", "dm_control/cheetah-run" or
            "envpool/Pong-v5" (the guide to the host bridge lists all libraries); or a function
            that makes an environment of Gymnasium, classic gym, dm_env or PettingZoo (parallel);
            or a list with one such function for each environment.
        num_envs: N, the number of environments. Optional with a list of functions.
        batch_size: B, the number of results that `recv` waits for. None means N: all environments
            are stepped together.
        num_workers: the number of processes, threads or actors. "auto" constructs one environment,
            takes random steps for a moment, and chooses a number from their duration; with a
            number, or with a backend other than "auto" and "process", no environment is stepped
            before your first call. Not for "serial".
        envs_per_worker: the number of environments in each worker, instead of `num_workers`.
        caller_steps: with "process", whether the calling process steps a share of the environments
            itself, which is fastest if a step takes microseconds. None lets "auto" decide.
        backend: how the environments are stepped.
            "serial": by the caller, one after the other.
            "thread": by threads, for environments that block or release the interpreter lock.
            "process": by worker processes.
            "asyncio": on one event loop, for environments whose `step` is a coroutine function.
            "ray": by actors of a Ray cluster.
            "native": `env` makes a vectorized environment, which is driven directly.
            "auto": chosen by the duration of a step, which is measured on an environment made for
            this and closed again. If `jaxenvs tune` has saved a result for these environments,
            that is used without measuring.
        seed: the seed of the first reset: environment i is seeded with `seed + i`; or a sequence
            with one seed for each environment.
        autoreset_mode: what happens after an episode ends: "next_step", "same_step", "disabled",
            or Gymnasium's `AutoresetMode`. None means the mode of the vectorized environment with
            "native"; otherwise "next_step", unless a `HostEnv` takes the pool over before its
            first reset and chooses the mode.
        timeout: the number of seconds that one step or reset may take; None for no limit. With a
            timeout, environments always run in a worker, never in the caller. A hang is detected
            after at most 1.5 times the timeout.
        on_failure: what happens if an environment raises or exceeds the timeout. "raise": the call
            raises `WorkerError` or `EnvTimeoutError`. "restart": the failure is logged. In both
            cases the environment is constructed again and flagged in `info["restarted"]`. A worker
            process that dies is always replaced. An environment that cannot be constructed again
            is an error.
        time_limit: the number of steps after which an episode is truncated, in addition to the
            environments' own limits.
        info_fields: entries of info that every step returns as an array, also inside `jit`: their
            names, in which case one environment is stepped to find the shapes, or a dict with a
            space for each.
        validate: how observations are checked. Shape and dtype are always checked. "first" also
            checks every batch for NaN, and warns if one of the first three observations of an
            environment is outside its space; True raises for any observation outside its space;
            False adds nothing. Actions are checked unless `validate` is False.
        copy: whether to return copies instead of views, see `Pool`.
        ray_options: options of the actors for backend="ray", as in Ray's `Actor.options`:
            `num_cpus`, `resources`, `runtime_env` and others. By default an actor requests a
            thousandth of a core.
        **kwargs: arguments of the environment, if `env` is an id.

    Returns:
        A `Pool`, which is a `gymnasium.vector.VectorEnv`.

    Raises:
        PoolError: an argument is invalid, or the spaces of the environments differ.
        SeedError: a seed is not a nonnegative integer, or the number of seeds is not N.
        WorkerError: a constructor raised; the message has its traceback.
        UnknownEnvironmentError: no environment has this id.
        MissingExtraError: a package is not installed.

    Example:
        >>> with jaxenvs.make_pool("gymnasium/CartPole-v1", 3, backend="serial") as pool:
        ...     observation, info = pool.reset(seed=0)
        ...     observation, reward, terminated, truncated, info = pool.step([0, 1, 0])
        >>> observation.shape
        (3, 4)
    """
    if "max_episode_steps" in kwargs:
        limit = kwargs["max_episode_steps"]
        raise PoolError(f"make_pool got max_episode_steps={limit}.  Pass time_limit={limit}.")
    num_envs = whole_or_none("num_envs", num_envs)
    envs_per_worker = whole_or_none("envs_per_worker", envs_per_worker)
    time_limit = whole_or_none("time_limit", time_limit)
    timeout = seconds_or_none("timeout", timeout)
    _check_options(backend, timeout, on_failure, validate, caller_steps)
    _check_workers(backend, num_workers, envs_per_worker, caller_steps)
    info_fields = _checked_fields(info_fields)
    check_seed(seed, num_envs)
    mode = None if autoreset_mode is None else _mode(autoreset_mode)

    def native() -> tuple[Backend, str, int, _Samples]:
        _refuse_for_native(timeout, on_failure, envs_per_worker)
        wanted = {
            "num_envs": num_envs,
            "batch_size": whole_or_none("batch_size", batch_size),
            "num_threads": None if num_workers == "auto" else int(num_workers),
            "seed": seed,
            "autoreset_mode": mode,
            "max_episode_steps": time_limit,  # the makers' name for it
        }
        found = _native(env, num_envs, kwargs, wanted)
        return found, found.maker.name, found.batch_size, found.info_samples

    only_native = is_vectorized_id(env) or (callable(env) and num_envs is None)
    if backend == "native" or (backend == "auto" and only_native):
        made, name, batch, samples = native()
    else:
        name, env_fns = env_fn_of(env, num_envs, kwargs)
        _check_batch_size(batch_size, len(env_fns))
        check_seed(seed, len(env_fns))
        batch = len(env_fns) if batch_size is None else int(batch_size)
        samples = partial(_info_samples, env_fns[0])
        workers = _num_workers(num_workers, envs_per_worker, len(env_fns))
        try:
            watched = timeout is not None
            made = _made(backend, env_fns, workers, batch, name, ray_options, caller_steps, watched)
        except (AlreadyVectorized, WorkerError) as error:
            if AlreadyVectorized.__name__ not in f"{type(error)} {error}":
                raise
            if backend != "auto" or num_workers != "auto":
                raise PoolError(
                    f'"{name}" makes an environment that is vectorized already.  Pass'
                    ' backend="native" and omit num_workers, or return a single environment.'
                ) from error
            made, name, batch, samples = native()

    try:
        if isinstance(made, NativeBackend):  # N was unknown until now
            check_seed(seed, made.num_envs)
        found = made.facts[0]
        _refuse_different(made.facts, name)
        if made.name != "asyncio":
            _refuse_coroutines(made, name)
        settings = Settings(
            observation_space=found["observation_space"],
            action_space=found["action_space"],
            info_fields=_fields(info_fields, samples) | agent_fields(found["agents"]),
            autoreset_mode=made.autoreset_mode or mode or "next_step",
            mode_is_open=made.autoreset_mode is None and mode is None,
            time_limit=time_limit,
            validate=validate,
            timeout=timeout,
            lock_step=batch == len(made.facts),
        )
        made.attach(settings)
        return Pool(
            made,
            batch_size=batch,
            seed=seed,
            settings=settings,
            timeout=timeout,
            on_failure=on_failure,
            copy=copy,
            name=name,
        )
    except BaseException as error:
        made.close(0)
        _explain_shortage(error)
        raise


def _made(
    backend: str,
    env_fns: list[Callable[[], Any]],
    num_workers: int | None,
    batch_size: int,
    name: str,
    ray_options: Mapping[str, Any] | None,
    caller_steps: bool | None,
    watched: bool,
) -> Backend:
    if ray_options is not None and backend != "ray":
        raise PoolError(
            f'make_pool got ray_options with backend="{backend}".  Pass backend="ray", or omit'
            " ray_options."
        )
    try:
        if caller_steps:
            return _with_caller(backend, env_fns, num_workers)
        if backend == "ray":
            from jaxenvs.bridge.backends.ray import RayBackend

            return RayBackend(env_fns, num_workers, ray_options)
        if num_workers is not None or backend not in ("auto", "process"):
            plain = "process" if backend == "auto" else backend
            return make_backend(BackendConfig(plain, num_workers or 0), env_fns)
        only = None if backend == "auto" else backend
        may_share = caller_steps is None and backend == "auto"
        may_serve = not watched
        share = may_share and may_serve
        return BackendChoice(env_fns, batch_size, name, only, share, may_serve).backend
    except Broken as error:
        raise _not_made(error.post, f"environment {error.post.instance}", name) from None
    except (KeyboardInterrupt, JaxenvsError):
        raise
    except BaseException as error:
        instance = getattr(error, "jaxenvs_instance", None)
        if instance is None:
            _explain_shortage(error)
            raise
        post = Post(instance, "its constructor", traceback_of(error))
        raise _not_made(post, f"environment {instance}", name) from error


def _explain_shortage(error: BaseException) -> None:
    """Raises PoolError if `error` says that too many files are open."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        raise PoolError(
            "this process has too many open files to make the pool; each worker needs three."
            "  Raise the limit (`ulimit -n`), or use fewer workers."
        ) from error


def _with_caller(
    backend: str, env_fns: list[Callable[[], Any]], num_workers: int | None
) -> Backend:
    count, workers = len(env_fns), num_workers or max(1, min(len(env_fns), num_cores()) - 1)
    if backend not in ("auto", "process") or workers >= count:
        raise PoolError(
            f'make_pool got caller_steps=True with backend="{backend}", {workers} workers and'
            f' {count} environments; it needs backend="process" and at least one environment for'
            " the caller and for each worker.  Omit caller_steps."
        )
    shares = workers + 1
    bounds = tuple(w * count // shares for w in range(1, shares + 1))
    return make_backend(BackendConfig("process", workers, bounds, caller_steps=True), env_fns)


def _native(
    env: Any, num_envs: int | None, kwargs: dict[str, Any], wanted: Mapping[str, Any]
) -> NativeBackend:
    if num_envs is not None:
        _check_batch_size(wanted["batch_size"], num_envs)
    maker = vector_maker_of(env, num_envs, kwargs)
    try:
        return NativeBackend(maker, wanted)
    except Broken as error:
        raise _not_made(error.post, "the vectorized environment", maker.name) from None


def _not_made(post: Post, who: str, name: str) -> WorkerError:
    failed = WorkerError(
        f'{who} ("{name}") failed in {post.what.rstrip(".")}.  Its traceback:\n{post.text}'
    )
    failed.env_ids = (post.instance,) if post.instance >= 0 else ()
    return failed


def _refuse_for_native(timeout: Any, on_failure: str, envs_per_worker: Any) -> None:
    for name, value, default in (
        ("timeout", timeout, None),
        ("on_failure", on_failure, "raise"),
        ("envs_per_worker", envs_per_worker, None),
    ):
        if value != default:
            raise PoolError(
                f"make_pool got {name}={value!r} for an environment that is vectorized already; its"
                f" instances cannot be timed, restarted or placed one by one.  Omit {name}."
            )


def _check_batch_size(batch_size: int | None, count: int) -> None:
    if batch_size is not None and not (is_whole(batch_size) and 1 <= batch_size <= count):
        raise PoolError(
            f"make_pool got batch_size={batch_size!r} for num_envs={count}; expected an integer"
            " from 1 to num_envs.  Omit batch_size to step all environments together."
        )


def _mode(mode: Any) -> AutoresetMode:
    name = mode.name.lower() if isinstance(mode, gymnasium.vector.AutoresetMode) else mode
    if name not in MODES:
        raise PoolError(
            f"make_pool got autoreset_mode={mode!r}; expected one of {', '.join(map(repr, MODES))}."
        )
    return name


def _check_options(
    backend: Any,
    timeout: Any,
    on_failure: Any,
    validate: Any,
    caller_steps: Any,
) -> None:
    from typing import get_args

    for name, value, allowed in (
        ("backend", backend, get_args(BackendName)),
        ("on_failure", on_failure, ("raise", "restart")),
        ("validate", validate, ("first", True, False)),
    ):
        if value not in allowed:
            raise PoolError(
                f"make_pool got {name}={value!r}; expected one of {', '.join(map(repr, allowed))}."
            )
    if timeout is not None and (backend == "serial" or caller_steps):
        raise PoolError(
            f"make_pool got timeout={timeout!r} for environments that the caller steps, where a"
            ' hang cannot be detected.  Pass backend="process" or "thread", or omit timeout.'
        )


def _check_workers(
    backend: str, num_workers: Any, envs_per_worker: int | None, caller_steps: bool | None
) -> None:
    is_auto = isinstance(num_workers, str) and num_workers == "auto"
    if not is_auto and not (is_whole(num_workers) and num_workers >= 1):
        raise PoolError(
            f'make_pool got num_workers={num_workers!r}; expected "auto" or a positive integer.'
        )
    if backend == "serial" and not caller_steps and not (is_auto and envs_per_worker is None):
        given = f"{num_workers=}" if envs_per_worker is None else f"{envs_per_worker=}"
        raise PoolError(
            f'make_pool got {given} with backend="serial", which has no workers: the caller steps'
            f" all environments.  Omit {given.partition('=')[0]}, or pass another backend."
        )


def _checked_fields(fields: Any) -> Sequence[str] | Mapping[str, gymnasium.Space]:
    if isinstance(fields, str):
        raise PoolError(
            f"make_pool got info_fields={fields!r}; expected a list of names:"
            f" info_fields=[{fields!r}]."
        )
    found: Any
    spaces: list[Any] = []
    if isinstance(fields, Mapping):
        found, spaces = dict(fields), list(fields.values())
    else:
        found = tuple(fields) if isinstance(fields, Iterable) else (None,)
    are_names = all(isinstance(name, str) for name in found)
    if not are_names or not all(isinstance(space, gymnasium.Space) for space in spaces):
        raise PoolError(
            f"make_pool got info_fields={fields!r:.80}; expected a list of names, or a dict from"
            " names to spaces."
        )
    return found


def _num_workers(num_workers: Any, envs_per_worker: int | None, count: int) -> int | None:
    if envs_per_worker is not None:
        if num_workers != "auto":
            raise PoolError(
                f"make_pool got num_workers={num_workers!r} and envs_per_worker={envs_per_worker}."
                "  Pass one of them."
            )
        return -(-count // envs_per_worker)
    if num_workers == "auto":
        return None
    if not 1 <= num_workers <= count:
        raise PoolError(
            f'make_pool got num_workers={num_workers!r} for {count} environments; expected "auto"'
            f" or a number from 1 to {count}."
        )
    return int(num_workers)


def _refuse_coroutines(made: Backend, name: str) -> None:
    for i, each in enumerate(made.facts):
        if each.get("is_coroutine"):
            raise PoolError(
                f"environment {i} ({name!r}) has coroutine functions, but"
                f' backend="{made.name}" cannot await them.  Pass backend="asyncio" or "auto".'
            )


def _refuse_different(all_facts: Sequence[Mapping[str, Any]], name: str) -> None:
    first = all_facts[0]
    for i, each in enumerate(all_facts):
        for kind in ("observation_space", "action_space"):
            # Usually they are one object, and comparing the bounds of large spaces is slow.
            if each[kind] is not first[kind] and each[kind] != first[kind]:
                raise PoolError(
                    f"environments 0 and {i} of {name!r} have different {kind}s:\n"
                    f"  0: {first[kind]}\n  {i}: {each[kind]}\n"
                    "Wrap the environments so that they agree, or make one pool for each kind."
                )
    leaves_of(first["observation_space"])
    leaves_of(first["action_space"])


def _fields(
    fields: Sequence[str] | Mapping[str, gymnasium.Space], samples: _Samples
) -> dict[str, gymnasium.Space]:
    if isinstance(fields, Mapping):
        return dict(fields)
    if not fields:
        return {}
    infos, found = samples(), {}
    for name in fields:
        values = [info[name] for info in infos if name in info]
        space = _space_of(values[-1]) if values else None
        if space is None:
            known = sorted({str(key) for info in infos for key in info})
            why = f"which neither reset nor the first step returned; they returned {known}"
            if values:
                why = f"which is {values[-1]!r:.80}, not a number or an array of numbers"
            raise PoolError(
                f"info_fields names {name!r}, {why}.  Remove it, or pass a space for it:"
                f" info_fields={{{name!r}: space}}."
            )
        found[name] = space
    return found


def _info_samples(env_fn: Callable[[], Any]) -> list[Mapping[str, Any]]:
    """Returns the infos of a reset and of a step."""
    env = adapted(env_fn())
    if has_coroutines(env):
        with ThreadPoolExecutor(1) as thread:  # this thread may already run an event loop
            return thread.submit(asyncio.run, _awaited_samples(env)).result()
    try:
        _, info = env.reset(seed=0)
        return [info or {}, env.step(env.action_space.sample())[4] or {}]
    finally:
        env.close()


async def _awaited_samples(env: Any) -> list[Mapping[str, Any]]:
    async def result(found: Any) -> Any:
        return await found if inspect.isawaitable(found) else found

    try:
        _, info = await result(env.reset(seed=0))
        answer = await result(env.step(env.action_space.sample()))
        return [info or {}, answer[4] or {}]
    finally:
        await result(env.close())


def _space_of(value: Any) -> gymnasium.Space | None:
    """Returns the space of all values with this shape and dtype; None if it is not numeric."""
    try:
        found = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    if found.dtype == np.bool_:
        boolean: Any = np.bool_  # works, although Box does not declare this type
        return gymnasium.spaces.Box(0, 1, found.shape, boolean)
    if found.dtype.kind not in "iuf":
        return None
    limits = np.finfo(found.dtype) if found.dtype.kind == "f" else np.iinfo(found.dtype)
    return gymnasium.spaces.Box(limits.min, limits.max, found.shape, found.dtype.type)
