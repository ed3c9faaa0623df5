"""A pool's calls from compiled programs.

`Hosted.perform` does everything that a call may need. With the "process" backend, native/xla.cc
does the usual part of `step`, `send` and `recv` without Python; it calls `perform` for the rest:
resets, failures, hangs, Ctrl-C and misuse.
"""

import contextlib
import ctypes
import functools
import itertools
import threading
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxenvs.bridge.backends.process import ProcessBackend
from jaxenvs.bridge.jit import structs
from jaxenvs.bridge.jit.group import Group
from jaxenvs.bridge.jit.interrupts import TOGETHER, clock, interrupted_at, watch_interrupts
from jaxenvs.bridge.memory.channel import RESET, RESET_ALL, STEP, STEP_ALL
from jaxenvs.bridge.memory.layout import leaves_of, tree_of
from jaxenvs.bridge.native.libraries import XLA, is_there, reason_missing, xla_library
from jaxenvs.bridge.pool import Pool
from jaxenvs.bridge.pool.arguments import checked_ids
from jaxenvs.bridge.pool.pool import state_of
from jaxenvs.errors import (
    ClosedError,
    JaxenvsError,
    NothingPendingError,
    PoolError,
    StaleStateError,
)

RESET_, STEP_, SEND, RECV, RESET_SOME = range(5)  # as in native/xla.cc

_ids = itertools.count(1)
_hosted: weakref.WeakValueDictionary[int, "Hosted"] = weakref.WeakValueDictionary()
_lock = threading.Lock()
_inside: set[int] = set()  # threads in a call of native/xla.cc, which holds the pool's mutex


class InterruptedProgram(JaxenvsError):
    """Ctrl-C ended a program."""


class Call(NamedTuple):
    """A call of a program to a pool.

    Attributes:
        operation: RESET_, STEP_, SEND, RECV or RESET_SOME.
        num_rows: the number of rows to receive.
        wants_final: whether to return final observations, under same-step autoreset.
        calls: the call counter in the program's state.
        is_counted: whether the group has counted the call.
        has_begun: whether the environments were asked already, so that only waiting is left.
    """

    operation: int
    num_rows: int
    wants_final: bool
    calls: int = -1
    is_counted: bool = False
    has_begun: bool = False


class Hosted:
    """A pool that compiled programs step; the pool's own step, reset, send and recv then raise.

    Attributes:
        id: the number by which programs refer to the pool.
        path: "ffi" or "callback", once it is chosen.
        reason: why programs cannot step it without Python; None if they can.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool  # would be closed if it were collected during a call
        self._state = state = state_of(pool)
        self.id = next(_ids)
        self.path: str | None = None
        self.reason = self._why_not_native()
        self._results = functools.cache(functools.partial(structs.results, state))
        self._shapes = [leaf.shape for leaf in leaves_of(state.settings.action_space)]
        self._struct: structs.Hosted | None = None
        self._since = 0  # see `_check`
        self._checked_at = self._waited_until = 0  # by the latest callback, in ns of `clock`
        self._group: Group | None = None
        self._place = 0  # in the group
        with _lock:
            _hosted[self.id] = self

    @property
    def calls(self) -> int:
        """The number of calls so far, which the token of the next call must contain."""
        return self._state.ledger.calls

    @classmethod
    def of(cls, pool: Pool) -> "Hosted":
        """Returns the `Hosted` of `pool`, which is made on first use."""
        state = state_of(pool)
        with state.lock:
            state.refuse_closed()
            if state.holds_results:
                raise PoolError(
                    f"{pool!r} still holds the batch of a recv that raised.  Call recv() first, or"
                    " the batch would be lost."
                )
            if state.hosted is None:
                state.hosted = cls(pool)
                # Makes the pool's own step and send raise.
                state.ledger.all_ready, state.ledger.received = False, None
            return state.hosted

    @staticmethod
    def find(id: int) -> "Hosted":
        """Returns the `Hosted` with this id.

        Raises:
            ClosedError: its pool is closed.
        """
        found = _hosted.get(id)
        if found is None:
            raise _closed()
        return found

    def use(self, path: str) -> None:
        """Sets the path by which programs reach the pool, the first time."""
        if self.path is not None:
            return
        self.path = path
        if is_there(XLA):  # otherwise nothing notices Ctrl-C before the program ends
            watch_interrupts()
            self._state.on_wait = self._check
        if path == "ffi":
            self._register()
        elif isinstance(self._state.backend, ProcessBackend):
            self._state.backend.give_way()

    def _why_not_native(self) -> str | None:
        backend = self._state.backend
        if not isinstance(backend, ProcessBackend):
            return f'the backend "{backend.name}" runs in Python'
        return None if is_there(XLA) else reason_missing(xla_library)

    def _register(self) -> None:
        struct, alive = structs.hosted(self._state)
        self._struct = struct
        xla_library().jaxenvs_register(self.id, ctypes.byref(struct), _perform)
        # Keeps everything that the struct points to alive while a program can reach it.
        self._unregister = weakref.finalize(self, _unregister, self.id, (struct, *alive))

    @staticmethod
    def join(hosted: Sequence["Hosted"]) -> None:
        """Makes pools of several devices one group."""
        group = Group(len(hosted))
        for place, each in enumerate(hosted):
            if each._struct is not None:
                each._struct.calls = group.calls[place:].ctypes.data
                each._struct.last = group.last.ctypes.data
            each._group, each._place = group, place  # may free the previous group

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Blocks programs from stepping the pool meanwhile; waits for the current call."""
        if self._struct is None:
            yield
            return
        library = xla_library()
        library.jaxenvs_hold(self.id)
        try:
            yield
        finally:
            library.jaxenvs_release(self.id)

    @staticmethod
    def wait_for_programs(seconds: float) -> None:
        """Waits until running programs end, for at most so many seconds."""
        # In another thread, since a program whose environments hang never ends.
        waiting = threading.Thread(target=_wait_for_programs, daemon=True)
        waiting.start()
        waiting.join(seconds)

    def close(self) -> None:
        """Makes further calls of programs fail."""
        with _lock:
            _hosted.pop(self.id, None)
        if self._struct is not None:
            self._unregister()
            self._struct = None

    # --- one call ---

    def perform(self, call: Call, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Performs one call of a program.

        Args:
            call: what to do.
            operands: reset: seeds; step: actions; send: ids and actions; reset of some: a mask
                and seeds.

        Returns:
            the arrays of `structs.results`, with a row for each environment; none for `send`.
        """
        group = self._group
        if group is None:
            return self._perform(call, operands)
        if not call.has_begun:
            group.enter(self._place, is_counted=call.is_counted)
        try:
            return self._perform(call, operands)
        except JaxenvsError as error:
            group.fail(error)
            return self._flagged(call.wants_final)

    def called_back(self, call: Call, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Performs a call from a callback."""
        with self._state.lock:
            if self._struct is not None:
                raise PoolError(
                    'a callback stepped a pool that programs step by path="ffi".  Make another'
                    " pool for it."
                )
            now = clock()
            is_next = call.operation != RESET_ and now - self._waited_until < TOGETHER
            # Since the latest check: Ctrl-C may have come while the environments stepped.
            self._since, self._checked_at = self._checked_at if is_next else now, now
            try:
                return self.perform(call, operands)
            finally:
                self._waited_until = clock()

    def _perform(self, call: Call, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        state, ledger = self._state, self._state.ledger
        state.refuse_closed()
        if state.on_wait is not None:
            self._check()
        if not call.has_begun:
            if call.operation != RESET_ and call.calls != ledger.calls:
                raise StaleStateError(
                    f'this state of "{state.name}" was stepped already: it is from call'
                    f" {call.calls} of the pool, which is at call {ledger.calls}.  Hosted"
                    " environments cannot go back.  Step the state that the last call returned, or"
                    " reset."
                )
            self._begin(call.operation, call.num_rows, list(operands))
        if call.operation == SEND:
            return []
        ids, buffer = state.every_id, ledger.buffer
        if ledger.op:
            state.handle_attention(state.end_all())
        else:
            buffer ^= 1
            is_reset = call.operation == RESET_SOME
            count = ledger.num_pending if is_reset else call.num_rows
            taken = state.take(count)[0] if count else ids
            # Rows that were not reset get older values; the program keeps its own.
            ids = ids if is_reset else taken
        return self._answer(buffer, ids, call.wants_final)

    def _begin(self, operation: int, count: int, operands: list[np.ndarray]) -> None:
        state, ledger = self._state, self._state.ledger
        if operation == RESET_:
            state.drop_pending()
            self._seed(operands[0])
            ledger.count_call()
            state.begin_all(RESET_ALL)
        elif operation == STEP_:
            ledger.refuse_pending(f'step of "{state.name}"', "recv()")
            self._take_actions(operands, None)
            ledger.count_call()
            state.begin_all(STEP_ALL)
        elif operation == SEND:
            ids = checked_ids(operands[0], state.num_envs)
            ledger.refuse_busy(f'send of "{state.name}"', ids)
            self._take_actions(operands[1:], ids)
            ledger.count_call()
            if count == state.num_envs and np.array_equal(ids, state.every_id):
                state.begin_all(STEP_ALL)
            else:
                state.begin_some(STEP, ids)
        elif operation == RECV:
            if not ledger.op and ledger.num_pending < count:
                raise NothingPendingError(
                    f'recv waits for {count} environments of "{state.name}", but only'
                    f" {ledger.num_pending} have a pending result.  Call send first."
                )
            ledger.count_call()
        else:
            ledger.refuse_pending(f'reset_where of "{state.name}"', "recv()")
            ids = np.flatnonzero(operands[0]).astype(np.int32)
            state.backend.arrays.seeds[:] = operands[1]
            ledger.count_call()
            if len(ids):
                state.begin_some(RESET, ids)

    def _seed(self, seeds: np.ndarray) -> None:
        backend, count = self._state.backend, self._state.num_envs
        if backend.makes_batches:  # a vectorized environment may accept only one base seed
            seeds = int(seeds[0]) % (2**31 - count) + np.arange(count)
        backend.arrays.seeds[:] = seeds

    def _take_actions(self, operands: Sequence[np.ndarray], ids: np.ndarray | None) -> None:
        state = self._state
        count = state.num_envs if ids is None else len(ids)
        shaped = (
            part.reshape(count, *shape) for part, shape in zip(operands, self._shapes, strict=True)
        )
        state.take_action(tree_of(state.settings.action_space, shaped), ids, count)

    def _answer(self, buffer: int, ids: np.ndarray, wants_final: bool) -> list[np.ndarray]:
        state, arrays = self._state, self._state.backend.arrays
        state.backend.flush(buffer)
        every = ids is state.every_id
        answer = arrays.answers[buffer]
        ended = answer.terminated[ids] | answer.truncated[ids]
        is_any = bool(ended.any())
        found = []
        for latest, final in self._results(wants_final):
            # A copy: the runtime reads it when the next call may already write to the array.
            part = latest[buffer].copy() if every else latest[buffer][ids]
            if is_any and final is not None:
                part[ended] = final[buffer][ids[ended]]
            found.append(part)
        if state.may_have_restarts:
            state.take_restarted(ids)
        return found

    def _flagged(self, wants_final: bool) -> list[np.ndarray]:
        """Returns the latest rows, flagged, in place of those that a failed call did not bring."""
        state = self._state
        found = self._answer(state.ledger.buffer, state.every_id, wants_final)
        at = len(state.backend.arrays.answers[0].observation)
        for i, value in ((0, 0), (1, False), (2, True), (4, True)):  # as in `_answer`
            found[at + i] = np.full_like(found[at + i], value)
        return found

    def of_another_kind(self) -> PoolError:
        """Returns the error of a program whose results have other shapes than this pool's."""
        return PoolError(
            f'the state belongs to "{self._state.name}", but the program was compiled for a pool of'
            " another kind."
        )

    def _check(self) -> None:
        """Ends a call after Ctrl-C, or if the pool is being closed."""
        if self._struct is not None and self._struct.closing:
            raise _closed()
        if interrupted_at() > self._since:
            raise InterruptedProgram(
                f'the program that stepped "{self._state.name}" was interrupted.  Reset the'
                " environments or close the pool."
            )


@structs.PERFORM
def _perform(pointer: Any) -> int:
    """Performs a call of which native/xla.cc has done at most the beginning."""
    thread = threading.get_ident()
    _inside.add(thread)
    try:
        return _perform_call(pointer.contents)
    finally:
        _inside.discard(thread)


def _perform_call(struct: Any) -> int:
    try:
        hosted = Hosted.find(struct.id)
        hosted._since = struct.since
        what = struct.operation, struct.count, bool(struct.wants_final), struct.calls
        call = Call(*what, is_counted=True, has_begun=bool(struct.has_begun))
        outputs = hosted.perform(call, structs.arrays(struct.operands, struct.num_operands))
        results = structs.arrays(struct.results, struct.num_results)
        if [part.size for part in outputs] != [part.size for part in results]:
            raise hosted.of_another_kind()
        for result, part in zip(results, outputs, strict=True):
            result[:] = part.ravel()
        return structs.DONE
    except InterruptedProgram as error:
        structs.put_error(struct, f"KeyboardInterrupt: {error}")
    except BaseException as error:
        structs.put_error(struct, f"{type(error).__name__}: {error}")
        if isinstance(error, KeyboardInterrupt):  # the runtime turns it into an error of its own
            return structs.INTERRUPTED
    return structs.FAILED


def _closed() -> ClosedError:
    return ClosedError("a program stepped a pool that is closed.  Make another pool and reset it.")


def _wait_for_programs() -> None:
    with contextlib.suppress(Exception):  # raised where the program's results are used
        jax.effects_barrier()


def _unregister(id: int, alive: Any) -> None:
    alive[0].closing = 1  # ends a call whose environments hang
    if threading.get_ident() in _inside:  # garbage is collected anywhere
        threading.Thread(target=_unregister, args=(id, alive)).start()
        return
    xla_library().jaxenvs_unregister(id)
