"""A wrapper that stacks the most recent observations."""

from typing import Any, Literal

import jax
import jax.numpy as jnp

from jaxenvs import spaces, struct
from jaxenvs.core import TimeStep
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers._checks import check_count
from jaxenvs.wrappers._observation import zero_member
from jaxenvs.wrappers.transform import Transform


class FrameStackObservation(Transform):
    """Stacks the last `stack_size` observations along a new first axis, newest last.

    `padding_type` determines the padding at the start of an episode: "reset" repeats the first
    observation, "zero" uses the member of the space nearest to zero. A stack never contains
    observations of the previous episode. For dicts and tuples, each part is stacked.

    Raises:
        WrapperError: `stack_size` is less than 1, or `padding_type` is unknown.

    Source: Gymnasium's FrameStackObservation.
    """

    stack_size: int = struct.static()
    padding_type: Literal["reset", "zero"] = struct.static("reset", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self, "stack_size")
        if self.padding_type not in ("reset", "zero"):
            raise WrapperError(
                f"FrameStackObservation got padding_type={self.padding_type!r}; it must be"
                ' "reset", which repeats the first observation, or "zero".'
            )
        self._check_space("observation_space")

    @property
    def observation_space(self) -> spaces.Space:
        return self.env.observation_space.batch(self.stack_size)

    def on_reset(self, timestep: TimeStep) -> tuple[Any, TimeStep]:
        padding = timestep.observation
        if self.padding_type == "zero":
            padding = zero_member(self.env.observation_space)
        return self.on_step(repeat(padding, self.stack_size - 1), timestep)

    def on_step(self, memory: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        stack = append(memory, timestep.observation)
        return jax.tree.map(lambda leaf: leaf[1:], stack), timestep.replace(observation=stack)


def repeat(observation: Any, times: int) -> Any:
    """Repeats `observation` along a new first axis of length `times`, which may be 0."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (times, *leaf.shape)), observation)


def append(earlier: Any, observation: Any) -> Any:
    """Appends `observation` to `earlier`, [T, ...]. Returns [T + 1, ...]."""
    return jax.tree.map(lambda old, new: jnp.concatenate([old, new[None]]), earlier, observation)
