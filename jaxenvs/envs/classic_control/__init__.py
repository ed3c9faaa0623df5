"""Gymnasium's classic control tasks."""

from jaxenvs.envs.classic_control._mountain import MountainCarState as MountainCarState
from jaxenvs.envs.classic_control.acrobot import Acrobot as Acrobot
from jaxenvs.envs.classic_control.acrobot import AcrobotState as AcrobotState
from jaxenvs.envs.classic_control.cartpole import CartPole as CartPole
from jaxenvs.envs.classic_control.cartpole import CartPoleState as CartPoleState
from jaxenvs.envs.classic_control.mountain_car import MountainCar as MountainCar
from jaxenvs.envs.classic_control.mountain_car_continuous import (
    MountainCarContinuous as MountainCarContinuous,
)
from jaxenvs.envs.classic_control.pendulum import Pendulum as Pendulum
from jaxenvs.envs.classic_control.pendulum import PendulumState as PendulumState
