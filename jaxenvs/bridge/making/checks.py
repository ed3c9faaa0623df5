"""Validation of the arguments of make_pool."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

import gymnasium
import numpy as np

from jaxenvs.bridge.backends.backend import Backend
from jaxenvs.bridge.memory.arrays import MODES, AutoresetMode
from jaxenvs.bridge.memory.layout import leaves_of
from jaxenvs.bridge.pool.arguments import is_whole, seeds_of
from jaxenvs.errors import PoolError, SeedError

BackendName = Literal["auto", "serial", "thread", "process", "asyncio", "ray", "native"]


def _wrong(name: str, value: Any, expected: str) -> PoolError:
    return PoolError(f"make_pool got {name}={value!r:.80}; expected {expected}.")


def whole_or_none(name: str, value: Any) -> int | None:
    """Returns a count as a Python int; None stays None."""
    if value is None:
        return None
    if not is_whole(value) or value < 1:
        raise _wrong(name, value, "a positive integer")
    return int(value)


def seconds_or_none(name: str, value: Any) -> float | None:
    """Returns a duration as a float; None stays None."""
    if value is None:
        return None
    is_number = is_whole(value) or isinstance(value, (float, np.floating))
    if not is_number or not 0 < value < float("inf"):
        raise _wrong(name, value, "a positive number of seconds, or None for no limit")
    return float(value)


def check_seed(seed: Any, num_envs: int | None) -> None:
    """Validates the seed early, before environments are made. N may still be unknown.

    Raises:
        SeedError: see `seeds_of`; or a seed of a sequence is None.
    """
    seeds = seeds_of("make_pool", seed, range(num_envs or np.size(seed)))
    if seed is not None and -1 in seeds:
        raise SeedError(f"make_pool got seed={seed!r:.80}; expected nonnegative integers.")


def check_options(
    backend: Any,
    timeout: float | None,
    on_failure: Any,
    validate: Any,
    caller_steps: bool | None,
    ray_options: Any,
) -> None:
    for name, value, allowed in (
        ("backend", backend, get_args(BackendName)),
        ("on_failure", on_failure, ("raise", "restart")),
        ("validate", validate, ("first", True, False)),
    ):
        if value not in allowed:
            raise _wrong(name, value, _one_of(allowed))
    if timeout is not None and (backend == "serial" or caller_steps):
        raise PoolError(
            f"make_pool got timeout={timeout!r} for environments that the caller steps, where a"
            ' hang cannot be detected.  Pass backend="process" or "thread", or omit timeout.'
        )
    if ray_options is not None and backend != "ray":
        raise PoolError(
            f'make_pool got ray_options with backend="{backend}".  Pass backend="ray", or omit'
            " ray_options."
        )


def _one_of(allowed: Iterable[Any]) -> str:
    return f"one of {', '.join(map(repr, allowed))}"


def check_workers(
    backend: str, num_workers: Any, envs_per_worker: int | None, caller_steps: bool | None
) -> None:
    is_auto = isinstance(num_workers, str) and num_workers == "auto"
    if not is_auto and not (is_whole(num_workers) and num_workers >= 1):
        raise _wrong("num_workers", num_workers, '"auto" or a positive integer')
    if not is_auto and envs_per_worker is not None:
        raise PoolError(f"make_pool got {num_workers=} and {envs_per_worker=}.  Pass one of them.")
    if backend == "serial" and not caller_steps and not (is_auto and envs_per_worker is None):
        given = f"{num_workers=}" if envs_per_worker is None else f"{envs_per_worker=}"
        raise PoolError(
            f'make_pool got {given} with backend="serial", which has no workers: the caller steps'
            f" all environments.  Omit {given.partition('=')[0]}, or pass another backend."
        )


def workers_for(
    num_workers: int | Literal["auto"], envs_per_worker: int | None, count: int
) -> int | None:
    """Returns the number of workers for `count` environments; None means "auto"."""
    if envs_per_worker is not None:
        return -(-count // envs_per_worker)
    if num_workers == "auto":
        return None
    if num_workers > count:
        expected = f'"auto" or a number from 1 to {count}, the number of environments'
        raise _wrong("num_workers", num_workers, expected)
    return int(num_workers)


def check_caller_steps(backend: str, workers: int, count: int) -> None:
    if backend not in ("auto", "process") or workers >= count:
        raise PoolError(
            f'make_pool got caller_steps=True with backend="{backend}", {workers} workers and'
            f' {count} environments; it needs backend="process" and at least one environment for'
            " the caller and for each worker.  Omit caller_steps."
        )


def check_batch_size(batch_size: int | None, count: int) -> None:
    if batch_size is not None and not (is_whole(batch_size) and 1 <= batch_size <= count):
        raise PoolError(
            f"make_pool got batch_size={batch_size!r} for num_envs={count}; expected an integer"
            " from 1 to num_envs.  Omit batch_size to step all environments together."
        )


def checked_mode(mode: Any) -> AutoresetMode | None:
    name = mode.name.lower() if isinstance(mode, gymnasium.vector.AutoresetMode) else mode
    if name is not None and name not in MODES:
        raise _wrong("autoreset_mode", mode, _one_of(MODES))
    return name


def checked_fields(fields: Any) -> Sequence[str] | Mapping[str, gymnasium.Space]:
    if isinstance(fields, str):
        raise _wrong("info_fields", fields, f"a list of names: info_fields=[{fields!r}]")
    found: Any = tuple(fields) if isinstance(fields, Iterable) else (None,)
    spaces: Iterable[Any] = ()
    if isinstance(fields, Mapping):
        found, spaces = dict(fields), fields.values()
    are_names = all(isinstance(name, str) for name in found)
    if not are_names or not all(isinstance(space, gymnasium.Space) for space in spaces):
        raise _wrong("info_fields", fields, "a list of names, or a dict from names to spaces")
    return found


def refuse_for_native(timeout: Any, on_failure: str, envs_per_worker: Any) -> None:
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


def refuse_coroutines(made: Backend, name: str) -> None:
    for i, each in enumerate(made.descriptions):
        if each.get("is_coroutine") and made.name != "asyncio":
            raise PoolError(
                f"environment {i} ({name!r}) has coroutine functions, but"
                f' backend="{made.name}" cannot await them.  Pass backend="asyncio" or "auto".'
            )


def refuse_different(descriptions: Sequence[Mapping[str, Any]], name: str) -> None:
    first = descriptions[0]
    for i, each in enumerate(descriptions):
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
