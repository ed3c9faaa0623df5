"""Noticing that this process was forked from one that had used JAX, in which JAX would hang."""

import os
import sys
import weakref
from typing import Any

from jaxenvs.errors import ForkError

# Objects whose method `after_fork` is called in such a process.
users: weakref.WeakSet[Any] = weakref.WeakSet()
_is_forked = False


def check_not_forked() -> None:
    """Raises ForkError where JAX would wait for ever for threads that the fork left behind."""
    if _is_forked:
        raise ForkError(
            "jaxenvs was called in a process forked from one that had used JAX, which does not work"
            ' there.  Start processes with the context "forkserver" or "spawn":'
            ' gymnasium.vector.AsyncVectorEnv(..., context="forkserver").'
        )


def _after_fork() -> None:
    global _is_forked
    # Nothing public says whether JAX has been used without using it.
    xla_bridge: Any = sys.modules.get("jax._src.xla_bridge")
    _is_forked = _is_forked or bool(users or getattr(xla_bridge, "_backends", None))
    for user in users:
        user.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
