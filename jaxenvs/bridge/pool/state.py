"""The requests to a backend, the waits for it, and its failures, in step with the ledger.

`Pool` and compiled programs (`jit/hosted.py`) both step environments through this class.
"""

import functools
import logging
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from jaxenvs.bridge.backends.backend import Backend, EnvFailure, MessageTimeout, Report, Settings
from jaxenvs.bridge.memory.channel import ATTENTION, RESET_ALL, STEP_ALL, TIMEOUT
from jaxenvs.bridge.pool.actions import action_taker
from jaxenvs.bridge.pool.arguments import short
from jaxenvs.bridge.pool.ledger import Ledger
from jaxenvs.bridge.workers.failures import REMAKING
from jaxenvs.errors import ClosedError, EnvTimeoutError, JaxenvsError, PoolError, WorkerError

log = logging.getLogger("jaxenvs")

PATIENCE = 0.1  # seconds


class PoolState:
    """A backend with its ledger.

    Attributes:
        take_action: called with actions, the ids of their environments (None for all), and how
            many there are; checks the actions and copies them to the arrays that workers read.
        lock: protects the pool; every public method holds it.
        patience: seconds of a wait after which Python runs, so that no Ctrl-C is missed, and looks
            for environments that hang.
        on_wait: called each time that a wait has lasted `patience`; it may raise to end the wait.
        hosted: the `Hosted` of the pool, once compiled programs step it.
        closed: whether `close` was called.
        may_have_restarts: whether rows may be flagged as restarted.
    """

    def __init__(
        self,
        backend: Backend,
        settings: Settings,
        *,
        name: str,
        batch_size: int,
        on_failure: Literal["raise", "restart"],
    ) -> None:
        self.backend, self.settings = backend, settings
        self.name, self.batch_size, self.on_failure = name, batch_size, on_failure
        self.timeout = timeout = settings.timeout
        self.take_action = action_taker(settings, backend.arrays.actions)
        self.num_envs = backend.plan.num_envs
        self.ledger = Ledger(self.num_envs)
        self.lock = threading.RLock()
        self.patience = PATIENCE if timeout is None else min(timeout / 2, PATIENCE)
        self.on_wait: Callable[[], None] | None = None
        self.hosted: Any = None
        self.closed = False
        self.may_have_restarts = False
        self.every_id = np.arange(self.num_envs, dtype=np.int32)
        self.every_id.flags.writeable = False
        self._fatal: list[Report] = []
        self._left: np.ndarray | None = None  # ids of a `take` that raised; the next returns them

    def __repr__(self) -> str:
        return (
            f"Pool({self.name!r}, num_envs={self.num_envs}, batch_size={self.batch_size},"
            f" backend={self.backend.name!r}, num_workers={self.backend.num_workers})"
        )

    # --- requests ---

    def begin_all(self, op: int) -> None:
        """Starts STEP_ALL or RESET_ALL."""
        begin = functools.partial(self.ledger.begin_all, op)
        self._begin(begin, self.backend.start_all, op, self.ledger.buffer ^ 1)

    def begin_some(self, op: int, ids: np.ndarray) -> None:
        """Starts STEP or RESET of some environments, int32[n]."""
        begin = functools.partial(self.ledger.begin_some, ids)
        # Not the buffer of the latest batch of all, which the caller may still be reading.
        self._begin(begin, self.backend.start_some, op, self.ledger.buffer ^ 1, ids)

    def _begin(self, begin: Callable[[], None], start: Callable[..., None], *args: Any) -> None:
        try:
            start(*args)
            begin()
        except JaxenvsError:  # the backend refused and started nothing
            raise
        except BaseException:
            self.ledger.cut()
            raise

    def end_all(self, status: int | None = None) -> int:
        """Waits for everything that is pending; returns the status.

        Args:
            status: that of a wait which has ended already.
        """
        buffer = self.ledger.buffer
        status = self.waited(lambda seconds: self.backend.wait_all(buffer, seconds), status)
        try:  # not in a function of its own, at whose entry Ctrl-C may come
            self.ledger.end_all()
            self._left = None
        except BaseException:  # Ctrl-C
            self.cut()
            raise
        return status

    def take(self, count: int) -> tuple[np.ndarray, bool]:
        """Waits until `count` environments have finished.

        If this raises because of a report, no result is lost: the next call returns them.

        Returns:
            ids, int32[n], and whether some of them may be flagged as restarted.
        """
        if self._left is None:
            ids = np.empty(count, np.int32)
            status = self.waited(lambda seconds: self.backend.take(ids, seconds))
            if status & ATTENTION:
                self._left = ids if count and ids[0] >= 0 else None
                self.handle_reports()
        else:
            ids = self._left
        try:  # as in `end_all`
            self.ledger.end_some(ids)
            self._left = None
        except BaseException:  # Ctrl-C
            self.cut()
            raise
        return ids, self.may_have_restarts

    def waited(self, wait: Callable[[float], int], status: int | None = None) -> int:
        """Calls `wait(seconds)` until it succeeds; returns its status.

        Raises:
            EnvTimeoutError: an environment hangs, and is not restarted. The wait can be repeated.
        """
        try:
            while True:
                if status is None:
                    status = wait(self.patience)
                if not status & 3:
                    return status
                self.refuse_closed()  # another thread may have closed the pool
                if self.on_wait is not None:
                    self.on_wait()
                if status == TIMEOUT and self.timeout:
                    stuck = self.backend.stuck(self.timeout)
                    if stuck:
                        self._handle_hang(stuck)
                status = None
        except JaxenvsError:
            raise
        except BaseException:
            self.cut()
            raise

    def cut(self) -> None:
        """Requires a reset after Ctrl-C; results that are still to come will be dropped."""
        self.ledger.cut()
        self._left = None

    def drop_pending(self) -> None:
        """Waits for everything that is pending, also after Ctrl-C, and drops the results."""
        ledger = self.ledger
        if ledger.was_cut:
            self.backend.forget()
            self.end_all()
            self.backend.read_reports()
            ledger.was_cut = False
        elif ledger.op:
            self.end_all()
        elif ledger.num_pending:
            left = 0 if self._left is None else len(self._left)
            out = np.empty(ledger.num_pending - left, np.int32)
            if len(out):
                self.waited(lambda seconds: self.backend.take(out, seconds))
            self._left = None
            ledger.end_all()

    @property
    def holds_results(self) -> bool:
        """Whether results are held back that a `take` would have returned, had it not raised."""
        return self._left is not None

    # --- failures ---

    def handle_attention(self, status: int) -> bool:
        """Heeds the reports of workers; returns whether rows may be flagged as restarted.

        Raises:
            WorkerError: an environment failed, or the pool cannot continue.
        """
        if status & ATTENTION:
            self.handle_reports()
        return self.may_have_restarts

    def handle_reports(self) -> None:
        """Reads the reports of workers."""
        self.refuse_closed()  # another thread may have closed the pool
        self.may_have_restarts = True
        failures, odd = [], []
        for report in self.backend.read_reports():
            if report.what == "warning":
                odd.append(report)
            elif self.on_failure == "restart" and not report.fatal and report.what != REMAKING:
                log.warning("%s", self.message_of(report))
            else:
                failures.append(report)
        self._fatal = [report for report in failures if report.fatal]
        if self._fatal:  # makes `step` and `send` raise
            self.ledger.all_ready, self.ledger.received = False, None
        try:
            if odd:
                more = f", and {len(odd) - 1} others did the same" if len(odd) > 1 else ""
                message = f"{odd[0].text}{more}.  Pass validate=False to turn this warning off."
                warnings.warn(message, stacklevel=5)
        finally:  # also if warnings are errors
            if failures:
                raise self.error(failures)

    def take_restarted(self, ids: Any) -> np.ndarray:
        """Returns which of the environments were restarted, and clears their flags."""
        restarted = self.backend.arrays.restarted
        found = restarted[ids].copy()
        restarted[ids] = False
        self.may_have_restarts = bool(restarted.any())
        return found

    def error(self, reports: Sequence[Report]) -> WorkerError:
        """Returns the error for some reports."""
        error = WorkerError("\n".join(map(self.message_of, reports)))
        ids = (self.every_id if report.instance < 0 else (report.instance,) for report in reports)
        error.env_ids = tuple(int(i) for each in ids for i in each)
        return error

    def message_of(self, report: Report) -> str:
        """Returns a report in words."""
        where = "" if report.worker is None else f", worker {report.worker}, process {report.pid}"
        kind = report.text.strip().rsplit("\n", 1)[-1]
        who = (
            f"environment {report.instance}"
            if report.instance >= 0
            else "the vectorized environment"
        )
        head = f'{who} ("{self.name}"{where}) failed in {report.what}: {kind}'
        if report.fatal:
            head += "\n  The pool cannot continue.  Close it and make another."
        elif report.what in ("step", "reset") and report.instance >= 0:
            head += '\n  It was constructed again, reset, and flagged in info["restarted"].'
        # A process that has died leaves no traceback.
        return head if kind == report.text.strip() else f"{head}\n  Its traceback:\n{report.text}"

    def send_message(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a method of the backend that sends a message, and translates its errors."""
        try:
            return function(*args)
        except EnvFailure as error:
            raise self.error([error.report]) from None
        except MessageTimeout as late:
            ids = [int(i) for i in late.instances]
            what = self._too_late(ids)
            if self.on_failure == "restart" and self.backend.restart(ids):
                what += "; those that hang will be constructed again"
            raise _timeout_error(f"{what}.", ids) from None

    def _handle_hang(self, stuck: list[int]) -> None:
        what = self._too_late(stuck)
        if self.on_failure == "restart" and self.backend.restart(stuck):
            log.warning("%s; constructing them again", what)
            return
        again = {STEP_ALL: "step_wait() or recv()", RESET_ALL: "reset_wait()", 0: "recv()"}
        wait = f"Wait again with {again[self.ledger.op]}, close"
        if self.hosted is not None:
            wait = "Close"
        if self.on_failure == "restart":
            advice = "Constructing them again did not help, or is impossible."
            advice += f"  {wait} the pool."
        else:
            advice = f'{wait} the pool, or make it with on_failure="restart".'
        raise _timeout_error(f"{what}.  {advice}", stuck)

    def _too_late(self, ids: list[int]) -> str:
        names = f"environments {short(ids)}" if len(ids) > 1 else f"environment {ids[0]}"
        return f'{names} ("{self.name}") did not answer within {self.timeout:g} s'

    # --- misuse ---

    def refuse_closed(self) -> None:
        """Raises an error if the pool is closed, or lost for good."""
        if self.closed:
            why = "was used after close()"
            if self.backend.is_forked_copy:
                why = f"belongs to process {self.backend.owner}, which this process forked from"
            raise ClosedError(f"{self!r} {why}.  Make another pool.")
        if self._fatal:
            raise self.error(self._fatal)

    def refuse_hosted(self, what: str) -> None:
        """Raises PoolError if compiled programs step the pool."""
        self.refuse_closed()
        if self.hosted is not None:
            raise PoolError(
                f"{what} was called on {self!r}, which is stepped by compiled programs.  Use its"
                " HostEnv, or make another pool."
            )

    def refuse_step(self, what: str) -> None:
        """Raises an error unless all environments can be stepped."""
        self.refuse_hosted(what)
        self.ledger.refuse_pending(what)
        self.ledger.refuse_unready(what, self.every_id)


def _timeout_error(message: str, ids: Sequence[int]) -> EnvTimeoutError:
    error = EnvTimeoutError(message)
    error.env_ids = tuple(ids)
    return error
