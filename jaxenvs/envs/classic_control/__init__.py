"""The classic control tasks of Gymnasium."""

from jaxenvs.envs.classic_control.cartpole import CartPole as CartPole
from jaxenvs.envs.classic_control.cartpole import CartPoleState as CartPoleState
from jaxenvs.envs.classic_control.mountain_car import MountainCar as MountainCar
from jaxenvs.envs.classic_control.mountain_car import MountainCarState as MountainCarState
