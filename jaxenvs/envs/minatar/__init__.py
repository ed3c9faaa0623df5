"""The games of MinAtar."""

from jaxenvs.envs.minatar.asterix import Asterix as Asterix
from jaxenvs.envs.minatar.asterix import AsterixDraws as AsterixDraws
from jaxenvs.envs.minatar.asterix import AsterixState as AsterixState
from jaxenvs.envs.minatar.breakout import Breakout as Breakout
from jaxenvs.envs.minatar.breakout import BreakoutState as BreakoutState
from jaxenvs.envs.minatar.freeway import Freeway as Freeway
from jaxenvs.envs.minatar.freeway import FreewayDraws as FreewayDraws
from jaxenvs.envs.minatar.freeway import FreewayState as FreewayState
from jaxenvs.envs.minatar.seaquest import Seaquest as Seaquest
from jaxenvs.envs.minatar.seaquest import SeaquestDraws as SeaquestDraws
from jaxenvs.envs.minatar.seaquest import SeaquestState as SeaquestState
from jaxenvs.envs.minatar.space_invaders import SpaceInvaders as SpaceInvaders
from jaxenvs.envs.minatar.space_invaders import SpaceInvadersState as SpaceInvadersState
