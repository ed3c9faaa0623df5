"""The ids of bsuite tasks, which need no time limit because their episodes end by themselves."""

from functools import partial

from jaxenvs.registry import register

_register = partial(
    register,
    family="bsuite",
    source="I. Osband et al., 2020",
    compared_with="bsuite",
)
_MODULES = "jaxenvs.envs.bsuite"

_register("bsuite/catch-v0", f"{_MODULES}.catch:Catch")
_register("bsuite/memory_len-v0", f"{_MODULES}.memory_chain:MemoryChain")
