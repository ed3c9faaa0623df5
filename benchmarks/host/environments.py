"""Environments of known cost, in a module that does not import JAX."""

import asyncio
import itertools
import time
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces


class NoOp(gymnasium.Env):
    """An environment that always returns the same observation, float32[size]."""

    action_space = spaces.Discrete(2)

    def __init__(self, size: int = 1) -> None:
        self.observation_space = spaces.Box(-1, 1, (size,), np.float32)
        self._observation = np.zeros(size, np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observation, {}

    def step(self, action: Any) -> Any:
        return self._observation, 0.0, False, False, {}


class Busy(NoOp):
    """An environment whose step runs a Python loop with a fixed number of iterations."""

    def __init__(self, iterations: int) -> None:
        super().__init__(4)
        self._iterations = iterations

    def step(self, action: Any) -> Any:
        loop(self._iterations)
        return self._observation, 0.0, False, False, {}


class Sleeping(NoOp):
    """An environment whose step sleeps: step i for times[i] seconds, starting over at the end.

    It records how long each step really took.
    """

    def __init__(self, times: Sequence[float]) -> None:
        super().__init__(4)
        self._times = itertools.cycle(times)
        self._durations: list[float] = []

    def step(self, action: Any) -> Any:
        begin = time.perf_counter()
        time.sleep(next(self._times))
        result = self._observation, 0.0, False, False, {}
        self._durations.append(time.perf_counter() - begin)
        return result

    def pop_durations(self) -> list[float]:
        """Returns the durations of the steps since the last call."""
        durations, self._durations = self._durations, []
        return durations


class AsyncSleeping(NoOp):
    """An environment whose step is a coroutine that sleeps."""

    def __init__(self, seconds: float) -> None:
        super().__init__(4)
        self._seconds = seconds

    async def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observation, {}

    async def step(self, action: Any) -> Any:
        await asyncio.sleep(self._seconds)
        return self._observation, 0.0, False, False, {}


def loop(iterations: int) -> None:
    """Keeps the interpreter busy for a number of iterations."""
    for _ in range(iterations):
        pass


def iterations(seconds: float) -> int:
    """Returns the number of iterations of `loop` that take `seconds` on this machine when idle."""
    count = 20_000
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter()
        loop(count)
        best = min(best, time.perf_counter() - begin)
    return max(1, round(seconds / best * count))


def cartpole() -> gymnasium.Env:
    """Returns Gymnasium's CartPole-v1, with its time limit."""
    return gymnasium.make("CartPole-v1", disable_env_checker=True)


def pong() -> gymnasium.Env:
    """Returns Pong with four gray frames, uint8[4, 84, 84], each the maximum of two out of four."""
    import ale_py

    gymnasium.register_envs(ale_py)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    env = gymnasium.make("ALE/Pong-v5", frameskip=1, disable_env_checker=True)
    env = gymnasium.wrappers.AtariPreprocessing(env, frame_skip=4)
    return gymnasium.wrappers.FrameStackObservation(env, 4)


def actions(num_envs: int, high: int = 2, dtype: Any = np.int64) -> list[np.ndarray]:
    """Returns random actions in [0, high) for `num_envs`, the same for every contestant."""
    generator = np.random.default_rng(0)
    shape = max(2, min(1024, 2**18 // num_envs)), num_envs
    return list(generator.integers(0, high, shape).astype(dtype))
