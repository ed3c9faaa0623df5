"""Handling of Ctrl-C and SIGTERM as requests to stop at the next opportunity."""

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from jaxenvs import _interrupts


class StopRequest:
    """A recorder of the first SIGINT or SIGTERM; a second signal has its previous effect.

    Python delivers signals to the main thread only, so an instance made in another thread never
    receives any.

    Args:
        on_signal: a function to call with the first signal.

    Attributes:
        received: the first signal, or None.
    """

    def __init__(self, on_signal: Callable[[signal.Signals], Any] | None = None) -> None:
        self.received: signal.Signals | None = None
        self._on_signal = on_signal
        self._is_over = False
        self._before: dict[int, Any] = {}
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.getsignal(number)
            signal.signal(number, self._handle)
        _interrupts.handler_changed()

    @property
    def takes_first_interrupt(self) -> bool:
        """Returns whether the next SIGINT is only recorded, see `jaxenvs._interrupts`."""
        return not self._is_over

    def cancel(self) -> None:
        """Restores the previous handlers.

        If another handler was installed later, or if called in another thread, this instance's
        handler stays installed and forwards signals.
        """
        if self._is_over:
            return
        self._is_over = True
        if threading.current_thread() is threading.main_thread():
            for number in self._before:
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, self._previous(number))
        _interrupts.handler_changed()

    def _handle(self, number: int, frame: Any) -> None:
        if not self._is_over:
            self.received = signal.Signals(number)
            self.cancel()
            if self._on_signal is not None:
                self._on_signal(self.received)
            return
        previous = self._previous(number)
        if callable(previous):
            previous(number, frame)
        elif previous == signal.SIG_DFL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _previous(self, number: int) -> Any:
        """Returns the previous handler, skipping those of canceled instances."""
        handler = self._before[number]
        while isinstance(owner := getattr(handler, "__self__", None), StopRequest):
            if not owner._is_over:
                break
            handler = owner._before[number]
        return signal.SIG_DFL if handler is None else handler  # None: not installed from Python
