"""Goal-conditioned tasks, whose rewards can be recomputed for other goals."""

from jaxenvs.envs.goals.bit_flipping import BitFlipping as BitFlipping
from jaxenvs.envs.goals.bit_flipping import BitFlippingState as BitFlippingState
