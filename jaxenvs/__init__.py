"""JAX-native batched environments for reinforcement learning."""

import importlib as _importlib
from typing import TYPE_CHECKING as _TYPE_CHECKING

from jaxenvs.core import Environment as Environment
from jaxenvs.core import Policy as Policy
from jaxenvs.core import TimeStep as TimeStep
from jaxenvs.core import VectorEnv as VectorEnv
from jaxenvs.core import Wrapper as Wrapper
from jaxenvs.factory import make as make
from jaxenvs.factory import make_vec as make_vec
from jaxenvs.registry import EnvSpec as EnvSpec
from jaxenvs.registry import register as register
from jaxenvs.registry import registry as registry
from jaxenvs.rollouts import evaluate as evaluate
from jaxenvs.rollouts import rollout as rollout
from jaxenvs.vector.vectorize import vectorize as vectorize

__version__ = "0.1.0"

# What nobody should wait for is imported when it is first named: subpackages, and the faces, which
# bring in other libraries.
_LAZY = ("testing", "training")
_FACES = {"make_dm": "jaxenvs.faces.dm_env", "make_gym": "jaxenvs.faces.gym"}

if _TYPE_CHECKING:
    from jaxenvs import testing as testing
    from jaxenvs import training as training
    from jaxenvs.faces.dm_env import make_dm as make_dm
    from jaxenvs.faces.gym import make_gym as make_gym
else:

    def __getattr__(name):
        if name in _LAZY:
            return _importlib.import_module(f"jaxenvs.{name}")
        if name in _FACES:
            return getattr(_importlib.import_module(_FACES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        return sorted({*globals(), *_LAZY, *_FACES})
