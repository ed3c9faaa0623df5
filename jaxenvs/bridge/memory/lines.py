"""The words and rings by which a caller and its workers tell one another how far they are.

`native/pool.h` says how it works and does it.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxenvs.bridge.native.libraries import pool_library

STEP, RESET, STEP_ALL, RESET_ALL, MESSAGE, QUIT = range(6)  # as in native/pool.h
OK, TIMEOUT, INTERRUPTED, INFO, DONE, ATTENTION = 0, 1, 2, 4, 8, 16
_NO_REQUEST = 0xFFFFFFFF

_LINE = 128  # bytes of a jx_line and of the jx_header
_ASKED, _DONE, _CURRENT, _NOTED, _HUNG, _ALONE = 0, 16, 18, 19, 21, 22  # words of a jx_line
_FINISHED, _ATTENTION, _SPIN, _HOME, _TAKE_SPIN = 0, 3, 16, 17, 18  # words of the jx_header
_LOST, _REPLACE = 28, 29
TEXT_ROOM = 8192  # bytes of a worker's mailbox, its length included


def request(op: int, buffer: int = 0, instance: int = 0) -> int:
    return op << 29 | buffer << 28 | instance


class _Pool(ctypes.Structure):  # jx_pool
    _fields_ = (
        ("header", ctypes.c_void_p),
        ("lines", ctypes.c_void_p),
        ("requests", ctypes.c_void_p),
        ("num_workers", ctypes.c_uint32),
        ("request_room", ctypes.c_uint32),
        ("taken", ctypes.c_void_p),
        ("next", ctypes.c_uint32),
        ("core", ctypes.c_int32),
        ("pids", ctypes.c_void_p),
    )


class Words:
    """Where the words lie, as seen by one process.

    Args:
        memory: shared; these words are at its beginning.
        num_workers: W.
        request_room: requests that a worker can have before it, a power of two.
    """

    def __init__(self, memory: Any, num_workers: int, request_room: int) -> None:
        self.num_workers, self.request_room = num_workers, request_room
        words = np.frombuffer(memory, np.uint32, count=words_size(num_workers, request_room) // 4)
        lines = _LINE // 4 + num_workers * (_LINE // 4)
        self.address = words.ctypes.data
        self.header = words[: _LINE // 4]
        self.line = words[_LINE // 4 : lines].reshape(num_workers, _LINE // 4)
        self.requests = words[lines : lines + num_workers * request_room].reshape(
            num_workers, request_room
        )
        self._mailboxes = words[lines + num_workers * request_room :].view(np.uint8)
        self._mailboxes = self._mailboxes.reshape(num_workers, TEXT_ROOM)
        # What only the caller uses, kept here so that every program of its process shares it.
        self.taken = np.zeros(num_workers, np.uint32)
        self.pids = np.zeros(num_workers, np.int32)
        self.struct = _Pool(
            header=self.address,
            lines=self.address + _LINE,
            requests=self.address + _LINE * (1 + num_workers),
            num_workers=num_workers,
            request_room=request_room,
            taken=self.taken.ctypes.data,
            core=-1,
            pids=self.pids.ctypes.data,
        )

    @property
    def mailboxes_offset(self) -> int:
        """Bytes from the beginning of the memory to the first mailbox."""
        return words_size(self.num_workers, self.request_room) - self.num_workers * TEXT_ROOM

    def set_spin(self, nanoseconds: int, take: int = 0) -> None:
        """Sets how long everybody looks before sleeping; `take`: of a caller that takes some."""
        self.header[_SPIN], self.header[_TAKE_SPIN] = nanoseconds, take

    def set_home(self, worker: int) -> None:
        """Sets which worker shares the caller's core; -1 for none."""
        self.header[_HOME : _HOME + 1].view(np.int32)[0] = worker
        self.struct.core = -1

    def current(self, worker: int) -> memoryview:
        """One word for the instance that a worker is at, plus 1."""
        return self.line[worker, _CURRENT : _CURRENT + 1].data

    def counts(self, worker: int) -> tuple[int, int, int]:
        """Requests asked of a worker, done by it, and the instance that it is at, plus 1."""
        line = self.line[worker]
        return int(line[_ASKED]), int(line[_DONE]), int(line[_CURRENT])

    def give_up(self, worker: int) -> None:
        """Notes that a wait for the worker ended, because it hangs."""
        self.line[worker, _HUNG] = self.line[worker, _ASKED]

    def hangs(self, worker: int) -> bool:
        """Whether a wait for the worker was given up and it still has not answered."""
        asked, done, hung = (int(self.line[worker, word]) for word in (_ASKED, _DONE, _HUNG))
        return asked != done and asked == hung

    def set_alone(self, worker: int, is_alone: bool) -> None:
        """Notes whether a worker's environments run in one thread."""
        self.line[worker, _ALONE] = is_alone
        self.header[_REPLACE] = 1

    def lose(self) -> None:
        """Notes that a worker is gone for good."""
        self.header[_LOST] = 1

    # --- mailboxes: the worker writes into an empty one, the caller empties it ---

    def post(self, worker: int, text: bytes) -> bool:
        """Leaves a text for the caller, unless one is there that was not read yet."""
        box = self._mailboxes[worker]
        is_empty = not box[:4].view(np.uint32)[0]
        if is_empty:
            text = text[: TEXT_ROOM - 4]
            box[4 : 4 + len(text)] = np.frombuffer(text, np.uint8)
            box[:4].view(np.uint32)[0] = len(text)
        self.call_attention()
        return is_empty

    def call_attention(self) -> None:
        self.header[_ATTENTION] = 1

    def read_posts(self) -> list[tuple[int, bytes]]:
        """Takes what workers left, with their numbers."""
        self.header[_ATTENTION] = 0
        found = []
        for worker, box in enumerate(self._mailboxes):
            size = int(box[:4].view(np.uint32)[0])
            if size:
                found.append((worker, box[4 : 4 + size].tobytes()))
                box[:4].view(np.uint32)[0] = 0
        return found


def words_size(num_workers: int, request_room: int) -> int:
    """Bytes that `Words` need."""
    return _LINE * (1 + num_workers) + num_workers * (4 * request_room + TEXT_ROOM)


def room_for(requests: int) -> int:
    """The size of a ring that takes so many requests: a power of two."""
    return 1 << max(4, requests.bit_length())


class CallerLines:
    """The caller's side.

    Args:
        words: of the shared memory.
    """

    def __init__(self, words: Words) -> None:
        self.words, self._library = words, pool_library()
        self._pointer = ctypes.addressof(words.struct)
        self._line, self._taken = words.line.data, words.taken.data

    def ask(self, worker: int, what: int) -> None:
        """Puts one request before a worker."""
        self._library.jaxenvs_ask(self._pointer, worker, what)

    def ask_all(self, what: int) -> None:
        """Puts the same request before every worker."""
        self._library.jaxenvs_ask_all(self._pointer, what)

    def ask_some(self, op: int, buffer: int, instances: np.ndarray, owners: np.ndarray) -> None:
        """Puts one request for each instance (int32[n]) before its worker (int32[n])."""
        self._library.jaxenvs_ask_some(
            *(self._pointer, op, buffer, instances.ctypes.data, owners.ctypes.data),
            len(instances),
        )

    def step_all(self, timeout: float | None) -> Callable[[int], int]:
        """A function that asks all to step in a buffer, and waits for them."""
        # In one call of what is prepared: this is most of what a small batch costs.
        step, pointer = self._library.jaxenvs_step_all, ctypes.c_void_p(self._pointer)
        numbers = [ctypes.c_uint32(request(STEP_ALL, buffer)) for buffer in range(2)]
        nanoseconds = ctypes.c_int64(_nanoseconds(timeout))
        return lambda buffer: step(pointer, numbers[buffer], nanoseconds)

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        """Waits for all that was asked: OK with flags of the batch, or TIMEOUT, INTERRUPTED."""
        return self._library.jaxenvs_wait_all(self._pointer, buffer, _nanoseconds(timeout))

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        """Waits for as many finished instances as fit into `out`, int32, and writes them."""
        return self._library.jaxenvs_take(
            self._pointer, len(out), out.ctypes.data, _nanoseconds(timeout)
        )

    def num_finished(self) -> int:
        """How many requests are finished and not taken; messages may be among them."""
        line, taken = self._line, self._taken
        return sum((line[w, _DONE] - taken[w]) & 0xFFFFFFFF for w in range(len(taken)))

    def settle(self, worker: int) -> None:
        """Counts answered messages as taken, so that they never fill the ring.

        Instances that are finished and not taken move up to where the messages were.
        """
        ring, mask = self.words.requests[worker], self.words.request_room - 1
        at, done = int(self.words.taken[worker]), int(self.words.line[worker, _DONE])
        count = (done - at) & 0xFFFFFFFF
        found = [int(ring[(at + i) & mask]) for i in range(count)]
        kept = [what for what in found if what >> 29 != MESSAGE]
        for i, what in enumerate(kept):
            ring[(done - len(kept) + i) & mask] = what
        self.words.taken[worker] = (done - len(kept)) & 0xFFFFFFFF

    def finish_for(self, worker: int) -> None:
        """Counts everything as done that was asked of a worker which is gone."""
        line = self.words.line[worker]
        while line[_DONE] != line[_ASKED]:
            done = (int(line[_DONE]) + 1) & 0xFFFFFFFF
            self._library.jaxenvs_finish(self._pointer, worker, done)


class WorkerLines:
    """A worker's side.

    Args:
        words: of the shared memory.
        worker: its number.
        seen: requests that were finished before it began.
    """

    def __init__(self, words: Words, worker: int, seen: int) -> None:
        self.words, self._worker, self._seen = words, worker, seen
        self._library = pool_library()
        self._pointer = ctypes.addressof(words.struct)
        self._noted = words.line[worker, _NOTED : _NOTED + 2].data

    def next(self) -> int:
        """Waits for a request and returns it."""
        what = _NO_REQUEST
        while what == _NO_REQUEST:  # a signal came, and its handler has run by now
            what = self._library.jaxenvs_next(self._pointer, self._worker, self._seen)
        return what

    def finish_and_next(self) -> int:
        """Says that the latest request is finished; waits for another and returns it."""
        self._seen = seen = (self._seen + 1) & 0xFFFFFFFF
        what = self._library.jaxenvs_finish_and_next(self._pointer, self._worker, seen)
        return self.next() if what == _NO_REQUEST else what

    def is_before(self, count: int) -> bool:
        """Whether the request was among the first `count` ever."""
        return (self._seen - count) & 0xFFFFFFFF >= 0x80000000

    def note(self, buffer: int, noted: int) -> None:
        """Says what there is in a batch of all rows."""
        self._noted[buffer] = noted


def _nanoseconds(seconds: float | None) -> int:
    return -1 if seconds is None else int(seconds * 1e9)
