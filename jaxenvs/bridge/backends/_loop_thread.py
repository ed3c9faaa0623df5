"""An event loop in its own thread, with precise timers."""

import asyncio
import select
import selectors
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from jaxenvs.bridge.backends._worker_threads import PoolThread

_SELECTABLE = 1024  # select() works for descriptors below this


_Selector: Any = None

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

    _Selector = _PreciseSelector


class LoopThread:
    """A thread that runs an event loop, so that environments proceed independently of the caller.

    The caller may itself be inside a loop, as in a notebook.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()  # respects an event loop policy
        if type(self.loop) is asyncio.SelectorEventLoop and _Selector is not None:
            self.loop.close()
            self.loop = asyncio.SelectorEventLoop(_Selector())
        self._thread = PoolThread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    def call_soon(self, function: Callable[..., Any], *args: Any) -> None:
        """Calls `function` on the loop, without waiting."""
        self.loop.call_soon_threadsafe(function, *args)

    def result(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
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

    def is_blocked(self, patience: float = 0.05) -> bool:
        """Returns whether code on the loop blocks it."""
        came = threading.Event()
        self.call_soon(came.set)
        return not came.wait(patience)

    def end(self, patience: float) -> bool:
        """Cancels the remaining tasks and ends the thread; returns False if that fails."""
        try:
            self.result(_cancel_all(patience / 2), patience)
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


if sys.version_info >= (3, 12):

    def begin(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> asyncio.Task:
        """Returns a task; from Python 3.12 on, it runs immediately until its first wait."""
        return asyncio.Task(coroutine, loop=loop, eager_start=True)

else:

    def begin(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> asyncio.Task:
        """Returns a task; from Python 3.12 on, it runs immediately until its first wait."""
        return loop.create_task(coroutine)


def is_awaitable(value: Any) -> bool:
    return type(value) is types.CoroutineType or (
        type(value) is not tuple and isinstance(value, Awaitable)
    )
