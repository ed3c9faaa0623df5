"""Tasks of bsuite, the Behavior Suite for Reinforcement Learning: each asks for one ability."""

from jaxenvs.envs.bsuite.catch import Catch as Catch
from jaxenvs.envs.bsuite.catch import CatchState as CatchState
from jaxenvs.envs.bsuite.memory_chain import MemoryChain as MemoryChain
from jaxenvs.envs.bsuite.memory_chain import MemoryChainState as MemoryChainState
