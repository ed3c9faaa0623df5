"""An event loop in a thread of its own, whose timers are on time."""

import asyncio
import concurrent.futures
import select
import selectors
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

_SELECTABLE = 1024  # descriptors below which select() works


_Selector: Any = None

if hasattr(selectors, "EpollSelector"):

    class _PreciseSelector(selectors.EpollSelector):
        """Waits to the microsecond.

        epoll counts in milliseconds, which asyncio rounds up: a step that waits for 1 ms would
        take up to 2. select counts in microseconds, and takes the descriptor of an epoll.
        """

        def select(self, timeout: float | None = None) -> Any:
            if timeout is not None and timeout > 0 and self.fileno() < _SELECTABLE:
                select.select((self.fileno(),), (), (), timeout)
                timeout = 0
            return super().select(timeout)

    _Selector = _PreciseSelector


class LoopThread:
    """Runs a loop, so that environments go on whatever the caller does meanwhile.

    The caller may itself be inside a loop, as it is in a notebook.
    """

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()  # of the policy, should somebody have set one
        if type(self.loop) is asyncio.SelectorEventLoop and _Selector is not None:
            self.loop.close()
            self.loop = asyncio.SelectorEventLoop(_Selector())
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        self.loop.close()

    @property
    def is_here(self) -> bool:
        """Whether it is this thread that asks."""
        return threading.current_thread() is self._thread

    def tell(self, function: Callable[..., Any], *args: Any) -> None:
        """Has `function` called there."""
        self.loop.call_soon_threadsafe(function, *args)

    def result(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        """Waits for a coroutine; it is cancelled if that is cut short.

        Raises:
            TimeoutError: it took longer.
        """
        future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        try:
            return future.result(timeout)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise TimeoutError from None
        except KeyboardInterrupt:
            future.cancel()
            raise

    def is_blocked(self, patience: float = 0.05) -> bool:
        """Whether something there holds up everything else."""
        came = threading.Event()
        self.tell(came.set)
        return not came.wait(patience)

    def end(self, patience: float) -> bool:
        """Cancels what is left, and ends the thread; False if that cannot be done."""
        try:
            self.result(_cancel_all(patience / 2), patience)
        except TimeoutError:
            return False
        self.tell(self.loop.stop)
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
        """A task that is run at once up to where it first waits, where Python can do that."""
        return asyncio.Task(coroutine, loop=loop, eager_start=True)

else:

    def begin(coroutine: Coroutine[Any, Any, Any], loop: asyncio.AbstractEventLoop) -> asyncio.Task:
        """A task that is run at once up to where it first waits, where Python can do that."""
        return loop.create_task(coroutine)


def is_awaitable(value: Any) -> bool:
    return type(value) is types.CoroutineType or (
        type(value) is not tuple and isinstance(value, Awaitable)
    )
