"""backend="auto": measures one environment, and makes the backend predicted to be fastest."""

import logging
from collections.abc import Callable
from typing import Any

from jaxenvs._machine import num_cores
from jaxenvs.bridge.backends.base import Backend
from jaxenvs.bridge.backends.process import ProcessBackend
from jaxenvs.bridge.backends.serial import SerialBackend
from jaxenvs.bridge.backends.shared import SharedBackend
from jaxenvs.bridge.backends.thread import ThreadBackend
from jaxenvs.bridge.backends.worker_process import scouted
from jaxenvs.bridge.making.tuning import (
    MEASURED_SECONDS,
    BackendConfig,
    LoadMonitor,
    Measurement,
    load_tuned,
    ranked_configs,
)
from jaxenvs.errors import PoolError

log = logging.getLogger("jaxenvs")

EnvFns = list[Callable[[], Any]]


def make_backend(config: BackendConfig, env_fns: EnvFns) -> Backend:
    """Makes the backend of a configuration, with its default workers if num_workers is 0.

    Args:
        config: the backend and its workers.
        env_fns: one function for each environment.

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
    return ProcessBackend(env_fns, config.num_workers, bounds=config.bounds)


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
        finally:
            scout.discard()
        if facts["is_coroutine"] and self._only is None:
            config, why = BackendConfig("asyncio"), "the environments have coroutine functions"
        elif found is None:
            config = BackendConfig("process", min(count, num_cores()))
            why = "the measurement failed because a step raised"
        else:
            cores = num_cores()
            free = load.free_cores(cores, found["spent"])
            m = Measurement(**found, cores=cores, free_cores=free)
            config = next(filter(self._allows, ranked_configs(m, count, batch_size)))
            why = str(m)
        return config, make_backend(config, self._env_fns), why

    def _allows(self, config: BackendConfig) -> bool:
        if config.backend == "serial" and not self._may_serve:
            return False
        return self._only in (None, config.backend) and (self._may_share or not config.caller_steps)
