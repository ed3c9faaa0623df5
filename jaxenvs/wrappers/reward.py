"""Wrappers of rewards. The reward 0 that `reset` returns stays."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.core import TimeStep
from jaxenvs.errors import WrapperError, describe
from jaxenvs.wrappers.transform import Transform


class TransformReward(Transform):
    """Applies a function of one number to every reward.

    `func` is static: another function compiles again, and so does a lambda that is created again.

    Raises:
        WrapperError: `func` is not callable, or does not return one number.
    """

    func: Callable[[jax.Array], chex.Numeric] = struct.static()

    def __post_init__(self) -> None:
        super().__post_init__()
        if not callable(self.func):
            raise WrapperError(
                f"TransformReward got func={self.func!r}; it must be a function from a reward to"
                " another."
            )

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        reward = jnp.asarray(self.func(timestep.reward), timestep.reward.dtype)
        if reward.shape != timestep.reward.shape:
            raise WrapperError(
                f"TransformReward got a func that returned {describe(reward)}; it must return one"
                " number."
            )
        return memory, timestep.replace(reward=reward)


class ScaleReward(Transform):
    """Multiplies every reward by `scale`, a leaf."""

    scale: chex.Numeric

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        scale = jnp.asarray(self.scale, timestep.reward.dtype)
        return memory, timestep.replace(reward=timestep.reward * scale)


class ClipReward(Transform):
    """Clips every reward to [min_reward, max_reward]. Both are leaves; None means no bound.

    Raises:
        WrapperError: `min_reward` is above `max_reward`, or neither is given.
    """

    min_reward: chex.Numeric | None = None
    max_reward: chex.Numeric | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        low: Any = self.min_reward
        high: Any = self.max_reward
        if low is None and high is None:
            raise WrapperError("ClipReward got no bounds.  Pass min_reward, max_reward or both.")
        if None not in (low, high) and not struct.is_traced(low, high) and not np.all(low <= high):
            raise WrapperError(
                f"ClipReward got min_reward={self.min_reward} and max_reward={self.max_reward};"
                " the first must be at most the second.  Were the two swapped?"
            )

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        low, high = (
            None if bound is None else jnp.asarray(bound, timestep.reward.dtype)
            for bound in (self.min_reward, self.max_reward)
        )
        return memory, timestep.replace(reward=jnp.clip(timestep.reward, low, high))
