"""Hyper-parameters and losses, one algorithm a file."""

from jaxenvs.training.algorithms.ppo import PPO as PPO
from jaxenvs.training.algorithms.ppo import ppo_loss as ppo_loss
