from jaxenvs.prng import *  # noqa
from jaxenvs.prng import _UNROLLED, _unrolled_pays, _BARRIER_HOLDS  # noqa
