"""A wrapper that flattens observations."""

from typing import Any

import jax

from jaxenvs import spaces
from jaxenvs.wrappers._observation import ObservationTransform


class FlattenObservation(ObservationTransform):
    """Flattens every observation to one vector.

    Arrays are raveled, integers of a `Discrete` or `MultiDiscrete` become one-hot vectors, and the
    parts of a dict are concatenated in the order of their keys. If all parts have the same dtype,
    the result has that dtype; otherwise it is float32, where Gymnasium may use float64.

    Source: Gymnasium's FlattenObservation.
    """

    @property
    def observation_space(self) -> spaces.Space:
        return self.env.observation_space.flatten_space()

    def map_observation(self, observation: Any) -> jax.Array:
        return self.env.observation_space.flatten(observation)
