"""Steps that compute: the share of the cores that a pool of processes uses.

A virtual core may be slower while its neighbor works. So the speed of the cores is measured in the
same repetition: the same work as one long step per core.
"""

import contextlib
import functools
import time
from typing import Any

import jaxenvs
from benchmarks import _common
from benchmarks.host.environments import Busy, actions, iterations
from benchmarks.host.record import Record, slow_stepping

REQUIRED = {1e-5: None, 1e-4: 0.95, 1e-3: 0.95}
NUM_ENVS = (16, 64)


def measure(record: Record) -> None:
    per_second = iterations(1.0)
    for seconds, required in REQUIRED.items():
        for num_envs in NUM_ENVS[:1] if record.quick else NUM_ENVS:
            _race(record, seconds, num_envs, required, round(seconds * per_second))


def _race(
    record: Record, seconds: float, num_envs: int, required: float | None, count: int
) -> None:
    case = f"busy {seconds * 1e6:g} µs, N = {num_envs}"
    env_fn = functools.partial(Busy, count)
    env, cores = env_fn(), _common.cores()
    env.reset()

    def alone(calls: int) -> float:
        """Runs the same steps one after the other, without a pool."""
        step = env.step
        begin = time.perf_counter()
        for _ in range(calls * num_envs):
            step(0)
        return time.perf_counter() - begin

    def pool_of(fns: list[functools.partial[Busy]]) -> Any:
        pool = jaxenvs.make_pool(fns, backend="process", num_workers=cores)
        pool.reset()
        return pool

    whole = functools.partial(Busy, count * num_envs // cores)
    with (
        contextlib.closing(pool_of([env_fn] * num_envs)) as pool,
        contextlib.closing(pool_of([whole] * cores)) as bound,
    ):
        sides = {
            "process": slow_stepping(pool.step, actions(num_envs)),
            "one long step a core": slow_stepping(bound.step, actions(cores)),
            "one core alone": alone,
        }
        took = record.race(case, sides, num_envs=num_envs)
    pairs = zip(took["one long step a core"], took["process"], strict=True)
    record.figure(case, "share of what the cores give", [a / b for a, b in pairs], required)
    shares = [a / cores / p for a, p in zip(took["one core alone"], took["process"], strict=True)]
    record.figure(case, f"share of {cores} times one core alone", shares, None)
