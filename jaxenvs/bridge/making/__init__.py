"""Pools: the checks of their arguments, and the choice of a backend; batches of `make_vec`."""

from jaxenvs.bridge.making.pools import make_pool as make_pool
