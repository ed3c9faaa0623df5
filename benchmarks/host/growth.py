"""The cost of a step for many environments and large observations, and `recv` versus memcpy."""

import contextlib
import functools
import itertools
import time
from typing import Any

import numpy as np

import jaxenvs
from benchmarks import _common
from benchmarks.host.environments import NoOp, actions
from benchmarks.host.record import Record, ratios, slow_stepping, stepping

NUM_ENVS = (1, 4, 16, 64, 256, 1024)
BYTES = (4, 4096, 65536, 2**20)  # of one observation
MAX_BYTES = 64 * 2**20  # of a batch
RECEIVED_BYTES = (4, 4096, 16384, 65536, 2**18, 2**20)  # of one observation in a `recv`
REQUIRED_FROM = 2**18  # bytes of an observation
BATCH_SIZE = 16


def measure(record: Record) -> None:
    for size in BYTES[:2] if record.quick else BYTES:
        for num_envs in NUM_ENVS[:3] if record.quick else NUM_ENVS:
            if num_envs * size <= MAX_BYTES:
                _step(record, size, num_envs)
    for size in RECEIVED_BYTES[2:5:2] if record.quick else RECEIVED_BYTES:
        _receive(record, size)


def _step(record: Record, size: int, num_envs: int) -> None:
    env_fn = functools.partial(NoOp, size // 4)
    given = actions(num_envs)
    run = slow_stepping if size * num_envs > 2**22 else stepping
    workers = min(num_envs, _common.cores())
    with (
        contextlib.closing(
            jaxenvs.make_pool([env_fn] * num_envs, backend="process", num_workers=workers)
        ) as process,
        contextlib.closing(jaxenvs.make_pool([env_fn] * num_envs, backend="serial")) as serial,
    ):
        process.reset()
        serial.reset()
        sides = {"process": run(process.step, given), "serial": run(serial.step, given)}
        record.race(f"observations of {size:,} B, N = {num_envs}", sides, num_envs=num_envs)


def _receive(record: Record, size: int) -> None:
    """Measures `recv` of half the environments, after they finished, and a copy of as many bytes.

    Both copy from memory that the workers have just written, to two arrays in turn that were
    written before. `recv` also makes the other parts of a batch, in about 25 µs, which is far
    longer than the copy of small observations.
    """
    case = f"recv of {BATCH_SIZE} observations of {size:,} B"
    env_fn = functools.partial(NoOp, size // 4)
    num_envs = 2 * BATCH_SIZE
    with contextlib.closing(
        jaxenvs.make_pool(
            [env_fn] * num_envs,
            batch_size=BATCH_SIZE,
            backend="process",
            num_workers=_common.cores(),
        )
    ) as pool:
        pool.reset()
        ids = np.arange(BATCH_SIZE, dtype=np.int32)
        action = np.zeros(BATCH_SIZE, np.int64)
        pause = 5e-4 + BATCH_SIZE * size / 1e9  # long enough for the workers to finish
        source = _worker_memory(pool)
        targets = itertools.cycle([source[:BATCH_SIZE].copy() for _ in range(2)])

        def receive(calls: int) -> float:
            seconds = 0.0
            for _ in range(calls):
                pool.send(action, ids)
                _spin(pause)
                begin = time.perf_counter()
                pool.recv()
                seconds += time.perf_counter() - begin
            return seconds

        def copy(calls: int) -> float:
            seconds = 0.0
            for _ in range(calls):
                pool.send(action, ids)
                _spin(pause)
                target = next(targets)
                begin = time.perf_counter()
                np.copyto(target, source[:BATCH_SIZE])
                seconds += time.perf_counter() - begin
                pool.recv()
            return seconds

        def several(run: Any, calls: int) -> float:
            return float(np.median([run(1) for _ in range(10 * calls)])) * calls

        sides = {
            "recv": functools.partial(several, receive),
            "memcpy": functools.partial(several, copy),
        }
        took = record.race(case, sides, num_envs=num_envs, min_seconds=0)
    required = 1.3 if size >= REQUIRED_FROM else None
    values = ratios(took["recv"], took["memcpy"])
    record.figure(case, "recv / memcpy, time", values, required, at_least=False)


def _spin(seconds: float) -> None:
    """Waits without sleeping, because code runs slowly for a while after a sleep."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _worker_memory(pool: Any) -> np.ndarray:
    """Returns the array into which the workers write the observations that `recv` gathers."""
    answer = pool._backend.arrays.answers[pool._ledger.buffer ^ 1]
    return answer.observation[0]
