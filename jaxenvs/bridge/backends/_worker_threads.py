"""A thread pool in which threads that hang can be replaced."""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from jaxenvs.bridge.workers.calls import Abandoned


class PoolThread(threading.Thread):
    """A thread that a pool has started, and that must not wait for the end of a pool."""


class WorkerThreads:
    """A fixed number of threads with one queue of jobs.

    A job raises `Abandoned` to end a thread that was replaced.
    """

    def __init__(self, size: int, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        for _ in range(size):
            self._add()

    def put(self, function: Callable[..., None], *args: Any) -> None:
        """Calls a function in one of the threads."""
        self._jobs.put((function, args))

    def replace(self, thread: threading.Thread) -> None:
        """Starts another thread in place of one that hangs."""
        self._threads.remove(thread)
        self._add()

    def end(self, until: float) -> int:
        """Ends the threads after their current jobs; returns how many are alive at `until`."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        return sum(thread.is_alive() for thread in self._threads)

    def _add(self) -> None:
        # A hanging thread must not block exit.
        thread = PoolThread(target=_work, args=(self._jobs,), name=self._name, daemon=True)
        self._threads.append(thread)
        thread.start()


def _work(jobs: queue.SimpleQueue) -> None:
    while (job := jobs.get()) is not None:
        try:
            job[0](*job[1])
        except Abandoned:
            return
        job = None  # an idle thread must not keep its objects alive
