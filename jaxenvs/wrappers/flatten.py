"""Observations as one vector."""

from typing import Any

import jax

from jaxenvs import spaces
from jaxenvs.wrappers._observation import ObservationMap


class FlattenObservation(ObservationMap):
    """Lays every observation out as one vector.

    Arrays are raveled, integers of a `Discrete` or `MultiDiscrete` become one-hot vectors, and
    parts of a dict follow each other in the order of their keys. The dtype is that of all parts,
    else float32: Gymnasium may take float64 there.

    Source: Gymnasium's FlattenObservation.
    """

    @property
    def observation_space(self) -> spaces.Space:
        return self.env.observation_space.flatten_space()

    def map_observation(self, observation: Any) -> jax.Array:
        return self.env.observation_space.flatten(observation)
