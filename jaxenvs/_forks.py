"""Detection of forked processes, in which JAX would hang."""

import os
import sys
import weakref
from typing import Any

from jaxenvs.errors import ForkError

# Objects whose method `after_fork` is called in a forked process.
users: weakref.WeakSet[Any] = weakref.WeakSet()
_is_forked = False


def check_not_forked() -> None:
    """Raises ForkError if this process was forked after JAX was used, where JAX would hang."""
    if _is_forked:
        raise ForkError(
            "jaxenvs was called in a process that was forked after JAX was used, where JAX does not"
            ' work.  Start processes with the context "forkserver" or "spawn":'
            ' gymnasium.vector.AsyncVectorEnv(..., context="forkserver").'
        )


def _after_fork() -> None:
    global _is_forked
    # There is no public API to check whether JAX has been used without starting a backend.
    xla_bridge: Any = sys.modules.get("jax._src.xla_bridge")
    _is_forked = _is_forked or bool(users or getattr(xla_bridge, "_backends", None))
    for user in users:
        user.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
