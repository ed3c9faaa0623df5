"""The speed limit of CartPole-v1: `cartpole_limit.c`, compiled on the spot and called by ctypes."""

import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SOURCE = Path(__file__).with_name("cartpole_limit.c")
FLAGS = ("-O3", "-march=native", "-ffast-math", "-shared", "-fPIC", "-pthread")
SCALAR_FLAGS = ("-fno-tree-vectorize",)


def compiler() -> str | None:
    """The C compiler: $CC, else the first of cc, gcc and clang; None if there is none."""
    candidates = (os.environ.get("CC"), "cc", "gcc", "clang")
    return next((found for name in candidates if name and (found := shutil.which(name))), None)


@functools.cache
def load(vectorize: bool = True) -> ctypes.CDLL:
    """Compiles the loop for this very machine, in a temporary folder.

    Args:
        vectorize: whether the compiler may use vector instructions. Without them the loop runs
            one lane at a time, as an engine that steps environments one by one does.

    Raises:
        FileNotFoundError: there is no C compiler.
        subprocess.CalledProcessError: the compiler failed; its message went to standard error.
    """
    command = compiler()
    if command is None:
        raise FileNotFoundError("no C compiler: set CC or install one of cc, gcc and clang.")
    flags = FLAGS if vectorize else FLAGS + SCALAR_FLAGS
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cartpole_limit.so"
        subprocess.run([command, *flags, str(SOURCE), "-o", str(path)], check=True)
        library = ctypes.CDLL(str(path))
    library.cartpole_rollout.restype = ctypes.c_int64
    library.cartpole_rollout.argtypes = [
        *[ctypes.c_void_p] * 6,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int32,
    ]
    library.cartpole_step.restype = None
    library.cartpole_step.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    return library


def step(state: np.ndarray, action: int) -> np.ndarray:
    """The successor, float32[4], of `state` (x, x_dot, theta, theta_dot) under one action."""
    successor = np.array(state, np.float32)
    load().cartpole_step(successor.ctypes.data, action)
    return successor


class CartPoleLanes:
    """`num_envs` CartPoles in place, each with its own generator."""

    def __init__(self, num_envs: int, *, seed: int = 0, vectorize: bool = True) -> None:
        self.num_envs = num_envs
        rng = np.random.default_rng(seed)
        self.state = rng.uniform(-0.05, 0.05, (4, num_envs)).astype(np.float32)
        self.elapsed = np.zeros(num_envs, np.int32)
        self.bits = rng.integers(1, 2**32, num_envs, np.uint32)  # 0 would stay 0
        self._rollout = load(vectorize).cartpole_rollout

    def rollout(self, num_steps: int, num_threads: int = 1) -> int:
        """Takes `num_steps` random steps in every lane; returns how many episodes ended."""
        arrays = (*self.state, self.elapsed, self.bits)
        pointers = [array.ctypes.data for array in arrays]
        finished = self._rollout(*pointers, self.num_envs, num_steps, num_threads)
        if finished < 0:
            raise RuntimeError(f"{num_threads} threads could not be started (64 at most).")
        return finished
