"""Some environments in the caller's own thread, the others in worker processes.

Where steps take microseconds this is the fastest: the caller works while its workers do, in place
of waiting for one on its own core, and no core changes hands. What it costs is that the first
environments live in the caller's process.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge import _lines
from jaxenvs.bridge._lines import request
from jaxenvs.bridge.backends.base import STEP_ALL, Backend, Post, Settings, by_owner
from jaxenvs.bridge.backends.process import ProcessBackend
from jaxenvs.bridge.backends.serial import SerialBackend


class SharedBackend(Backend):
    """The caller steps the first ones, worker processes the others.

    Args:
        env_fns: one for each instance.
        bounds: where each worker's begin, and where the last one's end; those before are the
            caller's.

    Raises:
        PoolError, Broken: as the backends that it consists of.
    """

    name = "process"
    caller_steps = True

    def __init__(self, env_fns: Sequence[Callable[[], Any]], bounds: tuple[int, ...]) -> None:
        self.num_workers = len(bounds) - 1
        self.bounds, self._first = bounds, bounds[0]
        self._mine = SerialBackend(env_fns[: bounds[0]])
        try:
            self._others = ProcessBackend(env_fns, self.num_workers, bounds=bounds)
        except BaseException:
            self._mine.close(0)
            raise
        self._owner = self._others._owner
        self.facts = [*self._mine.facts, *self._others.facts]
        self._finished: deque[int] = deque()  # of the caller's, not taken yet
        self._num_waiting = 0  # of the caller's, begun and not finished
        self._noted: int | None = None  # of the caller's share of a batch, until the others come

    @property
    def pids(self) -> list[int]:
        """The process of each worker."""
        return self._others.pids

    def attach(self, settings: Settings) -> None:
        self._others.attach(settings)
        self.plan, self.arrays = self._others.plan, self._others.arrays
        self._mine.attach_to(settings, self.plan, self.arrays)

    def start_all(self, op: int, buffer: int) -> None:
        self._others.start_all(op, buffer)
        self._mine.start_all(op, buffer)
        self._noted = None

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        if self._noted is None:
            self._noted = self._mine.wait_all(buffer, timeout)
        status = self._others.wait_all(buffer, timeout)
        return status if status & 3 else status | self._noted

    def lock_step(self, timeout: float | None) -> Callable[[int], int]:
        ask_all, wait_all = self._others.lines.ask_all, self._others.lines.wait_all
        step_mine = self._mine.lock_step(timeout)
        requests = request(STEP_ALL, 0), request(STEP_ALL, 1)

        def step(buffer: int) -> int:
            ask_all(requests[buffer])
            self._noted = noted = step_mine(buffer)
            status = wait_all(buffer, timeout)
            return status if status & 3 else status | noted

        return step

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        mine = instances < self._first
        if not mine.all():
            self._others.start_some(op, buffer, instances[~mine])
        if mine.any():
            self._mine.start_some(op, buffer, instances[mine])
            self._num_waiting += int(mine.sum())

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        status = _lines.OK
        while self._num_waiting and len(self._finished) < len(out):
            one = np.empty(1, np.int32)
            self._num_waiting -= 1
            status |= self._mine.take(one, timeout)
            self._finished.append(int(one[0]))
        count = min(len(self._finished), len(out))
        if count < len(out):
            found = self._others.take(out[count:], timeout)
            if found & 3:
                return found
            status |= found
        for i in range(count):
            out[i] = self._finished.popleft()
        return status

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        parts = self._mine, self._others

        def ask(part: int, ids: list[int], rest: list[Any]) -> list[Any]:
            return parts[part].message(kind, ids, *rest)

        return by_owner(kind, instances, what, lambda i: int(i >= self._first), ask)

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._mine.set_options(options)
        self._others.set_options(options)

    def read_posts(self) -> list[Post]:
        return [*self._mine.read_posts(), *self._others.read_posts()]

    def stuck(self, seconds: float) -> list[int]:
        return self._others.stuck(seconds)

    def restart(self, instances: Sequence[int]) -> bool:
        return self._others.restart(instances)

    def close(self, grace: float) -> list[Post]:
        if self._owner != os.getpid():  # a fork of the caller has a copy of its share too
            return []
        return [*self._mine.close(grace), *self._others.close(grace)]
