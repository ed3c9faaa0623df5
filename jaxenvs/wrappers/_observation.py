"""A base class and a helper for observation wrappers."""

from typing import Any

import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.core import TimeStep
from jaxenvs.wrappers.transform import Transform


class ObservationTransform(Transform):
    """A transform that maps each observation on its own, without memory.

    A subclass defines `map_observation` and `observation_space`. Its `observation_space` raises
    `WrapperError` if the wrapper does not support the wrapped environment.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_space("observation_space")

    def map_observation(self, observation: Any) -> Any:
        """Returns the mapped observation of one instance."""
        raise NotImplementedError

    def on_reset(self, timestep: TimeStep) -> tuple[None, TimeStep]:
        return self.on_step(None, timestep)

    def on_step(self, memory: None, timestep: TimeStep) -> tuple[None, TimeStep]:
        observation = self.map_observation(timestep.observation)
        return memory, timestep.replace(observation=observation)


def zero_member(space: spaces.Space) -> Any:
    """Returns the member of `space` that Gymnasium's wrappers use as padding.

    It is the member nearest to zero, except that a discrete element is its `start`.
    """
    match space:
        case spaces.Dict():
            return {key: zero_member(part) for key, part in space.spaces.items()}
        case spaces.Tuple():
            return tuple(zero_member(part) for part in space.spaces)
        case spaces.Box():
            zeros = jnp.zeros(space.shape, space.dtype)
            nearest = jnp.where(space.high < zeros, space.high, zeros)
            return jnp.where(space.low > zeros, space.low, nearest)
        case spaces.Discrete() | spaces.MultiDiscrete():
            return jnp.broadcast_to(jnp.asarray(space.start, jnp.int32), space.shape)
    return jnp.zeros(space.shape or (), space.dtype)
