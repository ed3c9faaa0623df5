"""CartPole-v1 in C as a speed limit: compiles `cartpole_limit.c` and calls it with ctypes."""

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
    """Returns the C compiler: $CC, or the first of cc, gcc, and clang, or None."""
    candidates = (os.environ.get("CC"), "cc", "gcc", "clang")
    return next((found for name in candidates if name and (found := shutil.which(name))), None)


@functools.cache
def load(vectorize: bool = True) -> ctypes.CDLL:
    """Compiles the loop for this machine, in a temporary folder.

    Args:
        vectorize: whether the compiler may use vector instructions. Without them the loop runs
            one lane at a time, like an engine that steps environments one by one.

    Raises:
        FileNotFoundError: There is no C compiler.
        subprocess.CalledProcessError: The compiler failed; its message is on standard error.
    """
    command = compiler()
    if command is None:
        raise FileNotFoundError("no C compiler found: set CC, or install cc, gcc, or clang.")
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
    """Returns the state, float32[4], that follows `state` (x, x_dot, theta, theta_dot)."""
    successor = np.array(state, np.float32)
    load().cartpole_step(successor.ctypes.data, action)
    return successor


class CartPoleLanes:
    """A batch of CartPoles that is stepped in place, each with its own generator."""

    def __init__(self, num_envs: int, *, seed: int = 0, vectorize: bool = True) -> None:
        self.num_envs = num_envs
        rng = np.random.default_rng(seed)
        self.state = rng.uniform(-0.05, 0.05, (4, num_envs)).astype(np.float32)
        self.elapsed = np.zeros(num_envs, np.int32)
        self.bits = rng.integers(1, 2**32, num_envs, np.uint32)  # 0 would stay 0
        self._rollout = load(vectorize).cartpole_rollout

    def rollout(self, num_steps: int, num_threads: int = 1) -> int:
        """Takes `num_steps` random steps in every lane; returns the number of finished episodes."""
        arrays = (*self.state, self.elapsed, self.bits)
        pointers = [array.ctypes.data for array in arrays]
        finished = self._rollout(*pointers, self.num_envs, num_steps, num_threads)
        if finished < 0:
            raise RuntimeError(f"could not start {num_threads} threads: use 1 to 64.")
        return finished
