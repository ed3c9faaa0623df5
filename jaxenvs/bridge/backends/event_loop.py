"""The "asyncio" backend, for environments whose methods are coroutine functions."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from jaxenvs.bridge.backends._threads import LoopThread, is_awaitable, start_task
from jaxenvs.bridge.backends.queued import Finished
from jaxenvs.bridge.backends.thread import Request, ThreadBackend
from jaxenvs.bridge.workers.calls import Call, Calls, throwable
from jaxenvs.bridge.workers.instances import Instances
from jaxenvs.bridge.workers.worker import has_coroutines

_END = 0.2  # seconds that the loop gets to end once the environments are closed


class AsyncioBackend(ThreadBackend):
    """A backend with one event loop in its own thread, on which environments wait concurrently.

    An environment with a coroutine function among reset, step, render and close lives on the loop.
    Its ordinary methods run there too and must not block. All other environments run in threads.
    Requests, messages, and hangs are handled as by `ThreadBackend`; only where calls run differs.

    Args:
        env_fns: one function for each instance, called on the loop.
        num_threads: threads for environments without coroutine functions; None for one each, at
            most 64.
    """

    name = "asyncio"

    def _make_instances(self, env_fns: Sequence[Callable[[], Any]]) -> Instances:
        self._loop = LoopThread("jaxenvs-pool-loop")
        try:
            instances = Instances(env_fns, run=self._run_calls)
        except BaseException:
            self._loop.end(_END)
            raise
        self._on_loop = [has_coroutines(env) for env in instances.envs]
        return instances

    def _num_in_threads(self) -> int:
        return len(self._on_loop) - sum(self._on_loop)

    def _run_calls(self, calls: Calls) -> Any:
        return self._loop.run(self._run_on_loop(Request(-1, lambda: calls, Finished())))

    # --- requests ---

    def _launch(self, requests: list[Request]) -> None:
        super()._launch([each for each in requests if not self._on_loop[each.row]])
        on_loop = [each for each in requests if self._on_loop[each.row]]
        if on_loop:
            self._loop.call_soon(self._begin, on_loop)

    def _begin(self, requests: list[Request]) -> None:
        for request in requests:
            if request.runner is None:  # see `_drop`
                request.runner = start_task(self._run_on_loop(request), self._loop.loop)

    def _preempt(self, request: Request) -> None:
        # Its result was dropped, or a message was late.
        if self._on_loop[request.row] and not request.replaces:
            request.dropped = True
            self._loop.call_soon(self._cancel, request)

    def _cancel(self, request: Request) -> None:
        if request.since:  # otherwise it has not begun, or will look before it goes on
            request.runner.cancel()

    async def _run_on_loop(self, request: Request) -> Any:
        """Like `run_here`, but on the loop; then marks the request as done.

        This is one coroutine, since every coroutine around an environment's own slows its waits.
        """
        noted, value = 0, None
        try:
            calls = request.calls()
            resume: Any = calls.send
            while not request.dropped:
                call = resume(value)
                request.since = time.monotonic()
                try:
                    value = call()
                    if is_awaitable(value):
                        value = await value
                    resume = calls.send
                except GeneratorExit:
                    raise
                except BaseException as error:
                    resume, value = calls.throw, throwable(error)
                if self._is_lost(request):
                    await _closed(request.old_env)
                    return None
        except StopIteration as end:
            noted = end.value
        except GeneratorExit:
            raise
        except BaseException as error:
            if request.row < 0:
                raise
            self._give_up(request, error)
        if request.row >= 0:
            self._done(request, noted)
        return noted

    def _call_in_thread(self, call: Call) -> Any:
        found = call()
        return self._loop.run(_awaited(found)) if is_awaitable(found) else found

    # --- hangs ---

    def stuck(self, seconds: float) -> list[int]:
        found = super().stuck(seconds)
        if found and self._loop.is_blocked():
            blocking = self._blocking_row()
            return [blocking] if blocking in found else found
        return found

    def _blocking_row(self) -> int:
        """Returns the row whose code the loop is executing."""
        task = asyncio.current_task(self._loop.loop)
        running = [
            queue[0] for queue in map(list, self._requests) if queue and self._on_loop[queue[0].row]
        ]
        for request in running:
            if task is not None and request.runner is task:
                return request.row
        # It has not returned from its first call.
        return max(running, key=lambda each: each.since).row if running else -1

    def restart(self, instances: Sequence[int]) -> bool:
        if self._loop.is_blocked():  # by code that does not await and cannot be cancelled
            return False
        return super().restart(instances)

    def _abandon(self, request: Request) -> None:
        if self._on_loop[request.row]:
            self._loop.call_soon(self._cancel, request)
        else:
            super()._abandon(request)

    def _end(self, until: float) -> int:
        return (not self._loop.end(_END)) + super()._end(until)


async def _awaited(found: Any) -> Any:
    return await found


async def _closed(env: Any) -> None:
    with contextlib.suppress(BaseException):
        found = env.close()
        if is_awaitable(found):
            await found
