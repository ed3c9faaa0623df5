"""Which backend suits an environment: measured, not guessed.

`make_pool(..., backend="auto")` steps one environment for a moment, predicts what each way of
running N of them would take, and tries the best before it settles. `jaxenvs tune` tries them all,
and keeps the fastest in a file that "auto" looks into first.
"""

import dataclasses
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from gymnasium.vector.utils import batch_space

from jaxenvs.bridge._machine import num_cores
from jaxenvs.bridge._native import cache_folder

MEASURED_SECONDS = 0.08  # that one environment is stepped for
# What was measured of the ways themselves, in seconds, on two cores of an AMD EPYC.
_SERIAL_BATCH, _SERIAL_STEP = 4e-6, 0.4e-6
_PROCESS_BATCH = 28e-6  # of the worker at home on the caller's core: it has as much less to do
_SHARED_BATCH = 10e-6
_THREAD_STEP = 25e-6  # handing over the interpreter lock
_SLEEPING_WORKER = 60e-6  # waking a worker that sleeps, while others are woken
_MOST_THREADS = 64
_MARGIN = 1.1  # by which another way has to beat the simplest


@dataclasses.dataclass(frozen=True)
class Measurement:
    """How the steps of one environment are.

    Attributes:
        step: seconds that one takes, with the resets that it needs.
        spread: standard deviation of steps, in seconds.
        cpu: seconds of it that a processor is at work; the rest it waits.
        spent: seconds of a core that measuring took in all.
        cores: how many this process may use.
        free_cores: how many of them nobody else was using meanwhile.
    """

    step: float
    spread: float
    cpu: float
    spent: float
    cores: int
    free_cores: float

    @property
    def waits(self) -> bool:
        """Whether it waits, for a device or another machine, rather than computes."""
        return self.cpu < 0.5 * self.step

    @property
    def uneven(self) -> bool:
        """Whether some steps take far longer than others."""
        return self.spread > self.step and self.spread > 200e-6

    def __str__(self) -> str:
        return (
            f"a step takes {_time(self.step)} (+-{_time(self.spread)}),"
            f" {'mostly waiting' if self.waits else 'computing'};"
            f" {self.free_cores:.1f} of {self.cores} cores are free"
        )


@dataclasses.dataclass(frozen=True)
class Way:
    """A way to run N environments."""

    backend: str
    num_workers: int = 0
    bounds: tuple[int, ...] | None = None  # where each worker's environments begin, if not evenly
    caller_steps: bool = False  # those before the first worker's, which begin at bounds[0]
    seconds: float = 0.0  # that a batch is predicted to take, or was measured to

    def __str__(self) -> str:
        workers = f" with {self.num_workers} workers" if self.num_workers else ""
        return f"{self.backend}{workers}{' and the caller' if self.caller_steps else ''}"


class Load:
    """How busy the machine is with others' work, from here until `free_cores`."""

    def __init__(self) -> None:
        self._before = _machine_times()

    def free_cores(self, cores: int, ours: float) -> float:
        """How many of `cores` nobody else was using; `ours`: seconds of our workers' cores."""
        after = _machine_times()
        if self._before is None or after is None or after[0] <= self._before[0]:
            return float(cores)
        total, idle, mine = (b - a for a, b in zip(self._before, after, strict=True))
        others = max(0.0, total - idle - mine - ours) / total * (os.cpu_count() or cores)
        return max(0.0, cores - others)


def ways(m: Measurement, num_envs: int, batch_size: int) -> list[Way]:
    """What can be done with N environments, the fastest prediction first."""
    n = num_envs
    serial = Way("serial", seconds=_SERIAL_BATCH + batch_size * (m.step + _SERIAL_STEP))
    found = [serial]
    if batch_size < n:
        found += _as_they_come(m, n, batch_size)
    else:
        found += _together(m, n)
    return sorted(found, key=lambda way: way.seconds * (1 if way is serial else _MARGIN))


def _together(m: Measurement, n: int) -> list[Way]:
    found = []
    if m.waits:
        threads = min(n, _MOST_THREADS)
        found.append(
            Way("thread", threads, seconds=_rounds(n, threads) * m.step + n * _THREAD_STEP)
        )
        workers = min(n, 8 * m.cores)
        seconds = max(_rounds(n, workers) * m.step, n * m.cpu / m.cores)
        found.append(Way("process", workers, seconds=seconds + workers * _SLEEPING_WORKER))
    for workers in range(1, min(n, m.cores) + 1):
        bounds = split(n, workers, m.step)
        most = max((b - a for a, b in itertools.pairwise(bounds[1:])), default=0)
        at_home = bounds[1] * (m.step + _SERIAL_STEP) + _PROCESS_BATCH
        seconds = max(at_home, most * (m.step + _SERIAL_STEP) + 8e-6)
        # What others use of the cores is missing; and who is late is waited for.
        crowding = max(1.0, workers / max(m.free_cores, 0.5))
        found.append(Way("process", workers, bounds, seconds=seconds * crowding))
        if workers > 1:
            found.append(_with_caller(m, n, workers, crowding))
    return found


def _with_caller(m: Measurement, n: int, cores: int, crowding: float) -> Way:
    """The caller steps a share on its own core: nothing changes hands there."""
    first = n // cores
    rest = n - first
    bounds = tuple(first + rest * w // (cores - 1) for w in range(cores))
    most = max(first, *(b - a for a, b in itertools.pairwise(bounds)))
    seconds = (most * (m.step + _SERIAL_STEP) + _SHARED_BATCH) * crowding
    return Way("process", cores - 1, bounds, caller_steps=True, seconds=seconds)


def _as_they_come(m: Measurement, n: int, batch_size: int) -> list[Way]:
    """With send and recv, who is slow is not waited for, if it has a worker of its own."""
    share = batch_size / n
    if m.waits or m.uneven:
        workers = min(n, 16 * m.cores)
        busy = max(_rounds(n, workers) * m.step, n * m.cpu / max(m.free_cores, 0.5))
        found = [Way("process", workers, seconds=share * busy + _SLEEPING_WORKER)]
        if m.waits:
            threads = min(n, _MOST_THREADS)
            seconds = share * _rounds(n, threads) * m.step + batch_size * _THREAD_STEP
            found.append(Way("thread", threads, seconds=seconds))
        return found
    workers = min(n, m.cores)
    free = max(0.5, min(workers, m.free_cores))
    return [Way("process", workers, seconds=batch_size * m.step / free + _SLEEPING_WORKER)]


def split(num_envs: int, num_workers: int, step: float) -> tuple[int, ...]:
    """Where the environments of each worker begin, and where the last one's end.

    Worker 0 shares the caller's core, so it has fewer, by what the caller takes the time of.
    """
    if num_workers == 1:
        return 0, num_envs
    others = num_workers - 1
    # first * step + caller = (num_envs - first) / others * step
    first = round((num_envs - others * _PROCESS_BATCH / step) / num_workers)
    first = max(1, first)
    rest = num_envs - first
    return 0, *(first + rest * w // others for w in range(num_workers))


def _rounds(n: int, workers: int) -> int:
    return -(-n // workers)


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1 or unit == "us":
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds} s"


def _machine_times() -> tuple[float, float, float] | None:
    """Seconds of all cores since the start of the machine, those idle, those of this process."""
    try:
        with open("/proc/stat") as file:
            ticks = [float(word) for word in file.readline().split()[1:]]
    except OSError:
        return None
    rate = os.sysconf("SC_CLK_TCK")
    times = os.times()
    mine = times.user + times.system
    return sum(ticks[:8]) / rate, (ticks[3] + ticks[4]) / rate, mine


# --- what was tuned ---


def _file() -> Path:
    return cache_folder() / "tuned.json"


def _key(name: str, num_envs: int, batch_size: int) -> str:
    return f"{name} num_envs={num_envs} batch_size={batch_size} cores={num_cores()}"


def kept(name: str, num_envs: int, batch_size: int) -> Way | None:
    """What `jaxenvs tune` found for these environments on this machine, if it was run."""
    try:
        entry = json.loads(_file().read_text()).get(_key(name, num_envs, batch_size))
        if entry is None:
            return None
        bounds = entry.get("bounds")
        return Way(
            entry["backend"],
            int(entry["num_workers"]),
            tuple(map(int, bounds)) if bounds else None,
            bool(entry["caller_steps"]),
            float(entry["seconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # none, or damaged: it is a cache


def keep(name: str, num_envs: int, batch_size: int, way: Way) -> Path:
    """Writes down what was found best; returns the file."""
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        entries = json.loads(path.read_text())
    except (OSError, ValueError):
        entries = {}
    entries[_key(name, num_envs, batch_size)] = dataclasses.asdict(way)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(entries, indent=1))
    os.replace(temporary, path)
    return path


def throughput(pool: Any, seconds: float) -> float:
    """Seconds that a batch of `pool` takes: the median of rounds of random actions."""
    space = pool.action_space
    space.seed(0)
    pool.single_action_space.seed(0)
    if pool.batch_size == pool.num_envs:
        actions = [space.sample() for _ in range(8)]
        pool.reset()

        def round_() -> float:
            before = time.perf_counter()
            for action in actions:
                pool.step(action)
            return (time.perf_counter() - before) / len(actions)

    else:
        one = batch_space(pool.single_action_space, pool.batch_size).sample()
        pool.async_reset()

        def round_() -> float:
            before = time.perf_counter()
            for _ in range(4):
                pool.send(one, pool.recv()[4]["env_id"])
            return (time.perf_counter() - before) / 4

    round_()
    rounds, end = [round_()], time.perf_counter() + seconds
    while time.perf_counter() < end:
        rounds.append(round_())
    while pool.owes:
        pool.recv()
    return sorted(rounds)[len(rounds) // 2]
