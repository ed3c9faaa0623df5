"""The first Ctrl-C as a wish to stop, and what programs that step pools make of it.

Python does not run while it waits for a program, so native/xla.cc watches SIGINT itself and ends
the program. Where the first signal only asks to stop, that one is spared the programs.
"""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from jaxenvs.bridge._native import xla_library


class FirstSignal:
    """Takes the first SIGINT or SIGTERM for a wish to stop; a second one acts as it always does.

    Only the main thread can be told of signals: made in another one, it never hears of any.

    Args:
        tell: is called with the signal.

    Attributes:
        came: the signal; None as long as there is none.
    """

    def __init__(self, tell: Callable[[signal.Signals], Any] | None = None) -> None:
        self.came: signal.Signals | None = None
        self._tell = tell
        self._is_over = False
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._note)
        _renew()

    def ignore(self) -> None:
        """Puts back what handled them before.

        A handler that came later, or another thread, leaves this one where it is: it passes on
        what it gets.
        """
        if self._is_over:
            return
        self._is_over = True
        if threading.current_thread() is threading.main_thread():
            for number in self._before:
                if signal.getsignal(number) == self._note:
                    signal.signal(number, self._previous(number))
        _renew()

    def _note(self, number: int, frame: Any) -> None:
        if not self._is_over:
            self.came = signal.Signals(number)
            self.ignore()
            if self._tell is not None:
                self._tell(self.came)
            return
        previous = self._previous(number)
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _previous(self, number: int) -> Any:
        """What handled a signal before, except for those that are over."""
        handler = self._before[number]
        while (owner := _owner(handler)) is not None and owner._is_over:
            handler = owner._before[number]
        return signal.SIG_DFL if handler is None else handler  # None was not set by Python


def watch() -> None:
    """Has programs end on Ctrl-C, as far as nobody takes it for a wish; for every new pool."""
    global _is_watching
    _renew(is_first=not _is_watching)
    _is_watching = True


_is_watching = False


def _owner(handler: Any) -> FirstSignal | None:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, FirstSignal) else None


def _renew(*, is_first: bool = False) -> None:
    """Watches again, since every `signal.signal` ends it; others' handlers are left alone."""
    if not (_is_watching or is_first):
        return  # without pools there is nothing to end, nor a library to be had
    handler = signal.getsignal(signal.SIGINT)
    owner = _owner(handler)
    asks = owner is not None and not owner._is_over
    if asks or is_first or handler is signal.default_int_handler:
        xla_library().jaxenvs_watch_interrupts(int(asks))
