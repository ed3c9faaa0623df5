"""Ctrl-C for programs that step pools.

Python does not run while it waits for a program, so native/xla.cc watches SIGINT itself and ends
the program. A handler that treats the first Ctrl-C as a request to stop later says so by an
attribute `takes_first_interrupt` of the object whose method it is; programs then ignore that one.
"""

import signal

from jaxenvs.bridge._native import xla_library

_is_watching = False


def watch() -> None:
    """Makes programs end on Ctrl-C. Called for every new pool."""
    global _is_watching
    renew(is_first=not _is_watching)
    _is_watching = True


def renew(*, is_first: bool = False) -> None:
    """Watches again after `signal.signal`, which ends it; handlers of others are left alone."""
    if not (_is_watching or is_first):
        return  # no pool, so there is nothing to end and perhaps no library to load
    handler = signal.getsignal(signal.SIGINT)
    owner = getattr(handler, "__self__", None)
    spares_first = bool(getattr(owner, "takes_first_interrupt", False))
    if spares_first or is_first or handler is signal.default_int_handler:
        xla_library().jaxenvs_watch_interrupts(int(spares_first))
