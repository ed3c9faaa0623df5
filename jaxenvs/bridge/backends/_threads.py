"""The threads of a pool: workers that can be replaced if they hang, and an event loop."""

import asyncio
import queue
import select
import selectors
import sys
import threading
import time
import types
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from jaxenvs.bridge.workers.calls import Abandoned

_SELECTABLE = 1024  # select() works for descriptors below this


class PoolThread(threading.Thread):
    """A thread that a pool has started. It must not wait for the pool to close."""


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


class LoopThread:
    """A thread that runs an event loop, so that environments proceed independently of the caller.

    The caller may itself be inside a loop, as in a notebook.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()  # respects an event loop policy
        if type(self.loop) is asyncio.SelectorEventLoop and hasattr(selectors, "EpollSelector"):
            self.loop.close()
            self.loop = asyncio.SelectorEventLoop(_PreciseSelector())
        self._thread = PoolThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def call_soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Calls `function` on the loop, without waiting."""
        self.loop.call_soon_threadsafe(function, *args)

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        """Runs a coroutine and returns its result; cancels it on timeout or Ctrl-C.

        Raises:
            TimeoutError: it took longer than `timeout`, or raised this itself.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout)
        except (TimeoutError, KeyboardInterrupt):
            future.cancel()
            raise

    def is_blocked(self) -> bool:
        """Returns whether code on the loop has blocked it for 50 ms."""
        has_run = threading.Event()
        self.call_soon(has_run.set)
        return not has_run.wait(0.05)

    def end(self, patience: float) -> bool:
        """Cancels the remaining tasks and ends the thread; returns False if that fails."""
        try:
            self.run(_cancel_all(patience / 2), patience)
        except TimeoutError:
            return False
        self.call_soon(self.loop.stop)
        self._thread.join(patience)
        return not self._thread.is_alive()


async def _cancel_all(patience: float) -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=patience)
    await asyncio.get_running_loop().shutdown_asyncgens()


if hasattr(selectors, "EpollSelector"):

    class _PreciseSelector(selectors.EpollSelector):
        """A selector that waits with microsecond precision.

        epoll counts in milliseconds, which asyncio rounds up, so a wait of 1 ms would take up to
        2 ms. select counts in microseconds and accepts the descriptor of an epoll.
        """

        def select(self, timeout: float | None = None) -> Any:
            if timeout is not None and timeout > 0 and self.fileno() < _SELECTABLE:
                select.select((self.fileno(),), (), (), timeout)
                timeout = 0
            return super().select(timeout)


def start_task(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> Any:
    """Returns a task; from Python 3.12 on, it runs immediately until its first wait."""
    if sys.version_info >= (3, 12):
        return asyncio.Task(coroutine, loop=loop, eager_start=True)
    return loop.create_task(coroutine)


def is_awaitable(value: Any) -> bool:
    return type(value) is types.CoroutineType or (
        type(value) is not tuple and isinstance(value, Awaitable)  # slow
    )
