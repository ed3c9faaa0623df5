"""The games of MinAtar."""

from jaxenvs.envs.minatar.breakout import Breakout as Breakout
from jaxenvs.envs.minatar.breakout import BreakoutState as BreakoutState
