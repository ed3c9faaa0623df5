"""Steps that compute: the share of the cores that a pool of processes reaches."""

import contextlib
import functools
import time

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
        """The same steps one after the other, with nothing in between."""
        step = env.step
        begin = time.perf_counter()
        for _ in range(calls * num_envs):
            step(0)
        return time.perf_counter() - begin

    with contextlib.closing(
        jaxenvs.make_pool([env_fn] * num_envs, backend="process", num_workers=cores)
    ) as pool:
        pool.reset()
        sides = {"process": slow_stepping(pool.step, actions(num_envs)), "one core alone": alone}
        took = record.race(case, sides, num_envs=num_envs)
    shares = [a / cores / p for a, p in zip(took["one core alone"], took["process"], strict=True)]
    record.figure(case, f"share of {cores} cores", shares, required)
