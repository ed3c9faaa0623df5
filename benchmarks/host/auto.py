"""The choice of `backend="auto"`, compared with Gymnasium's SyncVectorEnv."""

import contextlib
import functools
import itertools
from collections.abc import Iterator, Sequence

import jaxenvs
from benchmarks._common import burning
from benchmarks.host import peers
from benchmarks.host.environments import Busy, Sleeping, actions, iterations
from benchmarks.host.record import Record, ratios, slow_stepping, stepping

NUM_ENVS = (1, 4, 16, 64, 256, 1024)
BUSY = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)  # seconds per step
ASLEEP = (1e-4, 1e-3, 1e-2)  # timers cannot sleep for less
MAX_SECONDS = 0.35  # per step of SyncVectorEnv; beyond, every backend but serial is far faster
LOADED_NUM_ENVS, LOADED_BUSY = (1, 16, 256), (1e-6, 1e-4, 1e-3)  # next to another process
TOLERANCE = 0.97  # a ratio of 1, less the noise of two equal contestants


def measure(record: Record) -> None:
    grid = list(_grid(NUM_ENVS, BUSY, ASLEEP))
    loaded = list(_grid(LOADED_NUM_ENVS, LOADED_BUSY, ()))
    if record.quick:
        grid, loaded = grid[::8], loaded[:2]
    per_second = iterations(1.0)
    for case in grid:
        _race(record, *case, per_second, "")
    with burning(1):
        for case in loaded:
            _race(record, *case, per_second, ", a core burning")
    record.note(
        f"cases in which a step of SyncVectorEnv would take more than {MAX_SECONDS} s are skipped;"
        f" the required ratio is {TOLERANCE}: 1, less a tolerance for noise."
    )


def _grid(
    num_envs: Sequence[int], busy: Sequence[float], asleep: Sequence[float]
) -> Iterator[tuple[str, int, float]]:
    for kind, times in (("busy", busy), ("sleeping", asleep)):
        for n, seconds in itertools.product(num_envs, times):
            if n * seconds <= MAX_SECONDS:
                yield kind, n, seconds


def _race(
    record: Record, kind: str, num_envs: int, seconds: float, per_second: int, load: str
) -> None:
    if kind == "busy":
        env_fn = functools.partial(Busy, max(1, round(seconds * per_second)))
    else:
        env_fn = functools.partial(Sleeping, [seconds])
    case = f"{kind} {seconds * 1e6:g} µs, N = {num_envs}{load}"
    given = actions(num_envs)
    run = slow_stepping if num_envs * seconds > 0.02 else stepping
    with (
        contextlib.closing(jaxenvs.make_pool([env_fn] * num_envs, backend="auto")) as pool,
        contextlib.closing(peers.sync(env_fn, num_envs)) as sync,
    ):
        pool.reset()
        sync.reset()
        sides = {"auto": run(pool.step, given), "Gymnasium Sync": run(sync.step, given)}
        took = record.race(case, sides, num_envs=num_envs, min_seconds=record.min_seconds / 2)
        chosen = f"{pool.backend}" + (f" of {pool.num_workers}" if pool.num_workers else "")
    name = f"auto ({chosen}) / Gymnasium Sync"
    record.figure(case, name, ratios(took["Gymnasium Sync"], took["auto"]), TOLERANCE)
