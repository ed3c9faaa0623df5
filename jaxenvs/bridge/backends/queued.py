"""The base class of the backends "serial", "thread", and "asyncio", which share a process."""

import abc
import functools
import operator
import threading
from collections import deque
from typing import Any

import numpy as np

from jaxenvs.bridge.backends.backend import Backend, Report
from jaxenvs.bridge.memory.channel import ATTENTION, OK, TIMEOUT


class Finished:
    """A queue of finished rows, from which one thread takes several at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bell = threading.Lock()
        self._bell.acquire()
        self._rows: list[tuple[int, int]] = []  # with their flags
        self._wanted = 0  # the number of rows that `take` waits for
        self._is_over = False

    def put(self, row: int, noted: int) -> None:
        """Adds a row and its status flags."""
        # `put` appends before it reads `_wanted`, and `take` sets `_wanted` before it counts rows,
        # so one of the two sees the other.
        self._rows.append((row, noted))
        if self._wanted:
            with self._lock:
                if 0 < self._wanted <= len(self._rows):
                    self._wanted = 0
                    self._bell.release()

    def take(self, count: int, timeout: float | None) -> tuple[list[int], int] | None:
        """Waits for `count` rows; returns them and their flags, or None on timeout."""
        self._wanted = count
        if len(self._rows) < count and not self._is_over:
            self._bell.acquire(timeout=-1 if timeout is None else timeout)
        with self._lock:
            self._wanted = 0
            self._bell.acquire(blocking=False)  # if it was released after all
        if len(self._rows) < count:
            return None
        taken = self._rows[:count]
        del self._rows[:count]
        return [row for row, _ in taken], functools.reduce(operator.or_, (f for _, f in taken), 0)

    def end(self) -> None:
        """Ends waits of other threads, also those that begin later, as if their time were over."""
        self._is_over = True
        with self._lock:
            if self._wanted:
                self._wanted = 0
                self._bell.release()


class QueuedBackend(Backend):
    """A backend whose instances finish one by one, in the caller's process.

    A subclass starts requests in `_start`, each of which puts its instance into `self._finished`
    when it is done. A subclass without threads overrides `_take` instead.
    """

    def __init__(self) -> None:
        self._finished = Finished()
        self._num_asked = 0  # instances that `wait_all` waits for
        self._options: dict[str, Any] | None = None  # of the next resets
        self._reports: deque[Report] = deque()
        self._has_restarted = False  # whether an instance was replaced since `read_reports`

    @abc.abstractmethod
    def _start(self, op: int, buffer: int, instances: np.ndarray | None) -> None:
        """Starts an operation of `Backend.start_all`, or of `start_some` if there are instances."""

    def _take(self, count: int, timeout: float) -> tuple[list[int], int] | None:
        """Waits for `count` instances; returns them and their flags, or None on timeout."""
        return self._finished.take(count, timeout)

    def start_all(self, op: int, buffer: int) -> None:
        self._num_asked = len(self.descriptions)
        self._start(op, buffer, None)

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        self._start(op, buffer, instances)

    def wait_all(self, buffer: int, timeout: float) -> int:
        found = self._taken(self._num_asked, timeout)
        if found is None:
            return TIMEOUT
        self._num_asked = 0
        return found[1] | self.attention()

    def take(self, out: np.ndarray, timeout: float) -> int:
        found = self._taken(len(out), timeout)
        if found is None:
            return TIMEOUT
        out[:] = found[0]
        return self.attention()

    def _taken(self, count: int, timeout: float) -> tuple[list[int], int] | None:
        try:
            return self._take(count, timeout)
        except BaseException:  # Ctrl-C: the pool waits for none of them any more
            self.forget()
            raise

    def forget(self) -> None:
        left, self._finished, self._num_asked = self._finished, Finished(), 0
        left.end()  # when another thread closes the pool

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = options

    def attention(self) -> int:
        """Returns ATTENTION if there are unread reports or replaced instances, otherwise OK."""
        return ATTENTION if self._reports or self._has_restarted else OK

    def read_reports(self) -> list[Report]:
        self._has_restarted = False
        return [self._reports.popleft() for _ in range(len(self._reports))]

    def _report(self, *report: Any) -> None:
        self._reports.append(Report(*report))
