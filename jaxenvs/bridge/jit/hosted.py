"""A pool's interface to compiled programs: an id, a call counter, and one entry point.

`Hosted.perform` does in Python what native/xla.cc does in C++, with the same inputs and results.
"""

import contextlib
import ctypes
import functools
import itertools
import os
import signal
import threading
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxenvs import _interrupts
from jaxenvs.bridge.backends.base import RESET, RESET_ALL, STEP, STEP_ALL
from jaxenvs.bridge.backends.process import ProcessBackend
from jaxenvs.bridge.memory import lines as _lines
from jaxenvs.bridge.memory.layout import Leaf, leaves_of, tree_of
from jaxenvs.bridge.native.libraries import XLA, is_there, reason_missing, xla_library
from jaxenvs.bridge.pool import Pool
from jaxenvs.bridge.pool.actions import discrete_bounds
from jaxenvs.errors import (
    AlreadyPendingError,
    ClosedError,
    EnvIdError,
    EnvTimeoutError,
    JaxenvsError,
    NothingPendingError,
    PoolError,
    StaleStateError,
)

RESET_, STEP_, SEND, RECV, RESET_SOME = range(5)  # as in native/xla.cc
TARGET = "jaxenvs_pool_call"

_ids = itertools.count(1)
_hosted: weakref.WeakValueDictionary[int, "Hosted"] = weakref.WeakValueDictionary()
_lock = threading.Lock()


class _Column(ctypes.Structure):  # jx_column
    _fields_ = (
        ("data", ctypes.c_void_p * 2),
        ("elements", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("size", ctypes.c_int32),
        ("low", ctypes.c_void_p),
        ("high", ctypes.c_void_p),
    )


class _Struct(ctypes.Structure):  # jx_hosted
    _fields_ = (
        ("pool", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("owners", ctypes.c_void_p),
        ("num_envs", ctypes.c_int32),
        ("buffer", ctypes.c_int32),
        ("buffer_of_some", ctypes.c_int32),
        ("restarts", ctypes.c_int32),
        ("patience_ns", ctypes.c_int64),
        ("mailboxes", ctypes.c_void_p),
        ("mailbox_room", ctypes.c_int64),
        ("num_actions", ctypes.c_int32),
        ("num_observations", ctypes.c_int32),
        ("num_fields", ctypes.c_int32),
        ("has_final", ctypes.c_int32),
        ("actions", ctypes.POINTER(_Column)),
        ("observations", ctypes.POINTER(_Column)),
        ("finals", ctypes.POINTER(_Column)),
        ("fields", ctypes.POINTER(_Column)),
        ("final_fields", ctypes.POINTER(_Column)),
        *((name, _Column) for name in ("reward", "terminated", "truncated", "elapsed")),
        *((name, _Column) for name in ("restarted", "seeds")),
        ("counter", ctypes.c_int32),
        ("all_pending", ctypes.c_int32),
        ("busy", ctypes.c_void_p),
        ("closing", ctypes.c_uint32),
        ("waited_until", ctypes.c_int64),
    )


class Group:
    """The pools of a HostEnv over several devices; native/xla.cc has the same.

    If a call fails, its device does not leave the program at once, because the others would wait
    for it in their next collective operation, without end. Until all devices fail, in the first
    call that none of them has begun, it returns rows flagged as truncated and restarted.
    """

    def __init__(self, size: int) -> None:
        self._lock = threading.Lock()
        self._calls = [0] * size
        self._last: float = float("inf")  # the call in which all fail
        self._failed = 0
        self._error: Exception | None = None

    def enter(self, place: int) -> None:
        """Begins a call of one pool; raises in the call in which all fail."""
        with self._lock:
            self._calls[place] += 1
            if self._calls[place] < self._last:
                return
            assert self._error is not None
            error, self._failed = self._error, self._failed + 1
            if self._failed == len(self._calls):
                self._last, self._failed, self._error = float("inf"), 0, None
        raise error

    def fail(self, error: Exception) -> None:
        """Notes that a call failed."""
        with self._lock:
            if self._error is None:
                self._last, self._error = 1 + max(self._calls), error


class Hosted:
    """A pool that compiled programs step; the pool's own step, reset, send and recv then raise.

    Attributes:
        id: the number by which programs refer to the pool.
        reason: why programs cannot step it without Python; None if they can.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.backend = pool._backend
        self.id = next(_ids)
        self.path: str | None = None  # "ffi" or "callback", of the first HostEnv
        self._counter = 0  # the struct has its own counter
        # The latest batch of all may be in one buffer while single steps use the other.
        self._buffer, self._buffer_of_some = pool._buffer, pool._buffer ^ 1
        self._struct: _Struct | None = None
        self._group: Group | None = None
        self._place = 0  # in the group
        self.reason = self._why_not_native()
        if self.reason is None:
            self._register()
        with _lock:
            _hosted[self.id] = self

    @property
    def calls(self) -> int:
        """The number of calls so far, which the token of the next call must contain."""
        return self._counter if self._struct is None else self._struct.counter

    @classmethod
    def of(cls, pool: Pool) -> "Hosted":
        """Returns the `Hosted` of `pool`, which is made on first use."""
        with pool._lock:
            pool._refuse_closed()
            if pool._left is not None:
                raise PoolError(
                    f"{pool!r} still holds the batch of a recv that raised.  Call recv() first, or"
                    " the batch would be lost."
                )
            if pool._hosted is None:
                pool._hosted = cls(pool)
                pool._all_ready = False  # makes the pool's own step take the slow path, and refuse
            return pool._hosted

    @staticmethod
    def find(id: int) -> "Hosted":
        """Returns the `Hosted` with this id.

        Raises:
            ClosedError: its pool is closed.
        """
        found = _hosted.get(id)
        if found is None:
            raise ClosedError(
                "a program stepped a pool that is closed.  Make another pool and reset it."
            )
        return found

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

    @staticmethod
    def join(hosted: Sequence["Hosted"]) -> None:
        """Makes pools of several devices one group."""
        if all(each._struct is not None for each in hosted):
            ids = np.array([each.id for each in hosted], np.int32)
            xla_library().jaxenvs_join(ctypes.c_void_p(ids.ctypes.data), len(ids))
            return
        group = Group(len(hosted))
        for place, each in enumerate(hosted):
            each._group, each._place = group, place

    def hold(self) -> None:
        """Blocks programs from stepping the pool until `release`; waits for the current call."""
        if self._struct is not None:
            xla_library().jaxenvs_hold(self.id)

    def release(self) -> None:
        if self._struct is not None:
            xla_library().jaxenvs_release(self.id)

    def use_callbacks(self) -> None:
        """Steps the pool in Python from now on."""
        if self._struct is not None:
            self._unregister()
            self._struct = None
        backend = self.backend
        if isinstance(backend, ProcessBackend):
            # Spinning workers would compete with the callback thread for the cores.
            backend.words.set_spin(0)
            backend.words.set_home(-1)
            # Lets every worker run on every core again.
            for pid in backend.words.pids.tolist():
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(pid, os.sched_getaffinity(0))

    # --- without Python ---

    def _why_not_native(self) -> str | None:
        if not isinstance(self.backend, ProcessBackend):
            return f'the backend "{self.backend.name}" runs in Python'
        return None if is_there(XLA) else reason_missing(xla_library)

    def _register(self) -> None:
        pool, backend = self.pool, self.backend
        assert isinstance(backend, ProcessBackend)
        arrays, words = backend.arrays, backend.words
        first, second = arrays.answers

        def column(*views: np.ndarray) -> _Column:
            view = views[0]
            data = (ctypes.c_void_p * 2)(views[0].ctypes.data, views[-1].ctypes.data)
            elements = int(np.prod(view.shape[1:], dtype=np.int64))
            letter = {"q": "l", "Q": "L"}.get(view.dtype.char, view.dtype.char)
            return _Column(data, elements, ord(letter), view.dtype.itemsize)

        bounds = [_bounds(leaf, pool) for leaf in leaves_of(pool.single_action_space)]
        actions = [column(array) for array in arrays.actions]
        for each, found in zip(actions, bounds, strict=True):
            if found is not None:
                each.low, each.high = (array.ctypes.data for array in found)

        def columns(a: Sequence[np.ndarray], b: Sequence[np.ndarray]) -> Any:
            both = [column(x, y) for x, y in zip(a, b, strict=True)]
            return (_Column * len(both))(*both)

        name = pool.name.encode()
        patience = pool._patience
        self._struct = _Struct(
            pool=ctypes.addressof(words.struct),
            name=name,
            owners=backend.owners.ctypes.data,
            num_envs=pool.num_envs,
            buffer=self._buffer,
            buffer_of_some=self._buffer_of_some,
            restarts=pool._on_failure == "restart",
            patience_ns=-1 if patience is None else int(patience * 1e9),
            mailboxes=words.address + words.mailboxes_offset,
            mailbox_room=_lines.TEXT_ROOM,
            num_actions=len(arrays.actions),
            num_observations=len(first.observation),
            num_fields=len(first.fields),
            has_final=pool.autoreset_mode == "same_step",
            actions=(_Column * len(actions))(*actions),
            observations=columns(first.observation, second.observation),
            finals=columns(first.final_observation, second.final_observation),
            fields=columns(first.fields, second.fields),
            final_fields=columns(first.final_fields, second.final_fields),
            reward=column(first.reward, second.reward),
            terminated=column(first.terminated, second.terminated),
            truncated=column(first.truncated, second.truncated),
            elapsed=column(arrays.elapsed),
            restarted=column(arrays.restarted),
            seeds=column(arrays.seeds),
            all_pending=pool._all_pending is not None,
            busy=pool._busy.ctypes.data,
        )
        xla_library().jaxenvs_register(self.id, ctypes.byref(self._struct))
        _watch_interrupts()
        # Keeps everything that the struct points to alive while a program can reach it.
        alive = self._struct, name, words, arrays, backend.owners, pool._busy, bounds
        self._unregister = weakref.finalize(self, _unregister, self.id, alive)

    # --- in Python ---

    def perform(
        self, operation: int, count: int, wants_final: bool, counter: int, operands: Sequence[Any]
    ) -> list[np.ndarray]:
        """Performs one call; native/xla.cc describes operands and results (here without token)."""
        pool = self.pool
        with pool._lock:
            if self._struct is not None:
                raise PoolError(
                    'a callback stepped a pool that programs step by path="ffi".  Make another'
                    " pool for it."
                )
            if self._group is None:
                return self._perform(operation, count, wants_final, counter, operands)
            self._group.enter(self._place)
            try:
                return self._perform(operation, count, wants_final, counter, operands)
            except JaxenvsError as error:
                self._group.fail(error)
                return self._flagged(wants_final)

    def _perform(
        self, operation: int, count: int, wants_final: bool, counter: int, operands: Sequence[Any]
    ) -> list[np.ndarray]:
        pool = self.pool
        pool._refuse_closed()
        if operation != RESET_ and counter != self._counter:
            raise StaleStateError(
                f'this state of "{pool.name}" was stepped already: it is from call {counter}'
                f" of the pool, which is at call {self._counter}.  Hosted environments cannot"
                " go back.  Step the state that the last call returned, or reset."
            )
        return getattr(self, _METHODS[operation])(count, wants_final, list(operands))

    def _flagged(self, wants_final: bool) -> list[np.ndarray]:
        """Returns the latest rows, flagged, in place of those that a failed call did not bring."""
        found = self._answer(self._buffer, slice(None), _lines.OK, wants_final)
        at = len(self.backend.arrays.answers[0].observation)
        for i, value in ((0, 0), (1, False), (2, True), (4, True)):  # as in `_answer`
            found[at + i] = np.full_like(found[at + i], value)
        return found

    def _reset(self, count: int, wants_final: bool, operands: list[Any]) -> list[np.ndarray]:
        pool = self.pool
        if pool._was_cut:
            pool._drain()
        if pool._all_pending is not None or pool._num_busy:  # drop those results
            if pool._all_pending is not None:
                self._waited_for_all()
            else:
                out = np.empty(pool._num_busy, np.int32)
                pool._waited(lambda time: self.backend.take(out, time))
                self._nothing_pending()
        seeds = np.asarray(operands[0])
        if self.backend.makes_batches:  # a vectorized environment may accept only one base seed
            first = int(seeds[0]) % (2**31 - pool.num_envs)
            seeds = first + np.arange(pool.num_envs)
        self.backend.arrays.seeds[:] = seeds
        return self._all(RESET_ALL, wants_final)

    def _step(self, count: int, wants_final: bool, operands: list[Any]) -> list[np.ndarray]:
        pool = self.pool
        if pool._all_pending is not None or pool._num_busy:
            raise AlreadyPendingError(
                f'"{pool.name}" was stepped while results are still pending.  Call recv first.'
            )
        self._take_actions(operands, None)
        return self._all(STEP_ALL, wants_final)

    def _all(self, op: int, wants_final: bool) -> list[np.ndarray]:
        self._start_all(op)
        return self._answer_of_all(wants_final)

    def _send(self, count: int, wants_final: bool, operands: list[Any]) -> list[np.ndarray]:
        pool, ids = self.pool, np.asarray(operands[0])
        if len(ids) and (ids.min() < 0 or ids.max() >= pool.num_envs):
            raise EnvIdError(
                f'env_ids of "{pool.name}" got {ids.min()} to {ids.max()}; environments are'
                f" numbered from 0 to {pool.num_envs - 1}."
            )
        busy = pool._all_pending is not None or pool._busy[ids].any()
        if busy or len(np.unique(ids)) != len(ids):
            raise AlreadyPendingError(
                f'environments {ids.tolist()} of "{pool.name}" were sent actions, but the result of'
                " one of them is still pending, or one was given twice.  Call recv first."
            )
        self._take_actions(operands[1:], ids)
        if count == pool.num_envs == len(ids) and np.array_equal(ids, np.arange(len(ids))):
            self._start_all(STEP_ALL)
        else:
            self._count_call()
            pool._busy[ids] = True
            pool._num_busy += len(ids)
            self.backend.start_some(STEP, self._buffer_of_some, ids)
        return []

    def _recv(self, count: int, wants_final: bool, operands: list[Any]) -> list[np.ndarray]:
        pool = self.pool
        if pool._all_pending is not None:
            self._count_call()
            return self._answer_of_all(wants_final)
        if pool._num_busy < count:
            raise NothingPendingError(
                f'recv waits for {count} environments of "{pool.name}", but only {pool._num_busy}'
                " have a pending result.  Call send first."
            )
        self._count_call()
        ids = np.empty(count, np.int32)
        status = pool._waited(lambda time: self.backend.take(ids, time))
        pool._busy[ids] = False
        pool._num_busy -= count
        return self._answer(self._buffer_of_some, ids, status, wants_final)

    def _reset_some(self, count: int, wants_final: bool, operands: list[Any]) -> list[np.ndarray]:
        pool = self.pool
        if pool._all_pending is not None or pool._num_busy:
            raise AlreadyPendingError(
                f'reset_where of "{pool.name}" was called while results are still pending.'
                "  Call recv first."
            )
        self._count_call()
        ids = np.flatnonzero(operands[0]).astype(np.int32)
        self.backend.arrays.seeds[:] = operands[1]
        status = _lines.OK
        if len(ids):
            self.backend.start_some(RESET, self._buffer, ids)
            out = np.empty(len(ids), np.int32)
            status = pool._waited(lambda time: self.backend.take(out, time))
        return self._answer(self._buffer, slice(None), status, wants_final)

    def _count_call(self) -> None:
        """Invalidates the state, once the call can no longer be refused."""
        self._counter = (self._counter + 1) & 0x7FFFFFFF

    def _start_all(self, op: int) -> None:
        self._count_call()
        self._buffer ^= 1  # the other buffer holds the last observation of episodes that are cut
        self.backend.start_all(op, self._buffer)
        self.pool._all_pending = op

    def _take_actions(self, operands: Sequence[Any], ids: np.ndarray | None) -> None:
        actions = tree_of(self.pool.single_action_space, iter(operands))
        self.pool._take_action(actions, ids, len(operands[0]))

    def _answer_of_all(self, wants_final: bool) -> list[np.ndarray]:
        status = self._waited_for_all()
        return self._answer(self._buffer, slice(None), status, wants_final)

    def _waited_for_all(self) -> int:
        try:
            status = self.pool._waited(lambda time: self.backend.wait_all(self._buffer, time))
        except EnvTimeoutError:  # still pending; the next call waits for it
            raise
        except BaseException:
            self._nothing_pending()
            raise
        self._nothing_pending()
        return status

    def _nothing_pending(self) -> None:
        self.pool._all_pending, self.pool._num_busy = None, 0
        self.pool._busy[:] = False

    def _answer(self, buffer: int, rows: Any, status: int, wants_final: bool) -> list[np.ndarray]:
        pool, arrays = self.pool, self.backend.arrays
        if status & _lines.ATTENTION:
            pool._attend(status)
        answer = arrays.answers[buffer]
        ids = np.arange(pool.num_envs, dtype=np.int32)[rows]
        parts = [*answer.observation, answer.reward, answer.terminated, answer.truncated]
        parts += [arrays.elapsed, arrays.restarted]
        found = [part[rows] for part in parts]
        # The runtime reads these after this call, when the next call may already overwrite them.
        found = [part.copy() if isinstance(rows, slice) else part for part in found]
        arrays.restarted[rows] = False
        found += [ids, *(np.array(part[rows]) for part in answer.fields)]
        if pool.autoreset_mode == "same_step":
            pairs = [*zip(answer.fields, answer.final_fields, strict=True)]
            if wants_final:
                pairs = [*zip(answer.observation, answer.final_observation, strict=True), *pairs]
            over = answer.terminated[rows] | answer.truncated[rows]
            for last, final in pairs:
                mask = over.reshape(over.shape + (1,) * (last.ndim - 1))
                found.append(np.where(mask, final[rows], last[rows]))
        return found


def _wait_for_programs() -> None:
    import jax

    with contextlib.suppress(Exception):  # raised where the program's results are used
        jax.effects_barrier()


def _bounds(leaf: Leaf, pool: Pool) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the least and the largest integers of an action, int64[elements] each.

    None if no values are refused. For floats the bounds are unused, but NaN is refused.
    """
    kind = leaf.dtype.kind
    if not pool._settings.validate or kind not in "iuf":
        return None
    bounds = discrete_bounds(leaf.space_in(pool.single_action_space))
    if bounds is None:
        limits = np.iinfo(np.int64 if kind == "f" else leaf.dtype)
        bounds = limits.min, min(limits.max, np.iinfo(np.int64).max)  # of uint64
    low, high = (np.broadcast_to(np.asarray(each, np.int64), leaf.shape) for each in bounds)
    return low.ravel(), high.ravel()


@functools.cache
def _watch_interrupts() -> None:
    """Makes programs end on Ctrl-C, from the first pool on."""
    _renew_interrupts(is_first=True)
    _interrupts.on_new_handler(_renew_interrupts)


def _renew_interrupts(*, is_first: bool = False) -> None:
    """Watches again after `signal.signal`, which ends it; handlers of others are left alone.

    Python does not run while it waits for a program, so native/xla.cc watches SIGINT itself. See
    `jaxenvs._interrupts` for handlers that take the first Ctrl-C.
    """
    handler = signal.getsignal(signal.SIGINT)
    owner = getattr(handler, "__self__", None)
    spares_first = bool(getattr(owner, "takes_first_interrupt", False))
    if spares_first or is_first or handler is signal.default_int_handler:
        xla_library().jaxenvs_watch_interrupts(int(spares_first))


def _unregister(id: int, alive: Any) -> None:
    alive[0].closing = 1  # ends a call whose environments hang
    xla_library().jaxenvs_unregister(id)


_METHODS = {
    RESET_: "_reset",
    STEP_: "_step",
    SEND: "_send",
    RECV: "_recv",
    RESET_SOME: "_reset_some",
}
