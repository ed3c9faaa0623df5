"""A wrapper that delays observations."""

from typing import Any

import jax

from jaxenvs import struct
from jaxenvs.core import TimeStep
from jaxenvs.wrappers._checks import check_count
from jaxenvs.wrappers._observation import zero_member
from jaxenvs.wrappers.frame_stack import append, repeat
from jaxenvs.wrappers.transform import Transform


class DelayObservation(Transform):
    """Delays observations by `delay` steps. Rewards and flags are not delayed.

    For the first `delay` steps of an episode, the observation is the member of the space nearest
    to zero. Observations that have not arrived when an episode ends are dropped.

    Raises:
        WrapperError: `delay` is negative or not an integer.

    Source: Gymnasium's DelayObservation.
    """

    delay: int = struct.static()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "delay", 0)

    def on_reset(self, timestep: TimeStep) -> tuple[Any, TimeStep]:
        return self.on_step(repeat(zero_member(self.env.observation_space), self.delay), timestep)

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        queue = append(memory, timestep.observation)
        oldest, rest = (
            jax.tree.map(lambda leaf, at=at: leaf[at], queue) for at in (0, slice(1, None))
        )
        return rest, timestep.replace(observation=oldest)
