"""Spaces of observations and actions: sampling, membership, batching, flattening, conversion.

Members are arrays, plain dicts and plain tuples. Spaces are immutable; two spaces are equal if
they have the same members of the same types. `sample(key, shape=(...))` draws a whole batch at
once, and `batch(n)` is the space of n independent members.
"""

from jaxenvs.spaces.box import Box as Box
from jaxenvs.spaces.composite import Dict as Dict
from jaxenvs.spaces.composite import Tuple as Tuple
from jaxenvs.spaces.conversion import from_dm_env as from_dm_env
from jaxenvs.spaces.conversion import from_gymnasium as from_gymnasium
from jaxenvs.spaces.conversion import to_dm_env as to_dm_env
from jaxenvs.spaces.conversion import to_gymnasium as to_gymnasium
from jaxenvs.spaces.discrete import Discrete as Discrete
from jaxenvs.spaces.discrete import MultiBinary as MultiBinary
from jaxenvs.spaces.discrete import MultiDiscrete as MultiDiscrete
from jaxenvs.spaces.space import Space as Space
