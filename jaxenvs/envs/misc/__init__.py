"""The other tasks of gymnax: mazes, bandits, points and arms that move, and a small Pong."""

from jaxenvs.envs.misc.bernoulli_bandit import BernoulliBandit as BernoulliBandit
from jaxenvs.envs.misc.bernoulli_bandit import BernoulliBanditState as BernoulliBanditState
from jaxenvs.envs.misc.four_rooms import FourRooms as FourRooms
from jaxenvs.envs.misc.four_rooms import FourRoomsState as FourRoomsState
from jaxenvs.envs.misc.gaussian_bandit import GaussianBandit as GaussianBandit
from jaxenvs.envs.misc.gaussian_bandit import GaussianBanditState as GaussianBanditState
from jaxenvs.envs.misc.meta_maze import MetaMaze as MetaMaze
from jaxenvs.envs.misc.meta_maze import MetaMazeState as MetaMazeState
from jaxenvs.envs.misc.point_robot import PointRobot as PointRobot
from jaxenvs.envs.misc.point_robot import PointRobotState as PointRobotState
from jaxenvs.envs.misc.pong import Pong as Pong
from jaxenvs.envs.misc.pong import PongState as PongState
from jaxenvs.envs.misc.reacher import Reacher as Reacher
from jaxenvs.envs.misc.reacher import ReacherState as ReacherState
from jaxenvs.envs.misc.swimmer import Swimmer as Swimmer
from jaxenvs.envs.misc.swimmer import SwimmerState as SwimmerState
