"""Ctrl-C during calls of native/xla.cc."""

import ctypes
import functools
import signal
import sys
import time

from jaxenvs import _interrupts
from jaxenvs.bridge.native.libraries import xla_library

# Calls of a program that follow each other so soon, in ns, count as one wait, because a program
# that learns between two calls does not notice Ctrl-C meanwhile. native/xla.cc has it, too.
TOGETHER = 2_000_000_000


def clock() -> int:
    """Returns the time of `interrupted_at`, in ns."""
    if sys.platform == "win32":  # where nothing notices Ctrl-C
        return 0
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def interrupted_at() -> int:
    """Returns when Ctrl-C was last pressed, in ns of `clock`."""
    return ctypes.c_int64.in_dll(xla_library(), "jaxenvs_interrupted_at").value


@functools.cache
def watch_interrupts() -> None:
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
