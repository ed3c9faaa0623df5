"""The DeepMind Control Suite."""

from jaxenvs.envs.dm_control.acrobot import Acrobot as Acrobot
from jaxenvs.envs.dm_control.ball_in_cup import BallInCup as BallInCup
from jaxenvs.envs.dm_control.base import ControlState as ControlState
from jaxenvs.envs.dm_control.cartpole import Cartpole as Cartpole
from jaxenvs.envs.dm_control.cheetah import Cheetah as Cheetah
from jaxenvs.envs.dm_control.dog import Dog as Dog
from jaxenvs.envs.dm_control.finger import Finger as Finger
from jaxenvs.envs.dm_control.fish import Fish as Fish
from jaxenvs.envs.dm_control.hopper import Hopper as Hopper
from jaxenvs.envs.dm_control.humanoid import Humanoid as Humanoid
from jaxenvs.envs.dm_control.humanoid_cmu import HumanoidCMU as HumanoidCMU
from jaxenvs.envs.dm_control.lqr import LQR as LQR
from jaxenvs.envs.dm_control.manipulator import Manipulator as Manipulator
from jaxenvs.envs.dm_control.pendulum import Pendulum as Pendulum
from jaxenvs.envs.dm_control.point_mass import PointMass as PointMass
from jaxenvs.envs.dm_control.quadruped import Quadruped as Quadruped
from jaxenvs.envs.dm_control.quadruped import QuadrupedEscape as QuadrupedEscape
from jaxenvs.envs.dm_control.reacher import Reacher as Reacher
from jaxenvs.envs.dm_control.stacker import Stacker as Stacker
from jaxenvs.envs.dm_control.swimmer import Swimmer as Swimmer
from jaxenvs.envs.dm_control.walker import Walker as Walker
