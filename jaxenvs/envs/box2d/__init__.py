"""Gymnasium's Box2D tasks."""

from jaxenvs.envs.box2d.bipedal_walker import BipedalWalker, BipedalWalkerState
from jaxenvs.envs.box2d.lunar_lander import LunarLander, LunarLanderState

__all__ = ["BipedalWalker", "BipedalWalkerState", "LunarLander", "LunarLanderState"]
