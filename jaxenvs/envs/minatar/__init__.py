"""The games of MinAtar."""

from jaxenvs.envs.minatar.asterix import Asterix as Asterix
from jaxenvs.envs.minatar.asterix import AsterixState as AsterixState
from jaxenvs.envs.minatar.breakout import Breakout as Breakout
from jaxenvs.envs.minatar.breakout import BreakoutState as BreakoutState
from jaxenvs.envs.minatar.space_invaders import SpaceInvaders as SpaceInvaders
from jaxenvs.envs.minatar.space_invaders import SpaceInvadersState as SpaceInvadersState
from jaxenvs.envs.minatar.seaquest import Enemies as Enemies
from jaxenvs.envs.minatar.seaquest import Seaquest as Seaquest
from jaxenvs.envs.minatar.seaquest import SeaquestDraws as SeaquestDraws
from jaxenvs.envs.minatar.seaquest import SeaquestState as SeaquestState
