"""Native environments behind the interfaces of other libraries."""

from jaxenvs.faces.gym import GymEnv as GymEnv
from jaxenvs.faces.gym import GymVectorEnv as GymVectorEnv
from jaxenvs.faces.gym import make_gym as make_gym
