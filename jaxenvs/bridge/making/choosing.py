"""backend="auto": measures one environment, and makes the backend that suits it.

A worker steps an environment of its own for a moment, and answers a few empty messages. From the
duration of a step and of an answer follows a backend, which is used if it is predicted to be faster
than the caller alone. `jaxenvs tune-pool` measures whole pools instead, and its results come first.
"""

import dataclasses
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from jaxenvs._machine import num_cores
from jaxenvs.bridge.backends.backend import Backend
from jaxenvs.bridge.backends.process import ProcessBackend
from jaxenvs.bridge.backends.serial import SerialBackend
from jaxenvs.bridge.backends.shared import SharedBackend
from jaxenvs.bridge.backends.thread import ThreadBackend, default_threads
from jaxenvs.bridge.backends.worker_process import start_probe
from jaxenvs.bridge.making.tuning import BackendConfig, load_tuned
from jaxenvs.bridge.native.libraries import POOL, is_there
from jaxenvs.errors import PoolError

log = logging.getLogger("jaxenvs")

_MEASURED_SECONDS = 0.07  # how long one environment is stepped
_MOST_WORKERS = 16  # for each core, if environments wait
# Parts of the time in which a sleeping worker answers.
_TO_POLLING = 0.1  # the caller works too, and meanwhile the worker polls
_TO_SAME_CORE = 0.25  # the caller waits, and its core switches to the worker


@dataclasses.dataclass(frozen=True)
class Measurement:
    """The measured cost of stepping one environment.

    Attributes:
        step: mean duration of a step in seconds, resets included.
        spread: standard deviation of the duration, in seconds.
        cpu: CPU seconds of a step; the rest is waiting.
        handover: seconds in which a sleeping process answers a message.
        cores: number of cores that this process may use.
        free_cores: how many of them were not in use by other programs meanwhile.
    """

    step: float
    spread: float
    cpu: float
    handover: float
    cores: int
    free_cores: float

    @property
    def waits(self) -> bool:
        """Whether a step mostly waits, for a device or another machine."""
        return self.cpu < 0.5 * self.step

    @property
    def is_uneven(self) -> bool:
        """Whether some steps take much longer than others."""
        return self.spread > max(self.step, self.handover)

    def __str__(self) -> str:
        return (
            f"a step takes {self.step * 1e6:,.1f} us (+-{self.spread * 1e6:,.1f}),"
            f" {'mostly waiting' if self.waits else 'computing'};"
            f" an answer takes {self.handover * 1e6:,.1f} us;"
            f" {self.free_cores:.1f} of {self.cores} cores are free"
        )


def choose(
    m: Measurement,
    num_envs: int,
    batch_size: int,
    backend: str = "auto",
    may_share: bool = True,
    may_serve: bool = True,
) -> BackendConfig:
    """Returns the configuration for N environments.

    Args:
        m: the measurement of one of them.
        num_envs: N.
        batch_size: the number of results in a batch.
        backend: "auto", or "process" to choose its workers only.
        may_share: whether the caller may step some environments while workers step the others.
        may_serve: whether the caller may step all environments.
    """
    n, in_lock_step, workers = num_envs, batch_size == num_envs, min(num_envs, m.cores)
    config, part = BackendConfig("process", workers), 1.0
    if m.waits and in_lock_step and backend == "auto":
        config = BackendConfig("thread", default_threads(n))
    elif m.waits or (m.is_uneven and not in_lock_step):
        # A slow environment delays only those of its own worker.
        config = BackendConfig("process", min(n, _MOST_WORKERS * m.cores))
    elif in_lock_step and may_share and workers > 1:
        config, part = with_caller(n, workers - 1), _TO_POLLING
    elif in_lock_step:
        part = _TO_SAME_CORE
    # Threads share the interpreter lock.
    at_work = config.num_workers + config.caller_steps
    cores = 1.0 if config.backend == "thread" else max(0.5, min(at_work, m.free_cores))
    busy = -(-n // at_work) * (m.step - m.cpu) + n * m.cpu / cores
    seconds = busy * batch_size / n + part * m.handover
    serial = BackendConfig("serial", seconds=batch_size * m.step)
    if may_serve and serial.seconds <= seconds:
        return serial
    return dataclasses.replace(config, seconds=seconds)


def with_caller(num_envs: int, num_workers: int) -> BackendConfig:
    """Returns the configuration in which the caller steps as many environments as each worker."""
    shares = num_workers + 1
    bounds = tuple(share * num_envs // shares for share in range(1, shares + 1))
    return BackendConfig("process", num_workers, bounds, caller_steps=True)


def chosen_backend(
    env_fns: Sequence[Callable[[], Any]],
    batch_size: int,
    name: str,
    backend: str,
    may_share: bool,
    may_serve: bool,
) -> Backend:
    """Measures one environment and makes the backend that suits it.

    Args:
        env_fns: one function for each environment.
        name: the name of the environments, under which `jaxenvs tune-pool` saves results.
        batch_size, backend, may_share, may_serve: see `choose`.

    Raises:
        PoolError, EnvFailure: as raised by the backend.
    """
    count = len(env_fns)
    config, why = load_tuned(name, count, batch_size), "`jaxenvs tune-pool` measured it as fastest"
    if config is None or not (
        backend in ("auto", config.backend)
        and (config.backend != "process" or is_there(POOL))
        and (may_serve or config.backend != "serial")
        and (may_share or not config.caller_steps)
    ):
        config, why = _measured(env_fns, batch_size, backend, may_share, may_serve)
    log.info("%s, %d environments: %s; %s", name, count, config, why)
    made = make_backend(config, env_fns)
    if backend == "auto" and config.backend != "asyncio" and made.descriptions[0]["is_coroutine"]:
        made.close(0)  # it was chosen without looking at an environment
        made = make_backend(BackendConfig("asyncio"), env_fns)
    return made


def _measured(
    env_fns: Sequence[Callable[[], Any]],
    batch_size: int,
    backend: str,
    may_share: bool,
    may_serve: bool,
) -> tuple[BackendConfig, str]:
    """Returns a configuration and the reason for it."""
    count, cores = len(env_fns), num_cores()
    try:
        probe, description = start_probe(env_fns[0])
    except PoolError as error:
        if backend != "auto":
            raise
        plain = BackendConfig("serial" if may_serve else "thread")
        return plain, f"environments cannot be sent to another process: {error}"
    before = _cpu_seconds()
    try:
        found = None if description["is_coroutine"] else probe.measure(_MEASURED_SECONDS)
    finally:
        probe.discard()
    if description["is_coroutine"] and backend == "auto":
        return BackendConfig("asyncio"), "the environments have coroutine functions"
    if found is None:
        why = "the measurement failed because a step raised"
        return BackendConfig("process", min(count, cores)), why
    spent = found.pop("spent")
    total, others = (b - a for a, b in zip(before, _cpu_seconds(), strict=True))
    busy = max(0.0, others - spent) / total if total > 0 else 0.0
    free = max(0.0, cores - busy * (os.cpu_count() or cores))
    m = Measurement(**found, cores=cores, free_cores=free)
    return choose(m, count, batch_size, backend, may_share, may_serve), str(m)


def _cpu_seconds() -> tuple[float, float]:
    """Returns seconds since boot, summed over cores: of all time, and at work for other programs.

    Both are 0 on systems that do not tell.
    """
    try:
        with open("/proc/stat") as file:
            ticks = [float(word) for word in file.readline().split()[1:]]
    except OSError:
        return 0.0, 0.0
    rate, times = os.sysconf("SC_CLK_TCK"), os.times()
    total, idle = sum(ticks[:8]) / rate, (ticks[3] + ticks[4]) / rate
    return total, total - idle - times.user - times.system


def make_backend(config: BackendConfig, env_fns: Sequence[Callable[[], Any]]) -> Backend:
    """Makes the backend of a configuration, with its default workers if num_workers is 0.

    Raises:
        PoolError, EnvFailure: as raised by the backend.
    """
    workers = config.num_workers or None
    if config.backend == "serial":
        return SerialBackend(env_fns)
    if config.backend == "thread":
        return ThreadBackend(env_fns, workers)
    if config.backend == "asyncio":
        from jaxenvs.bridge.backends.event_loop import AsyncioBackend

        return AsyncioBackend(env_fns, workers)
    if config.caller_steps and config.bounds is not None:
        return SharedBackend(env_fns, config.bounds)
    return ProcessBackend(env_fns, config.num_workers, bounds=config.bounds)
