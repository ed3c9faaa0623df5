"""`Pool`, what a user holds: the checks of its arguments, its batches, and their infos."""

from jaxenvs.bridge.pool.pool import Pool as Pool
