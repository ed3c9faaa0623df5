"""The "thread" backend, for environments that block or release the interpreter lock."""

import dataclasses
import functools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.backends._threads import PoolThread, WorkerThreads
from jaxenvs.bridge.backends.backend import (
    EnvFailure,
    MessageTimeout,
    Report,
    Settings,
    private_arrays,
)
from jaxenvs.bridge.backends.queued import Finished, QueuedBackend
from jaxenvs.bridge.memory.channel import OK, STEP, STEP_ALL
from jaxenvs.bridge.workers.calls import Abandoned, Call, Calls, original, run_here
from jaxenvs.bridge.workers.failures import close_quietly, traceback_of
from jaxenvs.bridge.workers.instances import Instances
from jaxenvs.bridge.workers.worker import describe_env

log = logging.getLogger("jaxenvs")

_MOST = 64  # with more, handing over the interpreter lock costs more than waiting in parallel saves
_HANGS_IN_A_ROW = 3  # without an answer in between; then an environment is not replaced again
_END = 0.1  # seconds that threads get to end once their environments are closed


def default_threads(num_envs: int) -> int:
    """Returns the best number of threads for environments that wait."""
    return min(num_envs, _MOST)


@dataclasses.dataclass(slots=True, eq=False)
class Request:
    """A request for one row. If its environment is replaced, the calls start over.

    One that replaces the environment (`replaces`) is never dropped.
    """

    row: int
    calls: Callable[[], Any]  # returns Calls, or status flags if it has done them itself
    finished: Finished
    replaces: bool = False
    dropped: bool = False  # whether its result is not wanted any more
    since: float = 0.0  # when it entered the environment's code; 0 while it is outside
    runner: Any = None  # the thread or task that runs it
    old_env: Any = None  # its environment, once it hung and was replaced


class ThreadBackend(QueuedBackend):
    """A backend of threads that take instances from one queue, which balances uneven steps.

    One thread at a time steps an instance, but not always the same thread. Python cannot stop a
    thread, so one whose environment hangs is abandoned and replaced.

    Args:
        env_fns: one function for each instance, called in the caller's thread.
        num_threads: the number of threads; None for one per environment, at most 64.
    """

    name = "thread"
    _call_in_thread: Any = (
        None  # a function that makes a call in one of the threads, if that needs one
    )

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], num_threads: int | None = None
    ) -> None:
        super().__init__()
        self.owner = os.getpid()
        self._lock = threading.Lock()
        self._instances = self._make_instances(env_fns)
        self.descriptions = [describe_env(env) for env in self._instances.envs]
        self._stepped: Any = None  # where a step of all writes, until it is checked for NaN
        self._noted = OK  # its flags meanwhile
        # The requests of each row; the first one is at work or waits for a thread.
        self._requests: list[deque[Request]] = [deque() for _ in env_fns]
        self._hangs: dict[int, int] = {}  # of rows that have not answered since
        in_threads = self._num_in_threads()
        size = (num_threads or default_threads(in_threads)) if in_threads else 0
        self._threads = WorkerThreads(size, "jaxenvs-pool-thread")
        self.num_workers = max(1, size)

    def _make_instances(self, env_fns: Sequence[Callable[[], Any]]) -> Instances:
        return Instances(env_fns)

    def _num_in_threads(self) -> int:
        return len(self._instances)

    def attach(self, settings: Settings) -> None:
        self.plan, self.arrays = private_arrays(settings, len(self._instances))
        self.timeout = settings.timeout
        self._instances.attach(
            self.plan,
            self.arrays,
            time_limit=settings.time_limit,
            validate=settings.validate,
            report=self._report,
            own_process=True,
        )

    # --- requests ---

    def wait_all(self, buffer: int, timeout: float) -> int:
        status = super().wait_all(buffer, timeout)
        if status & 3:
            return status
        noted, self._noted = self._noted | status, OK
        view, self._stepped = self._stepped, None
        if view is None or not (wrong := self._instances.with_nan(view)):
            return noted
        self._noted, self._num_asked = noted, len(wrong)
        refuse = functools.partial(self._instances.refuse_nan, view=view, what="step")
        self._put([Request(row, functools.partial(refuse, row), self._finished) for row in wrong])
        return self.wait_all(buffer, timeout)

    def _start(self, op: int, buffer: int, instances: np.ndarray | None) -> None:
        rows, finished = self._instances, self._finished
        ids = range(len(rows)) if instances is None else instances.tolist()
        if op == STEP_ALL:
            view = self._stepped = rows.begin_all(buffer)
            views = [view] * len(rows)
        elif op == STEP:
            views = [rows.begin_one(buffer, row) for row in ids]
        else:
            reset = functools.partial(rows.reset, buffer, options=self._options)
            self._put([Request(row, functools.partial(reset, row), finished) for row in ids])
            return
        is_plain = self.timeout is None and self._call_in_thread is None
        step = rows.step_here if is_plain else rows.step
        self._put(
            [
                Request(row, functools.partial(step, row, view, action, op == STEP), finished)
                for row, view, action in zip(ids, views, rows.actions(instances), strict=True)
            ]
        )

    def _put(self, requests: list[Request]) -> None:
        """Starts requests; one whose row is at work waits for its turn."""
        first = []
        try:
            with self._lock:
                for request in requests:
                    queue = self._requests[request.row]
                    queue.append(request)
                    if len(queue) == 1:
                        first.append(request)
                    else:
                        self._preempt(queue[0])
            self._launch(first)
        except BaseException:  # Ctrl-C
            self._drop(requests)
            raise

    def _drop(self, requests: Iterable[Request]) -> None:
        """Makes requests end without effect, even those that Ctrl-C kept from beginning."""
        left = []
        with self._lock:
            for request in requests:
                request.dropped = not request.replaces
                queue = self._requests[request.row]
                if request.dropped and request.runner is None and queue and queue[0] is request:
                    left.append(request)
        self._launch(left)

    def _launch(self, requests: list[Request]) -> None:
        for request in requests:
            self._threads.put(self._run, request)

    def _preempt(self, request: Request) -> None:
        """Called when another request waits for the end of this one."""

    def _run(self, request: Request) -> None:
        noted, request.runner = 0, threading.current_thread()
        run = self._call_in_thread
        if self.timeout is not None:
            run = functools.partial(self._watched, request)
        try:
            if not request.dropped:
                calls = request.calls()
                noted = calls if isinstance(calls, int) else run_here(calls, run)
        except Abandoned:
            close_quietly(request.old_env)
            raise
        except BaseException as error:
            self._give_up(request, error)
        self._done(request, noted)

    def _watched(self, request: Request, call: Call) -> Any:
        request.since = time.monotonic()
        try:
            return call() if self._call_in_thread is None else self._call_in_thread(call)
        finally:
            if self._is_lost(request):
                raise Abandoned

    def _is_lost(self, request: Request) -> bool:
        """Called when the environment's code has returned: whether another has taken over."""
        if self.timeout is None:
            request.since = 0.0
            return False
        with self._lock:
            request.since = 0.0
            return request.old_env is not None

    def _give_up(self, request: Request, error: BaseException) -> None:
        # Not an environment's error; the pool must not wait forever.
        self._reports.append(Report(request.row, "step", traceback_of(error), fatal=True))

    def _done(self, request: Request, noted: int) -> None:
        with self._lock:
            queue = self._requests[request.row]
            if not queue or queue[0] is not request:  # it was launched twice, see `_drop`
                return
            queue.popleft()
            following = [queue[0]] if queue else []
        if self._hangs and not request.replaces and self._hangs.pop(request.row, 0):
            self._has_restarted = True
        if following:
            self._launch(following)
        request.finished.put(request.row, noted)

    def forget(self) -> None:
        super().forget()
        self._stepped, self._noted = None, OK
        self._drop([request for queue in self._requests for request in tuple(queue)])

    # --- messages ---

    def kept_info(self, buffer: int, instance: int) -> Any:
        return self._instances.kept_info(buffer, instance)

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        rows = self._instances
        if kind == "set_attr":
            name, values = what
            calls: dict[int, Call] = {
                row: functools.partial(rows.set_attr, row, name, value)
                for row, value in zip(instances, values, strict=True)
            }
        else:
            name = what[0]
            calls = {row: functools.partial(rows.call, row, *what) for row in instances}
        found, errors, late = self._ask(calls, self.timeout)
        if late:
            raise MessageTimeout(late)
        if errors:
            row = min(errors)
            raise EnvFailure(Report(row, name, traceback_of(errors[row])))
        return [found[row] for row in instances]

    def _ask(
        self, calls: Mapping[int, Call], timeout: float | None
    ) -> tuple[dict[int, Any], dict[int, BaseException], list[int]]:
        """Makes a call for each row; returns the results, the exceptions, and the rows missing."""
        found: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}

        def ask(row: int) -> Calls:
            try:
                found[row] = yield calls[row]
            except GeneratorExit:
                raise
            except BaseException as error:
                errors[row] = original(error)
            return 0

        finished = Finished()
        self._put([Request(row, functools.partial(ask, row), finished) for row in calls])
        finished.take(len(calls), timeout)
        results, raised = found.copy(), errors.copy()  # others may still come
        return results, raised, [each for each in calls if each not in {**results, **raised}]

    # --- hangs ---

    def stuck(self, seconds: float) -> list[int]:
        return [row for row in range(len(self._instances)) if self._hung_request(row, seconds)]

    def _hung_request(self, row: int, seconds: float) -> Request | None:
        queue = self._requests[row]
        try:
            request = queue[0]
        except IndexError:
            return None
        is_late = 0 < request.since <= time.monotonic() - seconds
        return request if is_late else None

    def restart(self, instances: Sequence[int]) -> bool:
        if any(self._hangs.get(row, 0) >= _HANGS_IN_A_ROW for row in instances):
            return False
        for row in instances:
            with self._lock:
                lost = self._hung_request(row, self.timeout or 0.0)
                if lost is None:  # it has just returned
                    continue
                self._hangs[row] = self._hangs.get(row, 0) + 1
                lost.old_env, queue = self._instances.envs[row], self._requests[row]
                replacing = functools.partial(self._instances.replace_hung, row)
                queue[0] = Request(row, replacing, Finished(), replaces=True)
                if lost.finished is self._finished:  # somebody still waits for it
                    queue.insert(1, Request(row, lost.calls, lost.finished))
            self._abandon(lost)
            self._launch([queue[0]])
        return True

    def _abandon(self, request: Request) -> None:
        self._threads.replace(request.runner)

    # --- the end ---

    def _close(self, grace: float) -> list[Report]:
        if isinstance(threading.current_thread(), PoolThread):  # garbage is collected anywhere
            threading.Thread(target=self.close, args=(grace,), daemon=True).start()
            return []
        end = time.monotonic() + grace
        self.forget()
        rows = range(len(self._instances))
        close = self._instances.close_one
        _, errors, late = self._ask({row: functools.partial(close, row) for row in rows}, grace)
        num_left = self._end(max(end, time.monotonic() + _END))
        if late or num_left:
            log.warning(
                "environments %s did not close in time; %d threads were abandoned",
                *(late or "that hung before", num_left),
            )
        return [Report(row, "close", traceback_of(errors[row])) for row in sorted(errors)]

    def _end(self, until: float) -> int:
        """Ends the threads; returns how many have not ended."""
        return self._threads.end(until)
