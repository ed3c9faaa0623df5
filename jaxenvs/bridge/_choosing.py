"""backend="auto": measures, makes the backend predicted to be fastest, and verifies it."""

import contextlib
from collections.abc import Callable
from typing import Any

from jaxenvs.bridge._log import log
from jaxenvs.bridge._machine import num_cores
from jaxenvs.bridge.backends.base import Backend
from jaxenvs.bridge.backends.process import ProcessBackend, scouted
from jaxenvs.bridge.backends.serial import SerialBackend
from jaxenvs.bridge.backends.shared import SharedBackend
from jaxenvs.bridge.backends.thread import ThreadBackend
from jaxenvs.bridge.pool import Pool
from jaxenvs.bridge.tuning import (
    MEASURED_SECONDS,
    BackendConfig,
    LoadMonitor,
    Measurement,
    batch_seconds,
    load_tuned,
    ranked_configs,
)
from jaxenvs.errors import PoolError

EnvFns = list[Callable[[], Any]]
_TRIAL_SECONDS = 0.05
_LONG = 0.05  # seconds; for batches that take longer, predictions are precise and trials slow


def make_backend(config: BackendConfig, env_fns: EnvFns, scout: Any = None) -> Backend:
    """Makes the backend of a configuration, with its default workers if num_workers is 0.

    Args:
        config: the backend and its workers.
        env_fns: one function for each environment.
        scout: for "process": a worker that has made the first environment already.

    Raises:
        PoolError, Broken: as raised by the backend.
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
    return ProcessBackend(env_fns, config.num_workers, bounds=config.bounds, scout=scout)


class BackendChoice:
    """The backend that was chosen, and the reason.

    Args:
        env_fns: one function for each environment.
        batch_size: the number of results in a batch.
        name: the name of the environments, under which `jaxenvs tune` saves results.
        only: the one backend to choose the workers of; None for any backend.
        may_share: whether the caller may step some environments while workers step the others.
        may_serve: whether the caller may step all environments.

    Raises:
        PoolError, Broken: as raised by the backend.
    """

    def __init__(
        self,
        env_fns: EnvFns,
        batch_size: int,
        name: str,
        only: str | None,
        may_share: bool,
        may_serve: bool,
    ) -> None:
        self._env_fns = env_fns
        self._only, self._may_share, self._may_serve = only, may_share, may_serve
        self._serial_seconds = 0.0
        self._certain = True
        config = load_tuned(name, len(env_fns), batch_size)
        if config is not None and self._allows(config):
            self.config, self.why = config, "`jaxenvs tune` measured it as fastest"
            self.backend = make_backend(config, self._env_fns)
        else:
            self.config, self.backend, self.why = self._measured(batch_size)
        log.info("%s, %d environments: %s; %s", name, len(env_fns), self.config, self.why)

    def _measured(self, batch_size: int) -> tuple[BackendConfig, Backend, str]:
        count = len(self._env_fns)
        try:
            scout, facts = scouted(self._env_fns[0])
        except PoolError as error:
            if self._only is not None or not self._may_serve:
                raise
            why = f"the environments cannot be sent to another process: {error}"
            return BackendConfig("serial"), SerialBackend(self._env_fns), why
        try:
            load = LoadMonitor()
            found = scout.measure(MEASURED_SECONDS)
            if facts["is_coroutine"] and self._only is None:
                config, why = BackendConfig("asyncio"), "the environments have coroutine functions"
            elif found is None:
                config = BackendConfig("process", min(count, num_cores()))
                why = "the measurement failed because a step raised"
            else:
                cores = num_cores()
                free = load.free_cores(cores, found["spent"])
                m = Measurement(**found, cores=cores, free_cores=free)
                every = ranked_configs(m, count, batch_size)
                config, why = next(filter(self._allows, every)), str(m)
                serial = next(each.seconds for each in every if each.backend == "serial")
                self._serial_seconds = serial
                self._certain = config.seconds > _LONG and config.seconds < serial / 1.5
            if config.backend == "process" and not config.caller_steps:
                first, scout = scout, None
                return config, make_backend(config, self._env_fns, first), why
        finally:
            if scout is not None:
                scout.discard()
        return config, make_backend(config, self._env_fns), why

    def _allows(self, config: BackendConfig) -> bool:
        if config.backend == "serial" and not self._may_serve:
            return False
        return self._only in (None, config.backend) and (self._may_share or not config.caller_steps)

    def confirm(self, pool: Pool, assemble: Callable[[Backend], Pool]) -> Pool:
        """Runs a short trial of the pool and returns it, or a serial pool if that is faster."""
        if self._certain or self.config.backend == "serial" or not self._may_serve:
            return pool
        try:
            seconds = batch_seconds(pool, _TRIAL_SECONDS)
        except Exception as error:  # the user's own calls will raise it again if it persists
            log.info("the trial of %r failed: %s", pool, error)
            seconds = 0.0
            _receive_all(pool)
        if seconds <= self._serial_seconds:
            try:
                pool.require_reset()
            except BaseException:  # the pool cannot continue, and the caller never sees it
                with contextlib.suppress(Exception):
                    pool.close()
                raise
            return pool
        log.info(
            "%s took %.0f us per batch, but serial takes %.0f us; using serial",
            *(self.config, seconds * 1e6, self._serial_seconds * 1e6),
        )
        pool.close()
        return assemble(SerialBackend(self._env_fns))


def _receive_all(pool: Pool) -> None:
    """Receives the pending results of a trial that ended early."""
    # A recv that raises keeps its results for the next one.
    for _ in range(2 * pool.num_envs + 2):
        if not pool.num_pending:
            return
        with contextlib.suppress(Exception):
            pool.recv()
