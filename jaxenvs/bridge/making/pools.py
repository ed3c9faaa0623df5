"""`make_pool`: makes a pool from an id or from environment functions."""

import contextlib
import errno
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import gymnasium

from jaxenvs._machine import num_cores
from jaxenvs.bridge.backends.backend import Backend, EnvFailure, Report, Settings
from jaxenvs.bridge.backends.vectorized import VectorizedBackend
from jaxenvs.bridge.foreign.adapters import AlreadyVectorized
from jaxenvs.bridge.foreign.ids import check_limit_of, env_fn_of, is_vectorized_id, vector_maker_of
from jaxenvs.bridge.foreign.pettingzoo import agent_fields
from jaxenvs.bridge.making.checks import (
    BackendName,
    check_batch_size,
    check_caller_steps,
    check_options,
    check_seed,
    check_workers,
    checked_fields,
    checked_mode,
    refuse_coroutines,
    refuse_different,
    refuse_for_native,
    seconds_or_none,
    whole_or_none,
    workers_for,
)
from jaxenvs.bridge.making.choosing import chosen_backend, make_backend, with_caller
from jaxenvs.bridge.making.info_fields import Samples, info_samples, spaces_of_fields
from jaxenvs.bridge.making.tuning import BackendConfig
from jaxenvs.bridge.memory.arrays import AutoresetMode
from jaxenvs.bridge.native.libraries import POOL, is_there
from jaxenvs.bridge.pool import Pool
from jaxenvs.bridge.workers.checks import Validate
from jaxenvs.bridge.workers.failures import traceback_of
from jaxenvs.errors import JaxenvsError, PoolError, WorkerError


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
    time_limit: int | None | Literal["default"] = "default",
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
            this and closed again. If `jaxenvs tune-pool` has saved a result for these environments,
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
        time_limit: the number of steps after which an episode is truncated, instead of the limit
            of the id; None for no limit, "default" for the limit of the id. Limits that are
            parameters of an environment, such as `max_steps` of minigrid's, apply as well.
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
        PoolError: an argument is invalid, the spaces of the environments differ, or they have a
            shorter time limit that cannot be replaced.
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
        raise PoolError(
            f"make_pool got max_episode_steps={limit}.  Pass time_limit={limit}, which replaces the"
            " limit of the id."
        )
    num_envs = whole_or_none("num_envs", num_envs)
    envs_per_worker = whole_or_none("envs_per_worker", envs_per_worker)
    if time_limit != "default":
        time_limit = whole_or_none("time_limit", time_limit)
    limit = None if isinstance(time_limit, str) else time_limit  # that the pool adds
    timeout = seconds_or_none("timeout", timeout)
    check_options(backend, timeout, on_failure, validate, caller_steps, ray_options)
    check_workers(backend, num_workers, envs_per_worker, caller_steps)
    info_fields = checked_fields(info_fields)
    check_seed(seed, num_envs)
    mode = checked_mode(autoreset_mode)

    def vectorized() -> tuple[Backend, str, int, Samples]:
        """Makes the vectorized environment."""
        refuse_for_native(timeout, on_failure, envs_per_worker)
        wanted = {
            "num_envs": num_envs,
            "batch_size": whole_or_none("batch_size", batch_size),
            "num_threads": None if num_workers == "auto" else int(num_workers),
            "seed": seed,
            "autoreset_mode": mode,
            "max_episode_steps": limit,  # the makers' name for it
        }
        if num_envs is not None:
            check_batch_size(wanted["batch_size"], num_envs)
        maker = vector_maker_of(env, num_envs, kwargs, time_limit)
        with _explained(maker.name):
            found = VectorizedBackend(maker, wanted)
        return found, found.maker.name, found.batch_size, found.info_samples

    only_native = is_vectorized_id(env) or (callable(env) and num_envs is None)
    if backend == "native" or (backend == "auto" and only_native):
        made, name, batch, samples = vectorized()
    else:
        name, env_fns = env_fn_of(env, num_envs, kwargs, time_limit)
        check_batch_size(batch_size, len(env_fns))
        check_seed(seed, len(env_fns))
        batch = len(env_fns) if batch_size is None else int(batch_size)
        samples = partial(info_samples, env_fns[0])
        workers = workers_for(num_workers, envs_per_worker, len(env_fns))

        def separate() -> Backend:
            """Makes the environments one by one."""
            if caller_steps:
                shared = workers or max(1, min(len(env_fns), num_cores()) - 1)
                check_caller_steps(backend, shared, len(env_fns))
                return make_backend(with_caller(len(env_fns), shared), env_fns)
            if backend == "ray":
                from jaxenvs.bridge.backends.ray import RayBackend

                return RayBackend(env_fns, workers, ray_options)
            if workers is None and backend in ("auto", "process"):
                may_serve = backend == "auto" and timeout is None
                may_share = may_serve and caller_steps is None
                return chosen_backend(env_fns, batch, name, backend, may_share, may_serve)
            plain = backend
            if backend == "auto":
                plain = "process" if is_there(POOL) else "thread"
            return make_backend(BackendConfig(plain, workers or 0), env_fns)

        try:
            with _explained(name):
                made = separate()
        except (AlreadyVectorized, WorkerError) as error:
            if AlreadyVectorized.__name__ not in f"{type(error)} {error}":
                raise
            if backend != "auto" or num_workers != "auto":
                raise PoolError(
                    f'"{name}" makes an environment that is vectorized already.  Pass'
                    ' backend="native" and omit num_workers, or return a single environment.'
                ) from error
            made, name, batch, samples = vectorized()

    try:
        with _explained(name):
            if isinstance(made, VectorizedBackend):  # N was unknown until now
                check_seed(seed, made.num_envs)
            found = made.descriptions[0]
            refuse_different(made.descriptions, name)
            refuse_coroutines(made, name)
            for each in made.descriptions:
                check_limit_of(each["spec"], name, time_limit)
            settings = Settings(
                observation_space=found["observation_space"],
                action_space=found["action_space"],
                info_fields=spaces_of_fields(info_fields, samples) | agent_fields(found["agents"]),
                autoreset_mode=made.autoreset_mode or mode or "next_step",
                mode_is_open=made.autoreset_mode is None and mode is None,
                time_limit=limit,
                validate=validate,
                timeout=timeout,
                lock_step=batch == len(made.descriptions),
            )
            made.attach(settings)
            return Pool(
                made,
                settings,
                batch_size=batch,
                seed=seed,
                on_failure=on_failure,
                copy=copy,
                name=name,
                xla_functions=_xla_functions,
            )
    except BaseException:
        made.close(0)
        raise


def _xla_functions(pool: Any) -> Any:
    from jaxenvs.bridge.jit.functions import xla_functions  # imports JAX

    return xla_functions(pool)


@contextlib.contextmanager
def _explained(name: str) -> Iterator[None]:
    """Raises what happens to environments and files meanwhile as an error that says so."""
    try:
        yield
    except EnvFailure as error:
        raise _not_made(error.report, name) from None
    except (KeyboardInterrupt, JaxenvsError):
        raise
    except BaseException as error:
        instance = getattr(error, "jaxenvs_instance", None)
        if instance is not None:
            report = Report(instance, "its constructor", traceback_of(error))
            raise _not_made(report, name) from error
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            raise PoolError(
                "this process has too many open files to make the pool; each worker needs three."
                "  Raise the limit (`ulimit -n`), or use fewer workers."
            ) from error
        raise


def _not_made(report: Report, name: str) -> WorkerError:
    who = f"environment {report.instance}" if report.instance >= 0 else "the vectorized environment"
    failed = WorkerError(
        f'{who} ("{name}") failed in {report.what.rstrip(".")}.  Its traceback:\n{report.text}'
    )
    failed.env_ids = (report.instance,) if report.instance >= 0 else ()
    return failed
