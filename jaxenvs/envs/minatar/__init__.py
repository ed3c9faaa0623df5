"""The games of MinAtar."""

from jaxenvs.envs.minatar.breakout import Breakout as Breakout
from jaxenvs.envs.minatar.breakout import BreakoutState as BreakoutState
from jaxenvs.envs.minatar.seaquest import Seaquest as Seaquest
from jaxenvs.envs.minatar.seaquest import SeaquestState as SeaquestState
