"""Gymnasium's Box2D tasks."""

from jaxenvs.envs.box2d.bipedal_walker import BipedalWalker as BipedalWalker
from jaxenvs.envs.box2d.bipedal_walker import BipedalWalkerState as BipedalWalkerState
from jaxenvs.envs.box2d.lunar_lander import LunarLander as LunarLander
from jaxenvs.envs.box2d.lunar_lander import LunarLanderState as LunarLanderState
