"""The choice of a backend by measurement.

`make_pool(..., backend="auto")` steps one environment for a moment, predicts the time that each
configuration would take for N environments, and verifies the best one in a short trial.
`jaxenvs tune` measures all of them and saves the fastest in a file that "auto" reads first.
"""

import dataclasses
import itertools
import json
import os
import time
from pathlib import Path
from typing import Any

from gymnasium.vector.utils import batch_space

from jaxenvs._machine import num_cores
from jaxenvs.bridge.native.libraries import cache_folder

MEASURED_SECONDS = 0.08  # how long one environment is stepped
# Overhead of the backends in seconds, measured on two cores of an AMD EPYC.
_SERIAL_BATCH, _SERIAL_STEP = 4e-6, 0.4e-6
_PROCESS_BATCH = 28e-6  # of the worker on the caller's core, which therefore gets fewer steps
_SHARED_BATCH = 10e-6
_THREAD_STEP = 25e-6  # handing over the interpreter lock
_SLEEPING_WORKER = 60e-6  # waking a worker that sleeps, while others are woken
_MOST_THREADS = 64
_MARGIN = 1.1  # the factor by which another backend must beat "serial"


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The measured cost of stepping one environment.

    Attributes:
        step: mean duration of a step in seconds, resets included.
        spread: standard deviation of the duration, in seconds.
        cpu: CPU seconds of a step; the rest is waiting.
        spent: CPU seconds that the measurement took.
        cores: number of cores that this process may use.
        free_cores: how many of them were not in use by other programs meanwhile.
    """

    step: float
    spread: float
    cpu: float
    spent: float
    cores: int
    free_cores: float

    @property
    def waits(self) -> bool:
        """Whether a step mostly waits, for a device or another machine."""
        return self.cpu < 0.5 * self.step

    @property
    def uneven(self) -> bool:
        """Whether some steps take much longer than others."""
        return self.spread > self.step and self.spread > 200e-6

    def __str__(self) -> str:
        return (
            f"a step takes {_time(self.step)} (+-{_time(self.spread)}),"
            f" {'mostly waiting' if self.waits else 'computing'};"
            f" {self.free_cores:.1f} of {self.cores} cores are free"
        )


@dataclasses.dataclass(frozen=True)
class BackendConfig:
    """A backend and how it divides N environments among its workers."""

    backend: str
    num_workers: int = 0
    bounds: tuple[int, ...] | None = None  # each worker's first environment, then N; None: evenly
    caller_steps: bool = False  # whether the caller steps the environments below bounds[0]
    seconds: float = 0.0  # the predicted or measured duration of a batch

    def __str__(self) -> str:
        workers = ""
        if self.num_workers:
            workers = f" with {self.num_workers} worker{'s' if self.num_workers > 1 else ''}"
        return f"{self.backend}{workers}{', plus the caller' if self.caller_steps else ''}"


class LoadMonitor:
    """The load on the machine from other programs, between construction and `free_cores`."""

    def __init__(self) -> None:
        self._before = _machine_times()

    def free_cores(self, cores: int, ours: float) -> float:
        """Returns how many of `cores` no other program was using.

        Args:
            cores: the number of cores that this process may use.
            ours: CPU seconds that the pool's own workers have used meanwhile.
        """
        after = _machine_times()
        if self._before is None or after is None or after[0] <= self._before[0]:
            return float(cores)
        total, idle, mine = (b - a for a, b in zip(self._before, after, strict=True))
        others = max(0.0, total - idle - mine - ours) / total * (os.cpu_count() or cores)
        return max(0.0, cores - others)


def ranked_configs(m: Measurement, num_envs: int, batch_size: int) -> list[BackendConfig]:
    """Returns the configurations for N environments, the one predicted fastest first."""
    n = num_envs
    serial = BackendConfig("serial", seconds=_SERIAL_BATCH + batch_size * (m.step + _SERIAL_STEP))
    found = [serial]
    if batch_size < n:
        found += _as_they_come(m, n, batch_size)
    else:
        found += _together(m, n)
    return sorted(found, key=lambda each: each.seconds * (1 if each is serial else _MARGIN))


def _together(m: Measurement, n: int) -> list[BackendConfig]:
    found = []
    if m.waits:
        threads = min(n, _MOST_THREADS)
        seconds = _rounds(n, threads) * m.step + n * _THREAD_STEP
        found.append(BackendConfig("thread", threads, seconds=seconds))
        workers = min(n, 8 * m.cores)
        seconds = max(_rounds(n, workers) * m.step, n * m.cpu / m.cores)
        seconds += workers * _SLEEPING_WORKER
        found.append(BackendConfig("process", workers, seconds=seconds))
    for workers in range(1, min(n, m.cores) + 1):
        bounds = split(n, workers, m.step)
        most = max((b - a for a, b in itertools.pairwise(bounds[1:])), default=0)
        at_home = bounds[1] * (m.step + _SERIAL_STEP) + _PROCESS_BATCH
        seconds = max(at_home, most * (m.step + _SERIAL_STEP) + 8e-6)
        # Cores that other programs use are missing, and a batch waits for its slowest worker.
        crowding = max(1.0, workers / max(m.free_cores, 0.5))
        found.append(BackendConfig("process", workers, bounds, seconds=seconds * crowding))
        if workers > 1:
            found.append(_with_caller(m, n, workers, crowding))
    return found


def _with_caller(m: Measurement, n: int, cores: int, crowding: float) -> BackendConfig:
    """Returns the configuration in which the caller steps a share, without passing data on."""
    first = n // cores
    rest = n - first
    bounds = tuple(first + rest * w // (cores - 1) for w in range(cores))
    most = max(first, *(b - a for a, b in itertools.pairwise(bounds)))
    seconds = (most * (m.step + _SERIAL_STEP) + _SHARED_BATCH) * crowding
    return BackendConfig("process", cores - 1, bounds, caller_steps=True, seconds=seconds)


def _as_they_come(m: Measurement, n: int, batch_size: int) -> list[BackendConfig]:
    """Returns configurations for send and recv, where a slow environment delays only its worker."""
    share = batch_size / n
    if m.waits or m.uneven:
        workers = min(n, 16 * m.cores)
        busy = max(_rounds(n, workers) * m.step, n * m.cpu / max(m.free_cores, 0.5))
        found = [BackendConfig("process", workers, seconds=share * busy + _SLEEPING_WORKER)]
        if m.waits:
            threads = min(n, _MOST_THREADS)
            seconds = share * _rounds(n, threads) * m.step + batch_size * _THREAD_STEP
            found.append(BackendConfig("thread", threads, seconds=seconds))
        return found
    workers = min(n, m.cores)
    free = max(0.5, min(workers, m.free_cores))
    seconds = batch_size * m.step / free + _SLEEPING_WORKER
    return [BackendConfig("process", workers, seconds=seconds)]


def split(num_envs: int, num_workers: int, step: float) -> tuple[int, ...]:
    """Returns the index of each worker's first environment, followed by N.

    Worker 0 shares the caller's core, so it gets fewer environments: the caller's own work takes
    the time of the missing ones.
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
    """Returns seconds since boot, summed over cores: in total, idle, and of this process."""
    try:
        with open("/proc/stat") as file:
            ticks = [float(word) for word in file.readline().split()[1:]]
    except OSError:
        return None
    rate = os.sysconf("SC_CLK_TCK")
    times = os.times()
    mine = times.user + times.system
    return sum(ticks[:8]) / rate, (ticks[3] + ticks[4]) / rate, mine


# --- saved results ---


def _file() -> Path:
    return cache_folder() / "tuned.json"


def _key(name: str, num_envs: int, batch_size: int) -> str:
    return f"{name} num_envs={num_envs} batch_size={batch_size} cores={num_cores()}"


def load_tuned(name: str, num_envs: int, batch_size: int) -> BackendConfig | None:
    """Returns the result that `jaxenvs tune` saved for these environments on this machine."""
    try:
        entry = json.loads(_file().read_text()).get(_key(name, num_envs, batch_size))
        if entry is None:
            return None
        bounds = entry.get("bounds")
        return BackendConfig(
            entry["backend"],
            int(entry["num_workers"]),
            tuple(map(int, bounds)) if bounds else None,
            bool(entry["caller_steps"]),
            float(entry["seconds"]),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # missing or damaged; it is only a cache


def save_tuned(name: str, num_envs: int, batch_size: int, config: BackendConfig) -> Path:
    """Saves the fastest configuration; returns the file."""
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        entries = json.loads(path.read_text())
    except (OSError, ValueError):
        entries = {}
    entries[_key(name, num_envs, batch_size)] = dataclasses.asdict(config)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(entries, indent=1))
    os.replace(temporary, path)
    return path


def batch_seconds(pool: Any, seconds: float) -> float:
    """Returns the duration of a batch of `pool` in seconds: the median over random actions.

    Args:
        pool: the pool to step.
        seconds: how long to measure.
    """
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
    while pool.num_pending:
        pool.recv()
    return sorted(rounds)[len(rounds) // 2]
