"""Bit flipping of Stable-Baselines3.

Its goal is always all ones. It is set to random bits at each start, as in the paper that both
follow: M. Andrychowicz et al., Hindsight Experience Replay, 2017, section 3.1.
"""

from collections.abc import Iterator
from types import FunctionType
from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from stable_baselines3.common.envs import BitFlippingEnv

from benchmarks.oracles import Oracle
from jaxenvs.core import Environment
from jaxenvs.envs.goals import BitFlippingState


class BitFlippingOracle(Oracle):
    """Stable-Baselines3's BitFlippingEnv with random goals."""

    package = "stable_baselines3"
    note = "with random goals, as in the paper"
    variants: ClassVar = ({"num_bits": 3},)
    unreachable: ClassVar = (  # options that ours does not have
        "self.state[action > 0]",
        "state = state.astype(np.int32)",
        "sum(state[i] * 2**i",
        "size = np.prod",
        "image = np.concatenate",
        "return image.reshape",
        "bit_vector = np.array(state).reshape(batch_size, -1)",
        "# type: ignore[assignment]",
        "batch_size = 1",
        "& (1 << np.arange",
        "if len(achieved_goal.shape) > 3",
    )

    def __init__(self, env: Environment, seed: int) -> None:
        super().__init__(env, seed)
        self.reference = BitFlippingEnv(n_bits=env.parameters["num_bits"])
        self.reference.seed(seed + 1)  # apart from that of actions and goals

    @property
    def step_functions(self) -> tuple[FunctionType, ...]:
        kind: Any = BitFlippingEnv
        conversions = kind.convert_if_needed, kind.convert_to_bit_vector
        return (kind.step, kind._get_obs, kind.compute_reward, *conversions)

    def reset(self) -> Any:
        goal = self.random.integers(2, size=self.reference.desired_goal.shape, dtype=np.int8)
        self.reference.desired_goal = goal
        return self._with_dtypes(self.reference.reset()[0])

    def step(self, action: int | np.ndarray) -> tuple[Any, float, bool]:
        observation, reward, terminated, _, _ = self.reference.step(action)
        return self._with_dtypes(observation), float(reward), bool(terminated)

    def get_state(self) -> BitFlippingState:
        bits, goal = np.int8(self.reference.state), np.int8(self.reference.desired_goal)
        return BitFlippingState(bits=bits.copy(), goal=goal.copy())

    def set_state(self, state: BitFlippingState) -> None:
        self.reference.state = np.array(state.bits)
        self.reference.desired_goal = np.array(state.goal)

    def parts(self, ours: Any, theirs: Any) -> list[tuple[Any, Any]]:
        """Returns each bit, and how many bits are right, because few whole rows occur twice."""
        pairs = [
            (getattr(ours, name)[:, i], getattr(theirs, name)[:, i])
            for name in ("bits", "goal")
            for i in range(ours.bits.shape[1])
        ]
        right = [(state.bits == state.goal).sum(axis=1) for state in (ours, theirs)]
        return [*pairs, (right[0], right[1])]

    def unusual_states(self) -> Iterator[BitFlippingState]:
        """Yields states that are at the goal, or one or two bits from it."""
        length = self.env.parameters["num_bits"]
        for i in range(90):
            goal = self.random.integers(2, size=length, dtype=np.int8)
            wrong = self.random.permutation(length) < i % 3
            yield BitFlippingState(bits=goal ^ wrong.astype(np.int8), goal=goal)

    @staticmethod
    def policy(env, state, key):
        """Flips the first wrong bit."""
        return jnp.argmax(state.bits != state.goal).astype(jnp.int32)

    def _with_dtypes(self, observation: Any) -> dict[str, np.ndarray]:
        return {name: np.int8(bits) for name, bits in observation.items()}
