"""The "asyncio" backend, for environments whose methods are coroutine functions."""

import asyncio
import contextlib
import dataclasses
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.backends._crew import Abandoned, Crew, Finished, Member
from jaxenvs.bridge.backends._loop import LoopThread, begin, is_awaitable
from jaxenvs.bridge.backends.base import (
    STEP,
    STEP_ALL,
    Backend,
    Broken,
    Late,
    Post,
    Settings,
    private_arrays,
)
from jaxenvs.bridge.backends.thread import default_threads
from jaxenvs.bridge.memory import lines as _lines
from jaxenvs.bridge.workers.instances import REMAKING, FailedEnv, Instances, traceback_of
from jaxenvs.bridge.workers.worker import facts, has_coroutines

log = logging.getLogger("jaxenvs")

_END = 0.2  # seconds that loop and threads get to end once the environments are closed


class AsyncioBackend(Backend):
    """A backend with one event loop in its own thread, on which environments wait concurrently.

    An environment with a coroutine function among reset, step, render and close lives on the loop.
    Its ordinary methods run there too and must not block. All other environments run in threads.

    Args:
        env_fns: one function for each instance, called on the loop.
        num_threads: threads for environments without coroutine functions; None for one each, at
            most 64.
    """

    name = "asyncio"

    def __init__(
        self, env_fns: Sequence[Callable[[], Any]], num_threads: int | None = None
    ) -> None:
        self._owner = os.getpid()
        self._thread = LoopThread("jaxenvs-pool-loop")
        try:
            self._rows: _Rows = _opened(self._thread.result(_made(env_fns)))
        except BaseException:
            self._thread.end(_END)
            raise
        self._rows.num_threads = num_threads
        self.facts = [facts(env) for env in self._rows.envs]
        num_ordinary = sum(not has_coroutines(env) for env in self._rows.envs)
        self.num_workers = (num_threads or default_threads(num_ordinary)) if num_ordinary else 1
        self._finished = Finished()
        self._is_asked = False  # whether a batch of all is pending
        self._options: dict[str, Any] | None = None

    def attach(self, settings: Settings) -> None:
        self.timeout = settings.timeout
        self.plan, self.arrays = private_arrays(settings, len(self._rows))
        self._rows.attach(
            self.plan,
            self.arrays,
            time_limit=settings.time_limit,
            validate=settings.validate,
            report=lambda *post: self._rows.posts.append(Post(*post)),
            keeps_infos=True,
        )

    # --- steps ---

    def start_all(self, op: int, buffer: int) -> None:
        actions = self._rows.actions() if op == STEP_ALL else [None] * len(self._rows)
        batch, self._is_asked = _Batch(len(self._rows), self._finished), True
        self._thread.tell(self._rows.start_all, op, buffer, actions, self._options, batch)

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        found = self._take(1, timeout) if self._is_asked else ([], 0)
        if found is None:
            return _lines.TIMEOUT
        self._is_asked = False
        return found[1] | self._attention()

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        actions = self._rows.actions(instances) if op == STEP else [None] * len(instances)
        turns = [
            _Turn(row, op, buffer, action, self._options, self._finished)
            for row, action in zip(instances.tolist(), actions, strict=True)
        ]
        self._thread.tell(self._rows.start_some, turns)

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        found = self._take(len(out), timeout)
        if found is None:
            return _lines.TIMEOUT
        out[:] = found[0]
        return self._attention()

    def _take(self, count: int, timeout: float | None) -> tuple[list[int], int] | None:
        try:
            return self._finished.take(count, timeout)
        except BaseException:  # Ctrl-C
            self.forget()
            raise

    def forget(self) -> None:
        # The next requests cancel those still running.
        self._finished, self._is_asked = Finished(), False

    def _attention(self) -> int:
        return _lines.ATTENTION if self._rows.posts or self._rows.has_restarted else _lines.OK

    # --- messages ---

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        if kind == "kept_info":
            return [self._rows.kept_info(what[0], row) for row in instances]
        try:
            return self._thread.result(self._rows.message(kind, instances, *what), self.timeout)
        except TimeoutError:
            raise Late(instances) from None

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = options

    # --- faults ---

    def read_posts(self) -> list[Post]:
        posts = self._rows.posts
        self._rows.has_restarted = False
        return [posts.popleft() for _ in range(len(posts))]

    def stuck(self, seconds: float) -> list[int]:
        found = self._rows.stuck(seconds)
        if found and self._thread.is_blocked():
            blocking = self._rows.at_work()
            return [blocking] if blocking in found else found
        return found

    def restart(self, instances: Sequence[int]) -> bool:
        if self._thread.is_blocked():  # by code that does not await and cannot be cancelled
            return False
        self._thread.tell(self._rows.restart, list(instances))
        return True

    # --- the end ---

    def close(self, grace: float) -> list[Post]:
        if self._owner != os.getpid():  # a fork of the caller has a copy of the pool, no thread
            return []
        here = threading.current_thread()
        if self._thread.is_here or isinstance(here, Member):  # called by the garbage collector
            threading.Thread(target=self.close, args=(grace,), daemon=True).start()
            return []
        posts, left = [], []
        with contextlib.suppress(TimeoutError):
            posts, left = self._thread.result(self._rows.close_all(grace), grace + _END)
        ended = self._thread.end(_END)
        hanging = self._rows.end_threads(_END)
        if left or hanging or not ended:
            log.warning(
                "environments %s did not close in time; %d threads were abandoned",
                *(left or "on the event loop", len(hanging) + (not ended)),
            )
        return posts


async def _made(env_fns: Sequence[Callable[[], Any]]) -> Any:
    try:
        return _Rows(env_fns)
    except BaseException as error:  # some kinds would end the loop
        return _Raised(error)


class _Batch:
    """The rows of a step of all; reports when the last one is finished."""

    def __init__(self, size: int, finished: Finished) -> None:
        self._left, self._noted, self._finished = size, 0, finished

    def put(self, row: int, noted: int) -> None:
        self._noted |= noted
        self._left -= 1
        if not self._left:
            self._finished.put(0, self._noted)

    @property
    def is_last(self) -> bool:
        return self._left == 1


@dataclasses.dataclass(slots=True, eq=False)
class _Turn:
    """One request for a row."""

    row: int
    op: int
    buffer: int
    action: Any
    options: dict[str, Any] | None
    to: _Batch | Finished
    task: asyncio.Task | None = None


@dataclasses.dataclass(slots=True)
class _Raised:
    """The outcome of a call that raised."""

    error: BaseException


class _Rows(Instances):
    """Rows whose results are awaited first and then passed to the loop that writes them.

    Everything except `stuck`, `at_work` and plain reads happens on the event loop.
    """

    def __init__(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._remade: dict[int, Any] = {}  # outcomes of constructors
        self._begun: dict[int, Any] = {}  # outcomes of resets
        self._failed: dict[int, tuple[Any, str, BaseException]] = {}
        self._aside: set[asyncio.Task] = set()
        self._in_thread: dict[int, asyncio.Future] = {}  # calls running in threads
        self._hanging: list[tuple[int, Member]] = []  # at the last check
        self._crew: Crew | None = None
        self.num_threads: int | None = None
        self.posts: deque[Post] = deque()
        self.has_restarted = False  # since `read_posts`
        super().__init__(env_fns)
        self._ordinary = [not has_coroutines(env) for env in self.envs]
        self._turns: list[_Turn | None] = [None] * len(self)
        self._since = [0.0] * len(self)  # when each row entered its coroutine; 0 outside

    def attach(self, *args: Any, **kwargs: Any) -> None:
        super().attach(*args, **kwargs)
        self._passing = ()

    def actions(self, rows: np.ndarray | None = None) -> list[Any]:
        return self._actions(rows)

    # --- turns ---

    def start_all(
        self,
        op: int,
        buffer: int,
        actions: Sequence[Any],
        options: dict[str, Any] | None,
        batch: _Batch,
    ) -> None:
        if op == STEP_ALL:
            self._before_all(buffer)
        for row, action in enumerate(actions):
            self._start(_Turn(row, op, buffer, action, options, batch))

    def start_some(self, turns: Sequence[_Turn]) -> None:
        for turn in turns:
            self._start(turn)

    def _start(self, turn: _Turn) -> None:
        before, self._turns[turn.row] = self._turns[turn.row], turn
        if before is None or before.task is None or before.task.done():
            turn.task = begin(self._run_turn(turn), self._loop)
        else:  # the previous request was dropped because of Ctrl-C
            turn.task = begin(self._run_after(before.task, turn), self._loop)

    async def _run_after(self, before: asyncio.Task, turn: _Turn) -> None:
        before.cancel()
        await asyncio.wait({before})
        if (work := self._in_thread.get(turn.row)) is not None:
            await asyncio.wait({work})
        await self._run_turn(turn)

    async def _run_turn(self, turn: _Turn) -> None:
        """Runs one request, unless it is given up meanwhile."""
        row = turn.row
        try:
            if turn.op in (STEP, STEP_ALL):
                noted = await self._step(turn)
            else:
                noted = await self._reset_turn(turn)
            if row in self._failed:
                noted |= await self._mend(turn)
            if turn.op == STEP_ALL and turn.to.is_last:  # pyright: ignore[reportAttributeAccessIssue]
                noted |= self._after_all(self._views[turn.buffer])
                for other in tuple(self._failed):
                    noted |= await self._mend(turn, other)
        except _GivenUp:
            return
        except GeneratorExit:
            raise
        except BaseException as error:  # not an environment's error; the pool must not wait forever
            if self._turns[row] is not turn:
                return
            self.posts.append(Post(row, "step", traceback_of(error), fatal=True))
            noted = 0
        turn.to.put(row, noted)

    async def _step(self, turn: _Turn) -> int:
        row = turn.row
        view = self._views[turn.buffer]
        if turn.op == STEP:
            self._before_one(turn.buffer, row)
        outcome = None
        if row in self._over:
            if self._arrays.autoreset_mode == "next_step" or row in self._died:
                self._begun[row] = await self._outcome(turn, "reset", seed=None, options=None)
        elif self._ordinary[row]:
            outcome = await self._outcome(turn, "step", turn.action)
        else:
            # As `_outcome` does, without a coroutine in between.
            self._since[row] = time.monotonic()
            try:
                outcome = self.envs[row].step(turn.action)
                if is_awaitable(outcome):
                    outcome = await outcome
            except GeneratorExit:
                raise
            except BaseException as error:
                outcome = _Raised(error)
            self._check_turn(turn)
            self._since[row] = 0.0
        if self._ends(row, outcome) and self._arrays.autoreset_mode == "same_step":
            self._begun[row] = await self._outcome(turn, "reset", seed=None, options=None)
        noted = self._run((row,), (outcome,), view)
        if turn.op == STEP and row not in self._failed:
            noted |= self._after_one(row, view)
        return noted

    async def _reset_turn(self, turn: _Turn) -> int:
        row, seed = turn.row, int(self._seeds[turn.row])
        self._begun[row] = await self._outcome(
            turn, "reset", seed=None if seed < 0 else seed, options=turn.options
        )
        view = self._views[turn.buffer]
        noted = self._begin(row, view, None, None)
        if row not in self._failed:
            noted |= self._after_one(row, view, "reset")
        return noted

    async def _mend(self, turn: _Turn, row: int | None = None) -> int:
        """Does the work of `Instances._fail`, which cannot await."""
        row = turn.row if row is None else row
        view, what, error = self._failed.pop(row)
        await self._outcome(turn, "close", row=row)
        self.envs[row] = FailedEnv(error)
        self._remade[row] = made = await self._constructed(turn, row)
        if not isinstance(made, _Raised):
            self._begun[row] = await self._outcome(
                turn, "reset", row=row, env=made, seed=None, options=None
            )
        return super()._fail(row, view, what, error)

    # --- outcomes ---

    async def _outcome(
        self,
        turn: _Turn,
        name: str,
        *args: Any,
        row: int | None = None,
        env: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Returns the result of a method of an environment, or `_Raised`."""
        row = turn.row if row is None else row
        env = self.envs[row] if env is None else env
        outcome = await self._attempt(row, lambda: getattr(env, name)(*args, **kwargs))
        self._check_turn(turn)
        return outcome

    async def _constructed(self, turn: _Turn, row: int) -> Any:
        made = await self._attempt(row, lambda: super(_Rows, self)._make(row))
        if self._turns[turn.row] is not turn and not isinstance(made, _Raised):
            await self._attempt(row, made.close)
        self._check_turn(turn)
        return made

    async def _attempt(self, row: int, function: Callable[[], Any]) -> Any:
        """Calls a function on the loop or in a thread, and awaits its result."""
        since = 0.0
        try:
            if self._ordinary[row]:
                outcome = await self._by_thread(row, function)
            else:
                self._since[row] = since = time.monotonic()
                outcome = function()
            return await outcome if is_awaitable(outcome) else outcome
        except GeneratorExit:
            raise
        except BaseException as error:
            return _Raised(error)
        finally:
            if self._since[row] == since:  # otherwise the row has started something else
                self._since[row] = 0.0

    def _by_thread(self, row: int, function: Callable[[], Any]) -> Any:
        if self._crew is None:
            size = self.num_threads or default_threads(sum(self._ordinary))
            self._crew = Crew(size, "jaxenvs-pool-thread")
        future = self._in_thread[row] = self._loop.create_future()
        self._crew.put(row, self._work, future, function)
        return asyncio.shield(future)  # cancelling the wait does not stop the thread

    def _work(self, row: int, future: asyncio.Future, function: Callable[[], Any]) -> None:
        assert self._crew is not None
        outcome = None
        try:
            outcome = self._crew.within(function)
        except Abandoned:
            raise
        except BaseException as error:
            outcome = _Raised(error)
        finally:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(_settle, future, outcome)

    def _check_turn(self, turn: _Turn) -> None:
        if self._turns[turn.row] is not turn:
            raise _GivenUp

    def _ends(self, row: int, outcome: Any) -> bool:
        if outcome is None or type(outcome) is _Raised:
            return False
        if self._limit is not None and self._elapsed[row] >= self._limit:
            return True
        try:
            return bool(outcome[2] or outcome[3])
        except Exception:  # `_run` will raise a better error
            return False

    def _step_of(self, row: int) -> Callable[[Any], Any]:
        return _opened

    def _reset(self, row: int, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, Any]:
        observation, info = _opened(self._begun.pop(row))
        return observation, info

    def _make(self, row: int) -> Any:
        return _opened(self._remade.pop(row)) if row in self._remade else super()._make(row)

    def _replace(self, row: int, env: Any) -> None:
        super()._replace(row, env)
        self._ordinary[row] = not isinstance(env, FailedEnv) and not has_coroutines(env)

    def _fail(self, row: int, view: Any, what: str, error: BaseException) -> int:
        self._failed[row] = view, what, error  # handled by `_mend`
        return 0

    # --- messages ---

    async def message(self, kind: str, rows: Sequence[int], *what: Any) -> list[Any]:
        if kind == "set_attr":
            name, each = what
            calls = [self._setting(row, name, each[i]) for i, row in enumerate(rows)]
        else:
            name = what[0]
            calls = [self._calling(row, *what) for row in rows]
        outcomes = await asyncio.gather(
            *(self._attempt(row, call) for row, call in zip(rows, calls, strict=True))
        )
        for row, outcome in zip(rows, outcomes, strict=True):
            if isinstance(outcome, _Raised):
                raise Broken(Post(row, name, traceback_of(outcome.error)))
        return list(outcomes)

    def _calling(self, row: int, name: str, args: Any, kwargs: Any) -> Callable[[], Any]:
        return lambda: self.call(row, name, args, kwargs)

    def _setting(self, row: int, name: str, value: Any) -> Callable[[], Any]:
        return lambda: self.set_attr(row, name, value)

    # --- hangs ---

    def stuck(self, seconds: float) -> list[int]:
        """Returns the rows whose environments have run for so long."""
        before = time.monotonic() - seconds
        found = [row for row, since in enumerate(self._since) if since and since <= before]
        return sorted([*found, *(row for row, _ in self._hanging_threads(seconds))])

    def _hanging_threads(self, seconds: float) -> list[tuple[int, Member]]:
        self._hanging = [] if self._crew is None else self._crew.stuck(seconds)
        return self._hanging

    def at_work(self) -> int:
        """Returns the row whose code the loop is executing."""
        task = asyncio.current_task(self._loop)
        for row, turn in enumerate(self._turns):
            if task is not None and turn is not None and turn.task is task:
                return row
        return int(np.argmax(self._since))  # it has not returned from its first call

    def restart(self, rows: Sequence[int]) -> None:
        for row in rows:
            turn = self._turns[row]
            if turn is None or turn.task is None or turn.task.done():
                continue
            for hanging, member in self._hanging:
                if hanging == row and self._crew is not None:
                    self._crew.abandon(member)
            self._turns[row] = again = dataclasses.replace(turn, task=None)
            turn.task.cancel()
            lost = {turn.task, *filter(None, (self._in_thread.pop(row, None),))}
            self._put_aside(self._close_after(lost, self._ordinary[row], row, self.envs[row]))
            again.task = begin(self._stand_in(again), self._loop)

    async def _stand_in(self, turn: _Turn) -> None:
        row = turn.row
        for kept in (self._remade, self._begun, self._failed):
            kept.pop(row, None)
        try:
            made = await self._constructed(turn, row)
        except _GivenUp:
            return
        if isinstance(made, _Raised):
            self._tell(row, REMAKING, made.error)
            made = FailedEnv(made.error)
        self._replace(row, made)
        self.recover((row,))
        self.has_restarted = True
        await self._run_turn(turn)

    async def _close_after(self, lost: set[Any], is_ordinary: bool, row: int, env: Any) -> None:
        """Closes an environment that hung, once its calls have ended."""
        await asyncio.wait(lost)
        if is_ordinary and self._crew is not None:
            self._crew.put(row, _close_quietly, env)
        else:
            await _closed(env)

    def _put_aside(self, coroutine: Any) -> None:
        task = self._loop.create_task(coroutine)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    # --- closing ---

    def close(self) -> tuple[int, str] | None:
        """Closes environments whose pool was never made."""
        envs, self.envs = self.envs, []
        for env in envs:
            self._put_aside(_closed(env))
        return None

    async def close_all(self, grace: float) -> tuple[list[Post], list[int]]:
        """Closes all rows; returns reports of what raised, and the rows not closed in time."""
        closing = {
            row: self._loop.create_task(self._close_row(row)) for row in range(len(self.envs))
        }
        if closing:
            await asyncio.wait(closing.values(), timeout=grace)
        posts, left = [], []
        for row, task in closing.items():
            if not task.done():
                task.cancel()
                left.append(row)
            elif isinstance(task.result(), _Raised):
                posts.append(Post(row, "close", traceback_of(task.result().error)))
        return posts, left

    async def _close_row(self, row: int) -> Any:
        turn, self._turns[row] = self._turns[row], None
        if turn is not None and turn.task is not None and not turn.task.done():
            turn.task.cancel()
            await asyncio.wait({turn.task})
        if (work := self._in_thread.get(row)) is not None and not work.done():
            await asyncio.wait({work})
        return await self._attempt(row, self.envs[row].close)

    def end_threads(self, patience: float) -> list[Member]:
        return [] if self._crew is None else self._crew.end(time.monotonic() + patience)


class _GivenUp(Exception):
    """Ends a request that was given up."""


def _opened(outcome: Any) -> Any:
    if type(outcome) is _Raised:
        raise outcome.error
    return outcome


def _settle(future: asyncio.Future, outcome: Any) -> None:
    if not future.done():
        future.set_result(outcome)


def _close_quietly(row: int, env: Any) -> None:
    with contextlib.suppress(BaseException):
        env.close()


async def _closed(env: Any) -> None:
    with contextlib.suppress(BaseException):
        outcome = env.close()
        if is_awaitable(outcome):
            await outcome
