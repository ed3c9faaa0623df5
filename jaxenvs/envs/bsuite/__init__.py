"""Tasks of bsuite, the Behaviour Suite for Reinforcement Learning. Each tests one capability."""

from jaxenvs.envs.bsuite.catch import Catch as Catch
from jaxenvs.envs.bsuite.catch import CatchState as CatchState
from jaxenvs.envs.bsuite.memory_chain import MemoryChain as MemoryChain
from jaxenvs.envs.bsuite.memory_chain import MemoryChainState as MemoryChainState
