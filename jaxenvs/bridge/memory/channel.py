"""The channel between a caller and its workers: request rings and counters in shared memory.

`native/pool.h` documents and implements the protocol. The structures here mirror the ones there.
"""

import ctypes
import functools
from collections.abc import Callable
from ctypes import c_int32, c_uint32
from typing import Any

import numpy as np

from jaxenvs.bridge.memory.segment import Overflow
from jaxenvs.bridge.native.libraries import pool_library

STEP, RESET, STEP_ALL, RESET_ALL, MESSAGE, QUIT = range(6)  # as in native/pool.h
OK, TIMEOUT, INTERRUPTED, INFO, DONE, ATTENTION = 0, 1, 2, 4, 8, 16
_NO_REQUEST = 0xFFFFFFFF
_COUNT = 0xFFFFFFFF  # counts are modulo 2**32
_REPORT_ROOM = 2**14  # bytes of a worker's reports for each request in its ring


def request(op: int, buffer: int = 0) -> int:
    return op << 29 | buffer << 28


class Line(ctypes.Structure):  # jx_line
    _fields_ = (
        ("asked", c_uint32),
        ("caller_asleep", c_uint32),
        ("read", c_uint32),
        ("unused0", c_uint32 * 13),
        ("done", c_uint32),
        ("worker_asleep", c_uint32),
        ("current", c_uint32),
        ("noted", c_uint32 * 2),
        ("hung", c_uint32),
        ("alone", c_uint32),
        ("reported", c_uint32),
        ("unused1", c_uint32 * 8),
    )


class Header(ctypes.Structure):  # jx_header
    _fields_ = (
        ("finished", c_uint32),
        ("caller_asleep", c_uint32),
        ("wanted", c_uint32),
        ("attention", c_uint32),
        ("unused0", c_uint32 * 12),
        ("spin_ns", c_uint32),
        ("home", c_int32),
        ("take_spin_ns", c_uint32),
        ("away", c_uint32),
        ("bells", c_uint32 * 8),
        ("lost", c_uint32),
        ("replace", c_uint32),
        ("unused1", c_uint32 * 2),
    )


class PoolStruct(ctypes.Structure):  # jx_pool
    _fields_ = (
        ("header", ctypes.c_void_p),
        ("lines", ctypes.c_void_p),
        ("requests", ctypes.c_void_p),
        ("num_workers", c_uint32),
        ("request_room", c_uint32),
        ("taken", ctypes.c_void_p),
        ("next", c_uint32),
        ("core", c_int32),
        ("pids", ctypes.c_void_p),
    )


@functools.cache
def _shared(num_workers: int, most: int) -> type[ctypes.Structure]:
    """Returns the layout of the shared memory."""
    room = 1 << max(4, most.bit_length())  # a power of two

    class Shared(ctypes.Structure):
        _fields_ = (
            ("header", Header),
            ("lines", Line * num_workers),
            ("requests", c_uint32 * room * num_workers),
        )

    return Shared


def channel_size(size: tuple[int, int]) -> int:
    """Returns how many bytes of shared memory a `Channel` needs."""
    return ctypes.sizeof(_shared(*size))


class Channel:
    """One process's view of the channel.

    Args:
        memory: the shared memory, which begins with the channel.
        size: the number of workers, and how many requests each may have in its ring.
        overflow: the overflow of the same segment.
        place: where the first worker's reports are in the overflow; the other workers' follow.
    """

    def __init__(self, memory: Any, size: tuple[int, int], overflow: Overflow, place: int) -> None:
        shared: Any = _shared(*size).from_buffer(memory)
        num_workers = len(shared.lines)
        self._header: Header = shared.header
        self._lines: list[Line] = list(shared.lines)
        self._requests = shared.requests
        self._overflow, self._place = overflow, place
        self._report_room = _REPORT_ROOM * len(shared.requests[0])  # a power of two
        # Only the caller uses these. All programs of its process share them.
        self._taken = (c_uint32 * num_workers)()
        self.pids = (c_int32 * num_workers)()
        self.struct = PoolStruct(
            header=ctypes.addressof(shared.header),
            lines=ctypes.addressof(shared.lines),
            requests=ctypes.addressof(shared.requests),
            num_workers=num_workers,
            request_room=len(shared.requests[0]),
            taken=ctypes.addressof(self._taken),
            core=-1,
            pids=ctypes.addressof(self.pids),
        )
        self._library, self._pointer = pool_library(), ctypes.addressof(self.struct)

    def call_attention(self) -> None:
        """Makes the caller read the reports."""
        self._header.attention = 1


class CallerChannel(Channel):
    """The caller's side of the channel."""

    # --- settings ---

    def set_spin(self, nanoseconds: int, take: int = 0) -> None:
        """Sets how long the processes poll before they sleep; `take` is for a caller in `take`."""
        self._header.spin_ns, self._header.take_spin_ns = nanoseconds, take

    def set_home(self, worker: int) -> None:
        """Sets which worker shares the caller's core; -1 means none."""
        self._header.home = worker
        self.struct.core = -1

    def begin(self, worker: int, pid: int) -> tuple[int, int]:
        """Sets a worker's process; returns how many requests it was sent, and how many are done."""
        self.pids[worker] = pid
        self.struct.core = -1
        line = self._lines[worker]
        line.current = 0
        return line.asked, line.done

    # --- requests ---

    def ask(self, worker: int, what: int) -> None:
        """Sends one request to a worker."""
        self._library.jaxenvs_ask(self._pointer, worker, what)

    def ask_all(self, what: int) -> None:
        """Sends the same request to every worker."""
        self._library.jaxenvs_ask_all(self._pointer, what)

    def ask_some(self, op: int, buffer: int, instances: np.ndarray, owners: np.ndarray) -> None:
        """Sends one request for each instance (int32[n]) to its worker (int32[n])."""
        self._library.jaxenvs_ask_some(
            *(self._pointer, op, buffer, instances.ctypes.data, owners.ctypes.data),
            len(instances),
        )

    def step_all(self, timeout: float) -> Callable[[int], int]:
        """Returns a function that steps all workers into a given buffer and waits for them."""
        # One call with prepared arguments, since this is most of the cost of a small batch.
        step, pointer = self._library.jaxenvs_step_all, ctypes.c_void_p(self._pointer)
        numbers = [c_uint32(request(STEP_ALL, buffer)) for buffer in range(2)]
        nanoseconds = ctypes.c_int64(_nanoseconds(timeout))
        return lambda buffer: step(pointer, numbers[buffer], nanoseconds)

    def wait_all(self, buffer: int, timeout: float) -> int:
        """Waits for all requests; returns OK with the batch's flags, or TIMEOUT, or INTERRUPTED."""
        return self._library.jaxenvs_wait_all(self._pointer, buffer, _nanoseconds(timeout))

    def take(self, out: np.ndarray, timeout: float) -> int:
        """Waits for enough finished instances to fill `out`, int32, and writes their indices."""
        return self._library.jaxenvs_take(
            self._pointer, len(out), out.ctypes.data, _nanoseconds(timeout)
        )

    def num_finished(self) -> int:
        """Returns how many finished requests were not taken yet, including messages."""
        count, taken = 0, self._taken
        for worker, line in enumerate(self._lines):
            count += (line.done - taken[worker]) & _COUNT
        return count

    def take_messages(self, worker: int) -> None:
        """Removes answered messages from a worker's ring, so that they never fill it.

        Finished instances that were not taken yet move into the freed slots.
        """
        ring, mask = self._requests[worker], self.struct.request_room - 1
        at, done = self._taken[worker], self._lines[worker].done
        found = [ring[(at + i) & mask] for i in range((done - at) & _COUNT)]
        kept = [what for what in found if what >> 29 != MESSAGE]
        for i, what in enumerate(kept, done - len(kept)):
            ring[i & mask] = what
        self._taken[worker] = (done - len(kept)) & _COUNT

    # --- faults ---

    def counts(self, worker: int) -> tuple[int, int, int]:
        """Returns a worker's number of requests sent and done, and its current instance plus 1."""
        line = self._lines[worker]
        return line.asked, line.done, line.current

    def give_up(self, worker: int) -> None:
        """Records that the caller stopped waiting for a worker because it hangs."""
        self._lines[worker].hung = self._lines[worker].asked

    def hangs(self, worker: int) -> bool:
        """Returns whether the caller gave up on a worker that has still not answered."""
        line = self._lines[worker]
        return line.asked != line.done and line.asked == line.hung

    def lose(self) -> None:
        """Records that a worker is lost for good."""
        self._header.lost = 1

    def finish_for(self, worker: int) -> None:
        """Marks all requests to a lost worker as done."""
        line = self._lines[worker]
        while line.done != line.asked:
            self._library.jaxenvs_finish(self._pointer, worker, (line.done + 1) & _COUNT)

    def read_reports(self) -> list[tuple[int, bytes]]:
        """Returns (worker, unread reports) for each worker that has any."""
        self._header.attention = 0
        found, room = [], self._report_room
        for worker, line in enumerate(self._lines):
            begin, count = line.read % room, (line.reported - line.read) & _COUNT
            if count:
                place, first = self._place + worker, min(count, room - begin)
                data = self._overflow.read(place, first, begin)
                found.append((worker, data + self._overflow.read(place, count - first)))
                line.read = (line.read + count) & _COUNT
        return found


class WorkerChannel(Channel):
    """A worker's side of the channel.

    Args:
        memory, size, overflow, place: see `Channel`.
        worker: the worker's number.
        seen: how many requests were done before this process began.
    """

    def __init__(
        self,
        memory: Any,
        size: tuple[int, int],
        overflow: Overflow,
        place: int,
        *,
        worker: int,
        seen: int,
    ) -> None:
        super().__init__(memory, size, overflow, place)
        self._worker, self._seen, self._line = worker, seen, self._lines[worker]
        self._noted = self._line.noted
        # The current instance plus 1.
        self.current = (c_uint32 * 1).from_buffer(self._line, Line.current.offset)

    def next(self) -> int:
        """Waits for a request and returns it."""
        what = _NO_REQUEST
        while what == _NO_REQUEST:  # interrupted by a signal, whose handler has run by now
            what = self._library.jaxenvs_next(self._pointer, self._worker, self._seen)
        return what

    def finish_and_next(self) -> int:
        """Marks the current request as done; waits for the next one and returns it."""
        self._seen = seen = (self._seen + 1) & _COUNT
        what = self._library.jaxenvs_finish_and_next(self._pointer, self._worker, seen)
        return self.next() if what == _NO_REQUEST else what

    def is_before(self, count: int) -> bool:
        """Returns whether the current request is among the first `count` of this worker."""
        return (self._seen - count) & _COUNT >= 0x80000000

    def note(self, buffer: int, noted: int) -> None:
        """Sets the flags of a batch of all rows."""
        self._noted[buffer] = noted

    def set_alone(self, is_alone: bool) -> None:
        """Sets whether the worker's environments run in one thread."""
        self._line.alone = is_alone
        self._header.replace = 1

    def report(self, data: bytes) -> bool:
        """Writes a report for the caller; returns False if there is no room for it."""
        line, room, place = self._line, self._report_room, self._place + self._worker
        has_room = len(data) <= room - ((line.reported - line.read) & _COUNT)
        if has_room:
            begin = line.reported % room
            first = min(len(data), room - begin)
            self._overflow.write(place, data[:first], begin)
            self._overflow.write(place, data[first:])
            line.reported = (line.reported + len(data)) & _COUNT
        self.call_attention()
        return has_room


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
