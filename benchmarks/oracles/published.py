"""Published rules, written again in Python, of tasks whose package no longer installs."""

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.oracles.toy_text import TabularOracle


class Chain:
    """NChain-v0 of OpenAI Gym up to 0.19, after M. Strens, 2000, section 6.1."""

    def __init__(self, n: int, slip: float, small: float, large: float) -> None:
        self.n, self.slip, self.small, self.large = n, slip, small, large
        self.s = 0
        self.np_random: Any = None  # which the oracle sets

    def reset(self) -> tuple[int, dict[str, Any]]:
        self.s = 0
        return self.s, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Moves forward or, with action 1, back to the start; a slip swaps both."""
        goes_back = action == 1
        if self.np_random.random() < self.slip:
            goes_back = not goes_back
        if goes_back:
            self.s = 0
            return self.s, self.small, False, False, {}
        if self.s == self.n - 1:
            return self.s, self.large, False, False, {}
        self.s += 1
        return self.s, 0.0, False, False, {}


class NChainOracle(TabularOracle):
    """OpenAI Gym's NChain, whose releases can no longer be installed."""

    package = ""
    note = (
        "a form in Python of the rules of OpenAI Gym 0.19, the last release with NChain-v0, which"
        " no longer installs (EnvPool's cannot be set to a state; tests compare its transitions)"
    )
    env_type: Any = Chain
    sizes = TabularOracle.sizes | {"episodes": 100, "longest": 200}
    variants = ({"n": 8, "slip": 0.4, "small": 1.0, "large": 20.0}, {"slip": 0.0})

    def get_table(self) -> None:
        """Returns None: the rules have no table."""

    @staticmethod
    def policy(env, state, key):
        """Moves forward, and back at times."""
        return (jax.random.bits(key, (), jnp.uint32) % 8 == 0).astype(jnp.int32)
