"""Tasks of Gymnasium-Robotics, with goals in the form of its `GoalEnv`."""

from jaxenvs.envs.robotics.ant_maze import AntMaze as AntMaze
from jaxenvs.envs.robotics.ant_maze import AntMazeState as AntMazeState
from jaxenvs.envs.robotics.fetch import FetchPickAndPlace as FetchPickAndPlace
from jaxenvs.envs.robotics.fetch import FetchPush as FetchPush
from jaxenvs.envs.robotics.fetch import FetchReach as FetchReach
from jaxenvs.envs.robotics.fetch import FetchSlide as FetchSlide
from jaxenvs.envs.robotics.fetch import FetchState as FetchState
from jaxenvs.envs.robotics.point_maze import PointMaze as PointMaze
from jaxenvs.envs.robotics.point_maze import PointMazeState as PointMazeState
