"""`send` and `recv` of half the environments, compared with the ideal of this protocol."""

import contextlib
import functools
import time
from typing import Any

import numpy as np

import jaxenvs
from benchmarks.host.environments import Sleeping
from benchmarks.host.record import Record
from benchmarks.host.simulation import ideal_seconds

NUM_ENVS = 16
SLOWER = 100  # how many times slower environment 0 is
SIGMA = 0.5  # standard deviation of the logarithm of a step's time
BACKENDS = ("process", "thread")
# Mean seconds per step -> (required share, batches per sample).
CASES = {1e-4: (0.80, 2000), 1e-3: (0.90, 800), 1e-2: (0.90, 150)}


def measure(record: Record) -> None:
    for mean, (required, batches) in CASES.items():
        num_batches = batches // 8 if record.quick else batches
        _race(record, mean, required, num_batches)


def times(mean: float, instance: int, count: int = 512) -> list[float]:
    """Returns log-normal seconds with this mean; environment 0 takes `SLOWER` times as long."""
    generator = np.random.default_rng(instance)
    drawn = generator.lognormal(-(SIGMA**2) / 2, SIGMA, count) * mean
    return (drawn * (SLOWER if instance == 0 else 1)).tolist()


def _race(record: Record, mean: float, required: float, num_batches: int) -> None:
    case = f"log-normal {mean * 1e6:g} µs, N = {NUM_ENVS}, one {SLOWER} times slower"
    env_fns = [functools.partial(Sleeping, times(mean, i)) for i in range(NUM_ENVS)]
    shares: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    with contextlib.ExitStack() as stack:
        pools = {}
        for backend in BACKENDS:
            # One environment per worker: the slow one would delay others in its worker.
            pools[backend] = stack.enter_context(
                jaxenvs.make_pool(
                    env_fns, batch_size=NUM_ENVS // 2, num_workers=NUM_ENVS, backend=backend
                )
            )
            pools[backend].reset()

        def run(backend: str, calls: int) -> float:
            seconds = 0.0
            for _ in range(calls):
                took, durations = exchange(pools[backend], num_batches)
                ideal = ideal_seconds(durations, NUM_ENVS // 2, num_batches)
                shares[backend].append(ideal / took)
                seconds += took
            return seconds

        sides = {backend: functools.partial(run, backend) for backend in BACKENDS}
        # A sample is one exchange. The two warm-up exchanges do not count.
        record.race(case, sides, num_envs=NUM_ENVS, min_seconds=0)
    for backend in BACKENDS:
        own = shares[backend][-record.repeats :]
        record.figure(case, f"{backend}, share of the ideal", own, required)


def exchange(pool: Any, num_batches: int) -> tuple[float, list[list[float]]]:
    """Receives batches and answers each; returns the total seconds and those of each step."""
    every = np.arange(pool.num_envs, dtype=np.int32)
    action = np.zeros(pool.num_envs, np.int64)
    half = action[: pool.batch_size]
    pool.call("pop_durations")
    begin = time.perf_counter()
    pool.send(action, every)
    for _ in range(num_batches - 1):
        info = pool.recv()[4]
        pool.send(half, info["env_id"])
    pool.recv()
    seconds = time.perf_counter() - begin
    for _ in range((pool.num_envs - 1) // pool.batch_size):  # environments that are still stepping
        pool.recv()
    return seconds, [list(own) for own in pool.call("pop_durations")]
