"""A wrapper that makes actions stick."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.core import TimeStep
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers._checks import check_count
from jaxenvs.wrappers._observation import zero_member
from jaxenvs.wrappers.transform import Transform


@chex.dataclass(frozen=True)
class StickyActionMemory:
    """The last action of the current episode and its remaining repetitions."""

    action: chex.ArrayTree  # the last action that the wrapped environment received
    begun: jax.Array  # bool[], whether the episode already has a last action
    repeats: jax.Array  # int32[], how many more steps the action is certain to be repeated


class StickyAction(Transform):
    """At each step, repeats the last action instead of the agent's with some probability.

    The first action of an episode is always the agent's. When an action sticks, it is repeated for
    `repeat_action_duration` steps, or, if that is a pair (low, high), for a random number of steps
    from low to high, inclusive. After that it may stick again. The probability is a leaf.

    Raises:
        WrapperError: the probability is not between 0 and 1, or the duration is neither a positive
            integer nor such a pair.

    Source: M. C. Machado et al., Revisiting the Arcade Learning Environment, 2018, section 5.2.
    """

    repeat_action_probability: float
    repeat_action_duration: int | tuple[int, int] = struct.static(1)

    def __post_init__(self) -> None:
        super().__post_init__()
        probability = self.repeat_action_probability
        if not struct.is_traced(probability) and not np.all(
            (probability >= 0) & (probability <= 1)
        ):
            raise WrapperError(
                f"StickyAction got repeat_action_probability={self.repeat_action_probability};"
                " it must be from 0 to 1."
            )
        duration = self.repeat_action_duration
        if not isinstance(duration, tuple):
            check_count(self, "repeat_action_duration")
        elif list(map(type, duration)) != [int, int] or not 1 <= duration[0] <= duration[1]:
            raise WrapperError(
                f"StickyAction got repeat_action_duration={duration}; it must be"
                " a number of steps, or a pair of the fewest and the most, such as (2, 4)."
            )

    def on_reset(self, timestep: TimeStep) -> tuple[StickyActionMemory, TimeStep]:
        last = zero_member(self.action_space)
        return StickyActionMemory(
            action=last, begun=jnp.bool_(False), repeats=jnp.int32(0)
        ), timestep

    def on_action(
        self, memory: StickyActionMemory, action: Any, key: chex.PRNGKey
    ) -> tuple[StickyActionMemory, Any]:
        if isinstance(self.repeat_action_duration, tuple):
            key, duration_key = jax.random.split(key)
            low, high = self.repeat_action_duration
            duration = jax.random.randint(duration_key, (), low, high + 1, jnp.int32)
        else:
            duration = jnp.int32(self.repeat_action_duration)
        draw = jax.random.uniform(key, (), jnp.float32)
        gets_stuck = memory.begun & (draw < self.repeat_action_probability)
        repeats = jnp.where((memory.repeats == 0) & gets_stuck, duration, memory.repeats)
        action = jax.tree.map(
            lambda last, chosen: jnp.where(repeats > 0, last, chosen), memory.action, action
        )
        repeats = jnp.maximum(repeats - 1, 0)
        return StickyActionMemory(action=action, begun=jnp.bool_(True), repeats=repeats), action
