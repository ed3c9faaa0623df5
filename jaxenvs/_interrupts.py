"""Hooks that run when the handler of Ctrl-C changes.

`signal.signal` replaces every handler of SIGINT, including those installed from C. A handler that
treats the first Ctrl-C as a request to stop later is a method of an object with the attribute
`takes_first_interrupt`; while it is true, compiled programs ignore the next Ctrl-C.
"""

from collections.abc import Callable

_hooks: list[Callable[[], None]] = []


def on_new_handler(hook: Callable[[], None]) -> None:
    """Calls `hook` after each `handler_changed`."""
    _hooks.append(hook)


def handler_changed() -> None:
    """Calls the hooks. Call this after `signal.signal(SIGINT, ...)`."""
    for hook in _hooks:
        hook()
