"""`make_pool`: the checks of its arguments, and the choice of a backend."""

from jaxenvs.bridge.making.pools import make_pool as make_pool
