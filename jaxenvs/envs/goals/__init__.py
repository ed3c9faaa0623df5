"""Tasks that are told their goal, and whose rewards can be computed for any other one."""

from jaxenvs.envs.goals.bit_flipping import BitFlipping as BitFlipping
from jaxenvs.envs.goals.bit_flipping import BitFlippingState as BitFlippingState
