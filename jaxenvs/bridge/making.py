"""From an id or a function to a pool."""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import gymnasium
import numpy as np

from jaxenvs.bridge._adapters import AlreadyVectorized, adapted
from jaxenvs.bridge._arguments import check_seed, is_whole, seconds_or_none, whole_or_none
from jaxenvs.bridge._arrays import AutoresetMode
from jaxenvs.bridge._choosing import Chosen, make_backend
from jaxenvs.bridge._instances import Validate, traceback_of
from jaxenvs.bridge._layout import leaves_of
from jaxenvs.bridge._machine import num_cores
from jaxenvs.bridge._worker import has_coroutines
from jaxenvs.bridge.backends.base import Backend, Broken, Post, Settings
from jaxenvs.bridge.backends.native import NativeBackend
from jaxenvs.bridge.hosts import env_fn_of, is_vectorized_id, vector_maker_of
from jaxenvs.bridge.pool import GYM_MODES, Pool
from jaxenvs.bridge.tuning import Way
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
    """Makes a pool of environments that are not JAX.

    Args:
        env: an id, "gymnasium/CartPole-v1" or plain "CartPole-v1"; "gym/...", "dm_control/...",
            "envpool/..." and others, see the page on the host bridge; or a function that makes an
            environment of Gymnasium, classic gym, dm_env or PettingZoo (parallel); or one such
            function for each environment.
        num_envs: N; may be left out with a list of functions.
        batch_size: B, how many results `recv` waits for; None for N: all step together.
        num_workers: processes, threads or actors; "auto" chooses from what steps take: one
            environment is made and stepped at random for a moment. A number, or another backend
            than "auto" and "process", steps nothing before you do. Not for "serial".
        envs_per_worker: environments in each worker, in place of `num_workers`.
        caller_steps: whether the caller is one more worker of "process", with a share of the
            environments in its own process: the fastest where steps take microseconds. None
            leaves that to "auto".
        backend: what steps them. "serial": the caller, one after the other. "thread": threads of
            this process, for environments that wait or release the interpreter lock. "process":
            worker processes. "asyncio": one event loop, for environments whose `step` is a
            coroutine. "ray": actors of a Ray cluster. "native": `env` makes something that is
            vectorized already. "auto": what is fastest as measured, never slower than "serial";
            what `jaxenvs tune` has found is taken as it is.
        seed: of the first reset: environment i is seeded with `seed + i`; or one for each.
        autoreset_mode: what follows a finished episode: "next_step", "same_step", "disabled", or
            Gymnasium's `AutoresetMode`. None is what a vectorized environment has; else
            "next_step", unless a `HostEnv` has the pool before it is reset and chooses.
        timeout: seconds that one step or reset may take; None for any time. Whoever is to be
            watched is stepped by a worker, never by the caller. Noticed within half of it more.
        on_failure: of an environment that raises or does not answer in time. "raise": the call
            raises `WorkerError` or `EnvTimeoutError`. "restart": it is logged. In both cases the
            environment is made anew and flagged. A process that dies is always replaced; what
            cannot be made anew is an error.
        time_limit: steps after which an episode is truncated, besides the environments' own limits.
        info_fields: entries of info that every step returns as an array, also inside `jit`:
            names, whose shapes are looked up in one environment, or the space of each.
        validate: what is checked of observations. Shape and dtype always are. "first" looks for
            NaN in every batch, and whether the first ones of each environment are in its space
            (a warning if not); True raises for any observation outside of its space; False takes
            everything. Actions are checked unless it is False.
        copy: return arrays of your own in place of views, see `Pool`.
        ray_options: of the actors of backend="ray", as their `options` takes them: `num_cpus`,
            `resources`, `runtime_env` and others. They reserve no whole core unless told to.
        **kwargs: for the environment of an id.

    Returns:
        A `Pool`, which is a `gymnasium.vector.VectorEnv`.

    Raises:
        PoolError: values that cannot work, or environments whose spaces differ.
        SeedError: a seed that is no whole number, or not as many seeds as environments.
        WorkerError: a constructor raised; the message has its traceback.
        UnknownEnvironmentError: there is no such id.
        MissingExtraError: a package is missing.

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
            "max_episode_steps": time_limit,  # as the makers call it
        }
        found = _native(env, num_envs, kwargs, wanted)
        return found, found.maker.name, found.batch_size, found.info_samples

    chosen: Chosen | None = None
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
            made, chosen = _made(
                backend, env_fns, workers, batch, name, ray_options, caller_steps, watched
            )
        except (AlreadyVectorized, WorkerError) as error:
            if AlreadyVectorized.__name__ not in f"{type(error)} {error}":
                raise
            if backend != "auto" or num_workers != "auto":
                raise PoolError(
                    f'what "{name}" makes is vectorized already.  Pass backend="native" and no'
                    " num_workers, or return a single environment."
                ) from error
            made, name, batch, samples = native()

    def assemble(made: Backend) -> Pool:
        try:
            if isinstance(made, NativeBackend):  # which says itself how many they are
                check_seed(seed, made.num_envs)
            found = made.facts[0]
            _refuse_different(made.facts, name)
            if made.name != "asyncio":
                _refuse_coroutines(made, name)
            settings = Settings(
                observation_space=found["observation_space"],
                action_space=found["action_space"],
                info_fields=_fields(info_fields, samples),
                autoreset_mode=made.autoreset_mode or mode or "next_step",
                mode_is_open=made.autoreset_mode is None and mode is None,
                time_limit=time_limit,
                validate=validate,
                watched=timeout is not None,
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
        except BaseException:
            made.close(0)
            raise

    pool = assemble(made)
    if chosen is not None and backend == "auto":
        pool = chosen.settle(pool, assemble)
    return pool


def _made(
    backend: str,
    env_fns: list[Callable[[], Any]],
    num_workers: int | None,
    batch_size: int,
    name: str,
    ray_options: Mapping[str, Any] | None,
    caller_steps: bool | None,
    watched: bool,
) -> tuple[Backend, Chosen | None]:
    if ray_options is not None and backend != "ray":
        raise PoolError(f'make_pool got ray_options for backend="{backend}"; they are for "ray".')
    try:
        if caller_steps:
            return _with_caller(backend, env_fns, num_workers), None
        if backend == "ray":
            from jaxenvs.bridge.backends.ray import RayBackend

            return RayBackend(env_fns, num_workers, ray_options), None
        if num_workers is not None or backend not in ("auto", "process"):
            plain = "process" if backend == "auto" else backend
            return make_backend(Way(plain, num_workers or 0), env_fns), None
        only = None if backend == "auto" else backend
        may_share = caller_steps is None and backend == "auto"
        may_serve = not watched
        chosen = Chosen(env_fns, batch_size, name, only, may_share and may_serve, may_serve)
        return chosen.backend, chosen
    except Broken as error:
        raise _not_made(error.post, f"environment {error.post.instance}", name) from None
    except (KeyboardInterrupt, JaxenvsError):
        raise
    except BaseException as error:
        instance = getattr(error, "jaxenvs_instance", None)
        if instance is None:
            raise
        post = Post(instance, "its constructor", traceback_of(error))
        raise _not_made(post, f"environment {instance}", name) from error


def _with_caller(
    backend: str, env_fns: list[Callable[[], Any]], num_workers: int | None
) -> Backend:
    count, workers = len(env_fns), num_workers or max(1, min(len(env_fns), num_cores()) - 1)
    if backend not in ("auto", "process") or workers >= count:
        raise PoolError(
            f'make_pool got caller_steps=True with backend="{backend}", {workers} workers and'
            f' {count} environments; it needs backend="process" and an environment for the caller'
            " and each worker.  Leave it out."
        )
    shares = workers + 1
    bounds = tuple(w * count // shares for w in range(1, shares + 1))
    return make_backend(Way("process", workers, bounds, caller_steps=True), env_fns)


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
        f'{who} ("{name}") failed in {post.what.rstrip(".")}.  The traceback follows.\n{post.text}'
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
                f"make_pool got {name}={value!r} for what is vectorized already: its environments"
                " cannot be watched, restarted or placed one by one.  Leave it out."
            )


def _check_batch_size(batch_size: int | None, count: int) -> None:
    if batch_size is not None and not (is_whole(batch_size) and 1 <= batch_size <= count):
        raise PoolError(
            f"make_pool got batch_size={batch_size!r} for num_envs={count}; expected a whole number"
            " from 1 to num_envs.  Leave it out to step all together."
        )


def _mode(mode: Any) -> AutoresetMode:
    for name, theirs in GYM_MODES.items():
        if mode in (name, theirs):
            return name  # pyright: ignore[reportReturnType]
    raise PoolError(
        f"make_pool got autoreset_mode={mode!r}; expected one of {', '.join(map(repr, GYM_MODES))}."
    )


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
            f"make_pool got timeout={timeout!r} for environments that the caller steps itself, and"
            ' nobody watches the caller.  Pass backend="process" or "thread", or no timeout.'
        )


def _check_workers(
    backend: str, num_workers: Any, envs_per_worker: int | None, caller_steps: bool | None
) -> None:
    is_auto = isinstance(num_workers, str) and num_workers == "auto"
    if not is_auto and not (is_whole(num_workers) and num_workers >= 1):
        raise PoolError(
            f'make_pool got num_workers={num_workers!r}; expected "auto" or a whole number from 1'
            " on."
        )
    if backend == "serial" and not caller_steps and not (is_auto and envs_per_worker is None):
        given = f"{num_workers=}" if envs_per_worker is None else f"{envs_per_worker=}"
        raise PoolError(
            f'make_pool got {given} with backend="serial", where the caller steps all environments'
            " and there are no workers.  Leave it out, or pass another backend."
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
            f"make_pool got info_fields={fields!r:.80}; expected a list of names, or a dict with"
            " the space of each."
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
                f"environment {i} ({name!r}) has coroutine functions, which"
                f' backend="{made.name}" cannot await.  Pass backend="asyncio" or "auto".'
            )


def _refuse_different(all_facts: Sequence[Mapping[str, Any]], name: str) -> None:
    first = all_facts[0]
    for i, each in enumerate(all_facts):
        for kind in ("observation_space", "action_space"):
            # Mostly they are one object, and looking at the bounds of large ones takes long.
            if each[kind] is not first[kind] and each[kind] != first[kind]:
                raise PoolError(
                    f"environments 0 and {i} of {name!r} have different {kind}s:\n"
                    f"  0: {first[kind]}\n  {i}: {each[kind]}\n"
                    "Wrap them so that they agree, or make a pool of each kind."
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
            why = f"which neither reset nor the first step returned; they have {known}"
            if values:
                why = f"which is {values[-1]!r:.80}, no number and no array of numbers"
            raise PoolError(
                f"info_fields names {name!r}, {why}.  Leave it out, or pass a space for it:"
                f" info_fields={{{name!r}: space}}."
            )
        found[name] = space
    return found


def _info_samples(env_fn: Callable[[], Any]) -> list[Mapping[str, Any]]:
    """The infos of a reset and a step."""
    env = adapted(env_fn())
    if has_coroutines(env):
        with ThreadPoolExecutor(1) as thread:  # here the caller may have an event loop already
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
    """A space that has all values of that shape and dtype; None if it is no array of numbers."""
    try:
        found = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    if found.dtype == np.bool_:
        boolean: Any = np.bool_  # which works, though it is not among the declared types
        return gymnasium.spaces.Box(0, 1, found.shape, boolean)
    if found.dtype.kind not in "iuf":
        return None
    limits = np.finfo(found.dtype) if found.dtype.kind == "f" else np.iinfo(found.dtype)
    return gymnasium.spaces.Box(limits.min, limits.max, found.shape, found.dtype.type)
