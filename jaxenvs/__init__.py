"""JAX-native batched environments for reinforcement learning."""

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
