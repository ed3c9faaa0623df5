"""Wrappers that map rewards. The reward of 0 from `reset` does not change."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.core import TimeStep
from jaxenvs.errors import WrapperError, describe
from jaxenvs.wrappers._checks import check_function
from jaxenvs.wrappers.transform import Transform


class TransformReward(Transform):
    """Applies a scalar function to every reward.

    `func` is static: a different function triggers recompilation, and so does the same lambda if
    it is created again.

    Raises:
        WrapperError: `func` is not callable, or does not return a scalar.
    """

    func: Callable[[jax.Array], chex.Numeric] = struct.static()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_function(self)

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        reward = jnp.asarray(self.func(timestep.reward), timestep.reward.dtype)
        if reward.shape != timestep.reward.shape:
            raise WrapperError(
                f"TransformReward got a func that returned {describe(reward)}; it must return a"
                " scalar."
            )
        return memory, timestep.replace(reward=reward)


class ScaleReward(Transform):
    """Multiplies every reward by `scale`, which is a leaf."""

    scale: float

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        scale = jnp.asarray(self.scale, timestep.reward.dtype)
        return memory, timestep.replace(reward=timestep.reward * scale)


class AddRewardNoise(Transform):
    """Adds normal noise with the standard deviation `noise_scale`, a leaf, to every reward."""

    noise_scale: float

    def on_reset(self, timestep: TimeStep) -> tuple[jax.Array, TimeStep]:
        return jnp.float32(0), timestep

    def on_action(self, memory: jax.Array, action: Any, key: chex.PRNGKey) -> tuple[jax.Array, Any]:
        return jax.random.normal(key, (), jnp.float32), action

    def on_step(self, memory: jax.Array, timestep: TimeStep) -> tuple[jax.Array, TimeStep]:
        noise = jnp.asarray(self.noise_scale, jnp.float32) * memory
        reward = timestep.reward + noise.astype(timestep.reward.dtype)
        return memory, timestep.replace(reward=reward)


class ClipReward(Transform):
    """Clips every reward to [min_reward, max_reward].

    Both bounds are leaves. None means no bound on that side.

    Raises:
        WrapperError: `min_reward` is above `max_reward`, or neither is given.
    """

    min_reward: float | None = None
    max_reward: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        low: Any = self.min_reward
        high: Any = self.max_reward
        if low is None and high is None:
            raise WrapperError("ClipReward got no bounds.  Pass min_reward, max_reward or both.")
        if (
            low is not None
            and high is not None
            and not struct.is_traced(low, high)
            and not np.all(low <= high)
        ):
            raise WrapperError(
                f"ClipReward got min_reward={self.min_reward} and max_reward={self.max_reward};"
                " min_reward must be at most max_reward.  Are they swapped?"
            )

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        low, high = (
            None if bound is None else jnp.asarray(bound, timestep.reward.dtype)
            for bound in (self.min_reward, self.max_reward)
        )
        return memory, timestep.replace(reward=jnp.clip(timestep.reward, low, high))
