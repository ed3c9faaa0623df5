"""What "auto" does: measures, makes what was predicted to be fastest, and makes sure of it."""

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
    Load,
    Measurement,
    Way,
    kept,
    throughput,
    ways,
)
from jaxenvs.errors import PoolError

EnvFns = list[Callable[[], Any]]
_TRIAL_SECONDS = 0.05
_LONG = 0.05  # seconds of a batch from which a prediction is precise, and a trial is dear


def make_backend(way: Way, env_fns: EnvFns, scout: Any = None) -> Backend:
    """The backend of a way; of as many workers as it thinks fit, where the way names none.

    Args:
        way: what is wanted.
        env_fns: one for each environment.
        scout: of "process", see there.

    Raises:
        PoolError, Broken: as the backends.
    """
    workers = way.num_workers or None
    if way.backend == "serial":
        return SerialBackend(env_fns)
    if way.backend == "thread":
        return ThreadBackend(env_fns, workers)
    if way.backend == "asyncio":
        from jaxenvs.bridge.backends.event_loop import AsyncioBackend

        return AsyncioBackend(env_fns, workers)
    if way.caller_steps and way.bounds is not None:
        return SharedBackend(env_fns, way.bounds)
    return ProcessBackend(env_fns, way.num_workers, bounds=way.bounds, scout=scout)


class Chosen:
    """A backend that was chosen, and why.

    Args:
        env_fns: one for each environment.
        batch_size: how many results are waited for.
        name: of the environments, by which what was tuned is found.
        only: the one backend to choose the workers of; None for any.
        may_share: whether environments may live in the caller's process beside workers.
        may_serve: whether the caller may step them all.

    Raises:
        PoolError, Broken: as the backends.
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
        way = kept(name, len(env_fns), batch_size)
        if way is not None and self._allows(way):
            self.way, self.why = way, "`jaxenvs tune` found it fastest"
            self.backend = make_backend(way, self._env_fns)
        else:
            self.way, self.backend, self.why = self._measured(batch_size)
        log.info("%s, %d environments: %s; %s", name, len(env_fns), self.way, self.why)

    def _measured(self, batch_size: int) -> tuple[Way, Backend, str]:
        count = len(self._env_fns)
        try:
            scout, facts = scouted(self._env_fns[0])
        except PoolError as error:
            if self._only is not None or not self._may_serve:
                raise
            why = f"they cannot be sent to another process: {error}"
            return Way("serial"), SerialBackend(self._env_fns), why
        try:
            load = Load()
            found = scout.measure(MEASURED_SECONDS)
            if facts["is_coroutine"] and self._only is None:
                way, why = Way("asyncio"), "their calls are coroutines"
            elif found is None:
                workers = min(count, num_cores())
                way, why = Way("process", workers), "one could not be measured: its step raised"
            else:
                cores = num_cores()
                free = load.free_cores(cores, found["spent"])
                m = Measurement(**found, cores=cores, free_cores=free)
                every = ways(m, count, batch_size)
                way, why = next(filter(self._allows, every)), str(m)
                serial = next(each.seconds for each in every if each.backend == "serial")
                self._serial_seconds = serial
                self._certain = way.seconds > _LONG and way.seconds < serial / 1.5
            if way.backend == "process" and not way.caller_steps:
                first, scout = scout, None
                return way, make_backend(way, self._env_fns, first), why
        finally:
            if scout is not None:
                scout.discard()
        return way, make_backend(way, self._env_fns), why

    def _allows(self, way: Way) -> bool:
        if way.backend == "serial" and not self._may_serve:
            return False
        return self._only in (None, way.backend) and (self._may_share or not way.caller_steps)

    def settle(self, pool: Pool, assemble: Callable[[Backend], Pool]) -> Pool:
        """Tries the pool, and replaces it by a serial one where that is faster after all."""
        if self._certain or self.way.backend == "serial" or not self._may_serve:
            return pool
        try:
            seconds = throughput(pool, _TRIAL_SECONDS)
        except Exception as error:  # it will be raised again where somebody can do something
            log.info("trying %r failed: %s", pool, error)
            seconds = 0.0
            _receive_all(pool)
        if seconds <= self._serial_seconds:
            try:
                pool.forget_episodes()
            except BaseException:  # the pool cannot go on, and nobody else could close it
                with contextlib.suppress(Exception):
                    pool.close()
                raise
            return pool
        log.info(
            "%s took %.0f us a batch where serial takes %.0f; serial it is",
            *(self.way, seconds * 1e6, self._serial_seconds * 1e6),
        )
        pool.close()
        return assemble(SerialBackend(self._env_fns))


def _receive_all(pool: Pool) -> None:
    """Receives what a trial that was cut short left behind."""
    # A call that raises returns nothing, and the next one returns what it had.
    for _ in range(2 * pool.num_envs + 2):
        if not pool.owes:
            return
        with contextlib.suppress(Exception):
            pool.recv()
