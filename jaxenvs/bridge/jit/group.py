"""How programs over several devices fail together."""

import threading

import numpy as np

_NEVER = np.iinfo(np.int64).max


class Group:
    """The pools of a HostEnv over several devices.

    If a call fails, its device does not leave the program at once, because the others would wait
    for it in their next collective operation, without end. Until all devices fail, in the first
    call that none of them has begun, it returns rows flagged as truncated and restarted.

    Attributes:
        calls: int64[P], the number of calls of each pool, counted before they begin.
        last: int64[1], the number of the call in which all fail. native/xla.cc compares the two.
    """

    def __init__(self, size: int) -> None:
        self.calls, self.last = np.zeros(size, np.int64), np.full(1, _NEVER)
        self._lock, self._fence = threading.Lock(), threading.Lock()
        self._failed = 0  # pools that did
        self._error: Exception | None = None

    def enter(self, place: int, *, is_counted: bool) -> None:
        """Begins a call of one pool; raises in the call in which all fail."""
        with self._lock:
            self.calls[place] += not is_counted
            if self.calls[place] < self.last[0]:
                return
            assert self._error is not None
            error, self._failed = self._error, self._failed + 1
            if self._failed == len(self.calls):
                self.last[0], self._failed, self._error = _NEVER, 0, None
        raise error

    def fail(self, error: Exception) -> None:
        """Records that a call failed."""
        with self._lock:
            if self._error is not None:
                return
            self._error, last = error, 0
            # A pool may begin a call before it can see the number; then all fail in a later one.
            while (latest := int(self.calls.max())) >= last:
                self.last[0] = last = latest + 1
                with self._fence:  # orders the writing before the next reading
                    pass
