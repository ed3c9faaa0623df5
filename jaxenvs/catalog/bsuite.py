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

_register("bsuite/bandit-v0", f"{_MODULES}.bandit:Bandit")
_register("bsuite/cartpole-v0", f"{_MODULES}.cart_pole:BsuiteCartPole")
_register("bsuite/cartpole_swingup-v0", f"{_MODULES}.cart_pole_swingup:CartPoleSwingup")
_register("bsuite/catch-v0", f"{_MODULES}.catch:Catch")
_register("bsuite/deep_sea-v0", f"{_MODULES}.deep_sea:DeepSea")
_register(
    "bsuite/deep_sea_stochastic-v0",
    f"{_MODULES}.deep_sea:DeepSea",
    kwargs={"deterministic": False},
)
_register("bsuite/discounting_chain-v0", f"{_MODULES}.discounting_chain:DiscountingChain")
_register("bsuite/memory_len-v0", f"{_MODULES}.memory_chain:MemoryChain")
_register(
    "bsuite/memory_size-v0",
    f"{_MODULES}.memory_chain:MemoryChain",
    kwargs={"memory_length": 2, "num_bits": 10},
)
_register("bsuite/mnist-v0", f"{_MODULES}.mnist:Mnist")
_register("bsuite/mountain_car-v0", f"{_MODULES}.mountain_car:BsuiteMountainCar")
_register(
    "bsuite/umbrella_distract-v0",
    f"{_MODULES}.umbrella_chain:UmbrellaChain",
    kwargs={"chain_length": 20, "n_distractor": 10},
)
_register(
    "bsuite/umbrella_length-v0",
    f"{_MODULES}.umbrella_chain:UmbrellaChain",
    kwargs={"chain_length": 10, "n_distractor": 20},
)
