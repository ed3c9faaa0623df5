"""Environments around environments."""

from jaxenvs.wrappers.time_limit import TimeLimit as TimeLimit
