"""The caller's side of a Ray cluster: the session, and a handle on each actor."""

import contextlib
import dataclasses
import logging
import sys
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from jaxenvs.bridge.backends._ray_actor import Actor
from jaxenvs.bridge.backends.backend import Report
from jaxenvs.errors import missing_extra

log = logging.getLogger("jaxenvs")

PATIENCE = 10.0  # seconds without an actor before a warning
_START = 60.0  # seconds that Ray may take to place an actor before it counts as hanging


def ray_module() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_extra('backend="ray"', "ray", "ray") from error
    return ray


class Session:
    """A use of Ray: starts Ray if it is not running, and then stops it after the last use."""

    _lock = threading.Lock()
    _uses = 0
    _started = False

    def __init__(self) -> None:
        ray = ray_module()
        self._ended = False
        with Session._lock:
            if not ray.is_initialized():
                ray.init(logging_level="warning")  # the cluster of RAY_ADDRESS, or a local one
                Session._started = True
            Session._uses += 1

    def cores(self) -> int:
        return int(ray_module().cluster_resources().get("CPU", 1))

    def end(self) -> None:
        with Session._lock:
            if self._ended:
                return
            self._ended = True
            Session._uses -= 1
            if Session._started and not Session._uses:
                Session._started = False
                ray_module().shutdown()


@dataclasses.dataclass
class Job:
    """A request or a message that an actor has not answered yet."""

    instances: np.ndarray
    buffer: int | None  # None for a message
    method: str  # of the actor
    args: tuple[Any, ...]
    ref: Any = None
    answer: bytes | None = None  # to a message
    is_late: bool = False  # whether nobody waits for a message any more


class WorkerActor:
    """The caller's handle on one actor."""

    def __init__(
        self, number: int, env_fns: bytes, instances: range, options: Any, inheritance: bytes
    ) -> None:
        self.number, self.instances, self._inheritance = number, instances, inheritance
        self._env_fns, self._options = env_fns, options
        self.pid: int | None = None
        self.jobs: deque[Job] = deque()  # the actor does them in this order
        self.deaths = 0  # since its last answer
        self._start()
        self.descriptions = self.handle.make.remote(env_fns, instances.start)

    def _start(self) -> None:
        self.handle: Any = ray_module().remote(Actor).options(**self._options).remote()
        self._placement: Any = self.handle.place.remote(list(sys.path), self._inheritance)
        now = time.monotonic()
        self._warn_at = now + PATIENCE
        self.since = now + _START  # when it begins its first job

    def attach(self, settings: bytes) -> None:
        self._settings, self._placement = settings, None
        self.handle.attach.remote(settings)

    def put(self, job: Job) -> None:
        if not self.jobs and self._placement is None:
            self.since = time.monotonic()
        self._send(job)
        self.jobs.append(job)

    def _send(self, job: Job) -> None:
        job.ref = getattr(self.handle, job.method).remote(*job.args)

    def replace(self) -> None:
        """Starts another actor with new environments, and sends it the unanswered jobs."""
        self.kill()  # it may live, and only be out of reach
        self._start()
        self.handle.replace.remote(self._env_fns, self.instances.start, self._settings)
        self.jobs = deque(job for job in self.jobs if not job.is_late)
        for job in self.jobs:
            self._send(job)

    def kill(self) -> None:
        ray = ray_module()
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self.handle)

    def check_placement(self) -> None:
        """Notes whether Ray has placed a new actor, and warns if it takes long."""
        now = time.monotonic()
        if self._placement is not None and ray_module().wait([self._placement], timeout=0)[0]:
            self._placement, self.since = None, now
        elif self._placement is not None and now > self._warn_at:
            log.warning("Ray has not placed worker %d yet", self.number)
            self._warn_at = now + PATIENCE

    def is_stuck(self, seconds: float) -> bool:
        """Whether it has been at work on its first job for so long."""
        self.check_placement()
        return bool(self.jobs) and time.monotonic() - self.since >= seconds

    def report(
        self, what: str, text: str, instance: int | None = None, fatal: bool = False
    ) -> Report:
        first = self.instances.start if instance is None else instance
        return Report(first, what, text, self.number, self.pid, fatal)
