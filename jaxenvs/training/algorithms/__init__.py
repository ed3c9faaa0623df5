"""Algorithms: hyperparameters and losses, with one file per algorithm."""

from jaxenvs.training.algorithms.a2c import A2C as A2C
from jaxenvs.training.algorithms.algorithm import Algorithm as Algorithm
from jaxenvs.training.algorithms.dqn import DQN as DQN
from jaxenvs.training.algorithms.ppo import PPO as PPO
from jaxenvs.training.algorithms.pqn import PQN as PQN
from jaxenvs.training.algorithms.sac import SAC as SAC
from jaxenvs.training.algorithms.td3 import TD3 as TD3
from jaxenvs.training.algorithms.vpg import VPG as VPG
