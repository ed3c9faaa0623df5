"""Gymnasium's MuJoCo tasks, version 5."""

from jaxenvs.envs.mujoco.ant import Ant as Ant
from jaxenvs.envs.mujoco.base import MujocoState as MujocoState
from jaxenvs.envs.mujoco.half_cheetah import HalfCheetah as HalfCheetah
from jaxenvs.envs.mujoco.hopper import Hopper as Hopper
from jaxenvs.envs.mujoco.humanoid import Humanoid as Humanoid
from jaxenvs.envs.mujoco.humanoid_standup import HumanoidStandup as HumanoidStandup
from jaxenvs.envs.mujoco.inverted_double_pendulum import (
    InvertedDoublePendulum as InvertedDoublePendulum,
)
from jaxenvs.envs.mujoco.inverted_pendulum import InvertedPendulum as InvertedPendulum
from jaxenvs.envs.mujoco.pusher import Pusher as Pusher
from jaxenvs.envs.mujoco.reacher import Reacher as Reacher
from jaxenvs.envs.mujoco.swimmer import Swimmer as Swimmer
from jaxenvs.envs.mujoco.walker2d import Walker2d as Walker2d
from jaxenvs.physics.renderer import Renderer as Renderer
