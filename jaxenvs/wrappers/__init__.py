"""Environments around environments."""

from jaxenvs.wrappers.time_limit import TimeLimit as TimeLimit
from jaxenvs.wrappers.transform import Transform as Transform
