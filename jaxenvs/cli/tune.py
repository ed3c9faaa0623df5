"""`jaxenvs tune`: measures every way to run environments that are not JAX."""

import argparse
from typing import Any

from jaxenvs.bridge.making import make_pool
from jaxenvs.bridge.tuning import Way, keep, num_cores, throughput
from jaxenvs.cli._console import console, table
from jaxenvs.errors import JaxenvsError, PoolError


def run(options: argparse.Namespace) -> None:
    """Prints a table of all measurements and stores the fastest way."""
    num_envs, batch_size = options.num_envs, options.batch_size
    if num_envs < 1:
        raise PoolError(f"tune got --num-envs {num_envs}; expected a positive integer.")
    if batch_size is None:
        batch_size = num_envs
    if not 1 <= batch_size <= num_envs:
        raise PoolError(
            f"tune got --batch-size {batch_size} for --num-envs {num_envs}; expected an integer"
            f" from 1 to {num_envs}."
        )
    if not 0 <= options.seconds < float("inf"):
        raise PoolError(
            f"tune got --seconds {options.seconds:g}; expected a number of seconds, at least 0."
        )
    found: list[tuple[Way, str]] = []
    for backend, workers in _candidates(num_envs):
        try:
            tried = _tried(options.id, num_envs, batch_size, backend, workers, options.seconds)
            found.append((tried, ""))
        except JaxenvsError as error:
            way = Way(backend, workers or 0, seconds=float("inf"))
            found.append((way, str(error).split("\n", 1)[0]))
    possible = [way for way, why in found if not why]
    if not possible:
        raise PoolError(f'none of the ways to run "{options.id}" worked: {found[0][1]}')
    best = min(possible, key=lambda way: way.seconds)
    title = f"{options.id}, {num_envs} environments, {batch_size} a batch, {num_cores()} cores"
    shown = table("backend", "workers", "us a batch", "steps/s", "against serial", "", title=title)
    serial = found[0][0].seconds
    for way, why in sorted(found, key=lambda pair: pair[0].seconds):
        shown.add_row(*_row(way, why, batch_size, serial), "best" if way is best else "")
    console().print(shown)
    if not options.dry_run:
        path = keep(options.id, num_envs, batch_size, best)
        console().print(f'{best} is kept in {path}; backend="auto" takes it from there.')


def _row(way: Way, why: str, batch_size: int, serial: float) -> tuple[str, ...]:
    workers = str(way.num_workers) if way.num_workers else "-"
    if why:
        return way.backend, workers, "-", "-", why[:60]
    rate = f"{batch_size / way.seconds:,.0f}"
    return way.backend, workers, f"{way.seconds * 1e6:,.1f}", rate, f"{serial / way.seconds:.2f}x"


def _candidates(num_envs: int) -> list[tuple[str, int | None]]:
    """Returns every way worth trying, serial first; None chooses the number of workers."""
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


def _tried(
    id: str, num_envs: int, batch_size: int, backend: str, workers: int | None, seconds: float
) -> Way:
    options: dict[str, Any] = {} if workers is None else {"num_workers": workers}
    with make_pool(id, num_envs, batch_size=batch_size, backend=backend, **options) as pool:  # pyright: ignore[reportArgumentType]
        took = throughput(pool, seconds)
        return Way(pool.backend, pool.num_workers, pool.bounds, pool.caller_steps, took)
