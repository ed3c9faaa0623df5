"""The environment of the soak, in a module that worker processes import fast."""

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 50  # steps of an episode


class Counted(gymnasium.Env):
    """Observes a number of its own, then its episode, its step, and the last action."""

    observation_space = spaces.Box(0, 2**31 - 1, (4,), np.int32)
    action_space = spaces.Discrete(1000)

    def __init__(self) -> None:
        self.life = int.from_bytes(os.urandom(4), "little") >> 1
        self.episode = self.count = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episode, self.count = self.episode + 1, 0
        return self._observed(0), {}

    def step(self, action: Any) -> Any:
        self.count += 1
        return self._observed(action), float(self.count), self.count >= LENGTH, False, {}

    def _observed(self, action: Any) -> np.ndarray:
        return np.array((self.life, self.episode, self.count, action), np.int32)
