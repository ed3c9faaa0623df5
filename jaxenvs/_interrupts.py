"""What has to happen after `signal.signal` has installed another handler of Ctrl-C.

`signal.signal` replaces every handler of SIGINT, also those that were installed in C.
"""

from collections.abc import Callable

_hooks: list[Callable[[], None]] = []


def on_new_handler(hook: Callable[[], None]) -> None:
    """Calls `hook` after each `handler_changed`."""
    _hooks.append(hook)


def handler_changed() -> None:
    """Tells all that need to know. Call it after `signal.signal(SIGINT, ...)`."""
    for hook in _hooks:
        hook()
