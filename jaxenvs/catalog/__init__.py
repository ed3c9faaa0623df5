"""The ids of jaxenvs, in one table of strings per family. Importing this module registers them."""

from jaxenvs.catalog import atari as atari
from jaxenvs.catalog import babyai as babyai
from jaxenvs.catalog import box2d as box2d
from jaxenvs.catalog import bsuite as bsuite
from jaxenvs.catalog import classic_control as classic_control
from jaxenvs.catalog import dm_control as dm_control
from jaxenvs.catalog import goals as goals
from jaxenvs.catalog import gymnasium_registration as gymnasium_registration
from jaxenvs.catalog import minatar as minatar
from jaxenvs.catalog import minigrid as minigrid
from jaxenvs.catalog import misc as misc
from jaxenvs.catalog import mujoco as mujoco
from jaxenvs.catalog import robotics as robotics
from jaxenvs.catalog import toy_text as toy_text

gymnasium_registration.register_all()
