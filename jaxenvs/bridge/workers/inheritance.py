"""What a process that a pool starts does not share with others: its random numbers."""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np


def renew_generators() -> None:
    """Gives this process its own state of every global generator of random numbers.

    A fork has the state of the process that it comes from, and C and PyTorch begin with the same
    state in every process. Python itself renews `random` after a fork.
    """
    np.random.seed()  # noqa: NPY002 (the global one)
    if os.name == "posix":
        libc, seed = ctypes.CDLL(None), int.from_bytes(os.urandom(4))
        libc.srand(seed)
        libc.srand48(seed)
    after_import("torch", lambda torch: torch.seed())


def after_import(name: str, then: Callable[[Any], None]) -> None:
    """Calls `then` with a module, now if this process has it, or as soon as it is imported."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Watch(name, then))  # pyright: ignore[reportArgumentType]


class _Watch:
    """A finder that leaves a module to the other finders, but learns when it is imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType]
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            spec.loader.exec_module = exec_module
        return spec
