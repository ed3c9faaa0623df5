"""`jaxenvs tune-pool`: measures every backend for environments that are not written in JAX."""

import argparse
from typing import Any

import numpy as np

from jaxenvs._machine import num_cores
from jaxenvs.bridge.making import make_pool
from jaxenvs.bridge.making.tuning import BackendConfig, batch_seconds, save_tuned
from jaxenvs.cli._console import console, table
from jaxenvs.errors import JaxenvsError, PoolError


def run(options: argparse.Namespace) -> None:
    """Prints a table of all measurements and saves the fastest."""
    num_envs, batch_size = options.num_envs, options.batch_size
    if num_envs < 1:
        raise PoolError(f"tune-pool got --num-envs {num_envs}; expected a positive integer.")
    if batch_size is None:
        batch_size = num_envs
    if not 1 <= batch_size <= num_envs:
        raise PoolError(
            f"tune-pool got --batch-size {batch_size} for --num-envs {num_envs}; expected an"
            f" integer from 1 to {num_envs}."
        )
    if not 0 <= options.seconds < float("inf"):
        raise PoolError(
            f"tune-pool got --seconds {options.seconds:g}; expected a number of seconds, at least"
            " 0."
        )
    rows: dict[Any, tuple[BackendConfig, str]] = {}  # one for each way to divide the environments
    for backend, workers in _candidates(num_envs):
        try:
            tried = _measure(options.id, num_envs, batch_size, backend, workers, options.seconds)
            why = ""
        except JaxenvsError as error:
            tried = BackendConfig(backend, workers or 0, seconds=float("inf"))
            why = str(error).split("\n", 1)[0]
        rows.setdefault((tried.backend, _workers(tried)), (tried, why))
    found = list(rows.values())
    possible = [config for config, why in found if not why]
    if not possible:
        raise PoolError(f'no backend could run "{options.id}": {found[0][1]}')
    best = min(possible, key=lambda config: config.seconds)
    title = f"{options.id}, {num_envs} environments, batches of {batch_size}, {num_cores()} cores"
    shown = table("backend", "workers", "us/batch", "steps/s", "vs. serial", "", title=title)
    serial = found[0][0].seconds
    for config, why in sorted(found, key=lambda pair: pair[0].seconds):
        shown.add_row(*_row(config, why, batch_size, serial), "best" if config is best else "")
    console().print(shown)
    if not options.dry_run:
        path = save_tuned(options.id, num_envs, batch_size, best)
        console().print(f'Saved "{best}" to {path}; backend="auto" will use it.')


def _row(config: BackendConfig, why: str, batch_size: int, serial: float) -> tuple[str, ...]:
    workers = _workers(config)
    if why:
        return config.backend, workers, "-", "-", why[:60]
    rate = f"{batch_size / config.seconds:,.0f}"
    return (
        config.backend,
        workers,
        f"{config.seconds * 1e6:,.1f}",
        rate,
        f"{serial / config.seconds:.2f}x",
    )


def _workers(config: BackendConfig) -> str:
    """Returns the number of workers, and the numbers of environments unless they are equal."""
    if not config.num_workers:
        return "-"
    bounds: Any = config.bounds or ()
    sizes = [f"{size}" for size in np.diff(bounds)]
    text = f"{config.num_workers}"
    if len({*sizes}) > 1:
        text += f": {' + '.join(sizes) if len(sizes) <= 8 else f'{min(sizes)} to {max(sizes)}'}"
    return f"{text}, and {bounds[0]} by the caller" if config.caller_steps and bounds else text


def _candidates(num_envs: int) -> list[tuple[str, int | None]]:
    """Returns the backends and worker counts to try, serial first; None means automatic."""
    cores = num_cores()
    processes = sorted({1, cores, 2 * cores, 4 * cores, 16 * cores, num_envs})
    threads = sorted({cores, 16, 64, num_envs})
    return [
        ("serial", None),
        ("process", None),
        ("auto", None),
        *(("process", n) for n in processes if n <= min(num_envs, 16 * cores)),
        *(("thread", n) for n in threads if n <= min(num_envs, 256)),
        ("asyncio", None),
    ]


def _measure(
    id: str, num_envs: int, batch_size: int, backend: str, workers: int | None, seconds: float
) -> BackendConfig:
    options: dict[str, Any] = {"backend": backend, "batch_size": batch_size}
    if workers is not None:
        options["num_workers"] = workers
    with make_pool(id, num_envs, **options) as pool:
        took = batch_seconds(pool, seconds)
        return BackendConfig(
            pool.backend, pool.num_workers, pool.worker_bounds, pool.caller_steps, took
        )
