"""The "thread" backend, for environments that block or release the interpreter lock."""

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.backends._crew import Abandoned, Crew, Finished, Job, Member
from jaxenvs.bridge.backends.base import (
    RESET,
    STEP_ALL,
    Backend,
    Broken,
    Late,
    Post,
    Settings,
    private_arrays,
)
from jaxenvs.bridge.memory import lines as _lines
from jaxenvs.bridge.workers.instances import REMAKING, FailedEnv, Instances, traceback_of
from jaxenvs.bridge.workers.worker import facts

log = logging.getLogger("jaxenvs")

_MOST = 64  # with more, handing over the interpreter lock costs more than waiting in parallel saves
_END = 0.1  # seconds that threads get to end once their environments are closed


def default_threads(num_envs: int) -> int:
    """Returns the best number of threads for environments that wait."""
    return min(num_envs, _MOST)


class ThreadBackend(Backend):
    """A backend of threads that take instances from one queue, which balances uneven steps.

    One thread at a time steps an instance, but not always the same thread. Python cannot stop a
    thread, so one whose environment hangs is abandoned and replaced.

    Args:
        env_fns: one function for each instance, called in the caller's thread.
        num_threads: the number of threads; None for one per environment, at most 64.
    """

    name = "thread"

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], num_threads: int | None = None
    ) -> None:
        self._owner = os.getpid()
        self._instances = _Instances(env_fns)
        self.facts = [facts(env) for env in self._instances.envs]
        self.num_workers = num_threads or default_threads(len(env_fns))
        self._lock = threading.Lock()
        self._at_work: set[int] = set()
        self._behind: dict[int, deque[Job]] = {}  # queued jobs of rows that are at work
        self._finished = Finished()
        self._num_asked = 0  # rows that `wait_all` waits for
        self._stepped: int | None = None  # the buffer of a step of all, not yet checked for NaN
        self._noted = 0
        self._posts: deque[Post] = deque()
        self._options: dict[str, Any] | None = None
        self._hanging: list[tuple[int, Member]] = []  # at the last check
        self._has_restarted = False  # since `read_posts`
        self._crew: Crew | None = None

    def attach(self, settings: Settings) -> None:
        self.plan, self.arrays = private_arrays(settings, len(self._instances))
        self._crew = Crew(self.num_workers, "jaxenvs-pool-thread")
        self.timeout = settings.timeout
        self._instances.crew = None if settings.timeout is None else self._crew
        self._instances.attach(
            self.plan,
            self.arrays,
            time_limit=settings.time_limit,
            validate=settings.validate,
            report=lambda *post: self._posts.append(Post(*post)),
            keeps_infos=True,
        )

    # --- steps ---

    def start_all(self, op: int, buffer: int) -> None:
        instances = self._instances
        self._num_asked, self._noted = len(instances), 0
        if op == STEP_ALL:
            self._stepped = buffer
            view, actions = instances.before_all(buffer)
            for row, action in enumerate(actions):
                self._put(row, self._finished, instances.step_in, view, action)
        else:
            for row in range(len(instances)):
                self._put(row, self._finished, instances.reset_in, buffer, self._options)

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        while (found := self._take(self._num_asked, timeout)) is not None:
            self._noted |= found[1]
            stepped, self._stepped = self._stepped, None
            wrong = () if stepped is None else self._instances.with_nan(stepped)
            for row in wrong:
                self._put(row, self._finished, self._instances.refuse_nan_in, stepped)
            self._num_asked = len(wrong)
            if not wrong:
                return self._noted | self._attention()
        return _lines.TIMEOUT

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        for row in instances.tolist():
            if op == RESET:
                self._put(row, self._finished, self._instances.reset_in, buffer, self._options)
            else:
                self._put(row, self._finished, self._instances.step_alone, buffer)

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        found = self._take(len(out), timeout)
        if found is None:
            return _lines.TIMEOUT
        out[:] = found[0]
        return self._attention()

    def _put(
        self, row: int, finished: Finished, work: Callable[..., int | None], *args: Any
    ) -> None:
        assert self._crew is not None
        self._crew.put(row, self._turn, finished, work, args)

    def _turn(
        self, row: int, finished: Finished, work: Callable[..., int | None], args: tuple[Any, ...]
    ) -> None:
        """Runs one job of a row and reports it as finished; queues it if the row is at work."""
        assert self._crew is not None
        with self._lock:
            if row in self._at_work:
                job = row, self._turn, (finished, work, args)
                self._behind.setdefault(row, deque()).append(job)
                return
            self._at_work.add(row)
        try:
            noted = work(row, *args) or 0
        except Abandoned:
            raise
        except BaseException as error:  # not an environment's error; the pool must not wait forever
            self._posts.append(Post(row, "step", traceback_of(error), fatal=True))
            noted = 0
        with self._lock:
            self._at_work.discard(row)
            behind = self._behind.get(row)
            if behind:
                self._crew.jobs.put(behind.popleft())
        finished.put(row, noted)

    def _take(self, count: int, timeout: float | None) -> tuple[list[int], int] | None:
        try:
            return self._finished.take(count, timeout)
        except BaseException:  # Ctrl-C; results of rows at work are dropped
            self.forget()
            raise

    def forget(self) -> None:
        if self._crew is not None:
            self._crew.drop()
        with self._lock:
            self._behind.clear()
        self._finished, self._stepped, self._num_asked = Finished(), None, 0

    def _attention(self) -> int:
        return _lines.ATTENTION if self._posts or self._has_restarted else _lines.OK

    # --- messages ---

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        if kind == "kept_info":
            return [self._instances.kept_info(what[0], row) for row in instances]
        if kind == "set_attr":
            each = zip(instances, what[1], strict=True)
            args: dict[int, tuple[Any, ...]] = {row: (what[0], value) for row, value in each}
            function: Callable[..., Any] = self._instances.set_attr
        else:
            args, function = dict.fromkeys(instances, what), self._instances.call
        values: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}

        def work(row: int) -> None:
            try:
                values[row] = function(row, *args[row])
            except Abandoned:
                raise
            except BaseException as error:
                errors[row] = error

        finished = Finished()
        for row in instances:
            self._put(row, finished, work)
        if finished.take(len(instances), self.timeout) is None:
            raise Late([row for row in instances if row not in values and row not in errors])
        if errors:
            row = min(errors)
            raise Broken(Post(row, what[0], traceback_of(errors[row])))
        return [values[row] for row in instances]

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = options

    # --- faults ---

    def read_posts(self) -> list[Post]:
        self._has_restarted = False
        return [self._posts.popleft() for _ in range(len(self._posts))]

    def stuck(self, seconds: float) -> list[int]:
        self._hanging = [] if self._crew is None else self._crew.stuck(seconds)
        return [row for row, _ in self._hanging]

    def restart(self, instances: Sequence[int]) -> bool:
        assert self._crew is not None
        for row, member in self._hanging:
            if row in instances and (job := self._crew.abandon(member)) is not None:
                finished, work, args = job[2]
                with self._lock:
                    self._at_work.discard(row)
                self._put(row, finished, self._stand_in, work, args)
        return True

    def _stand_in(self, row: int, work: Callable[..., int], args: tuple[Any, ...]) -> int:
        noted = self._instances.stand_in(row, work, args)
        self._has_restarted = True
        return noted

    # --- the end ---

    def close(self, grace: float) -> list[Post]:
        if self._owner != os.getpid():  # a fork of the caller has a copy of the pool, no thread
            return []
        if self._crew is None:  # never attached
            failed = self._instances.close()
            return [Post(failed[0], "close", failed[1])] if failed else []
        if isinstance(threading.current_thread(), Member):  # garbage is collected anywhere
            threading.Thread(target=self.close, args=(grace,), daemon=True).start()
            return []
        end = time.monotonic() + grace
        self.forget()
        posts: deque[Post] = deque()
        open_rows = set(range(len(self._instances)))

        def work(row: int) -> None:
            try:
                self._instances.envs[row].close()
            except BaseException as error:
                posts.append(Post(row, "close", traceback_of(error)))
            open_rows.discard(row)

        finished = Finished()
        for row in sorted(open_rows):
            self._put(row, finished, work)
        finished.take(len(open_rows), grace)
        left = self._crew.end(max(end, time.monotonic() + _END))
        if left:
            log.warning(
                "environments %s did not close in time; %d threads were abandoned",
                *(sorted(open_rows), len(left)),
            )
        return list(posts)


class _Instances(Instances):
    """Rows that several threads step, each row in one thread at a time.

    The threads share sets and dicts of rows, whose single operations are atomic.
    """

    crew: Crew | None = None  # set if there is a timeout

    def attach(self, *args: Any, **kwargs: Any) -> None:
        super().attach(*args, **kwargs)
        self._passing = (Abandoned,)

    def before_all(self, buffer: int) -> tuple[Any, Iterable[Any]]:
        """Starts a step of all; returns the view and the actions."""
        return self._before_all(buffer), self._actions(None)

    def step_in(self, row: int, view: Any, action: Any) -> int:
        """Runs a row's part of a step of all."""
        return self._run((row,), (action,), view)

    def with_nan(self, buffer: int) -> list[int]:
        """Returns the rows in which a step of all has left NaN."""
        view = self._views[buffer]
        if not self._validate or not view.has_nan():
            return []
        return [row for row in self._rows if view.row_has_nan(row)]

    def refuse_nan_in(self, row: int, buffer: int) -> int:
        return self._refuse_nans((row,), self._views[buffer])

    def step_alone(self, row: int, buffer: int) -> int:
        return self.step_one(buffer, row)

    def reset_in(self, row: int, buffer: int, options: dict[str, Any] | None) -> int:
        return self.reset_one(buffer, row, options)

    def stand_in(self, row: int, work: Callable[..., int], args: tuple[Any, ...]) -> int:
        """Replaces an environment that hangs, and runs its request."""
        try:
            env = self._make(row)
        except self._passing:
            raise
        except BaseException as error:
            self._tell(row, REMAKING, error)
            env = FailedEnv(error)
        self._replace(row, env)
        self.recover((row,))
        return work(row, *args)

    # --- calls into environments, during which a thread may be abandoned ---

    def call(self, row: int, name: str, args: Any, kwargs: Any) -> Any:
        return self._within(None, super().call, row, name, args, kwargs)

    def _make(self, row: int) -> Any:
        return self._within(None, super()._make, row)

    def _shut(self, row: int) -> None:
        self._within(None, super()._shut, row)

    def _reset(self, row: int, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, Any]:
        return self._within(self.envs[row], super()._reset, row, seed, options)

    def _step_of(self, row: int) -> Callable[[Any], Any]:
        env = self.envs[row]
        if self.crew is None:
            return env.step
        return lambda action: self._within(env, env.step, action)

    def _within(self, env: Any, function: Callable[..., Any], *args: Any) -> Any:
        if self.crew is None:
            return function(*args)
        try:
            return self.crew.within(function, *args)
        except Abandoned:
            if env is not None:  # it was replaced, so only this thread can close it
                with contextlib.suppress(BaseException):
                    env.close()
            raise
