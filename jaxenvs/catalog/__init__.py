"""The ids that come with jaxenvs: a table of strings a family. Importing it fills the registry."""

from jaxenvs.catalog import bsuite as bsuite
from jaxenvs.catalog import classic_control as classic_control
from jaxenvs.catalog import goals as goals
from jaxenvs.catalog import gymnasium_plugin as gymnasium_plugin

gymnasium_plugin.install()
