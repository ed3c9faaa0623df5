"""Environments with the interfaces of other libraries."""

from jaxenvs.faces.gym import make_gym as make_gym
from jaxenvs.faces.gym_env import GymEnv as GymEnv
from jaxenvs.faces.gym_vector_env import GymVectorEnv as GymVectorEnv
