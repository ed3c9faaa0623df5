"""Games of the Atari 2600, from the user's ROMs."""

from jaxenvs.envs.atari.atari import Atari as Atari
from jaxenvs.envs.atari.atari import AtariState as AtariState
from jaxenvs.envs.atari.machine import Console as Console
