"""gymnax's ids and ours for the same tasks. docs/usage/coming_from_gymnax.md shows the table."""

from typing import Any

GYMNAX_IDS: dict[str, str] = {
    "CartPole-v1": "CartPole-v1",
    "Pendulum-v1": "Pendulum-v1",
    "Acrobot-v1": "Acrobot-v1",
    "MountainCar-v0": "MountainCar-v0",
    "MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "Asterix-MinAtar": "MinAtar/Asterix-v1",
    "Breakout-MinAtar": "MinAtar/Breakout-v1",
    "Freeway-MinAtar": "MinAtar/Freeway-v1",
    "Seaquest-MinAtar": "MinAtar/Seaquest-v1",
    "SpaceInvaders-MinAtar": "MinAtar/SpaceInvaders-v1",
    "Catch-bsuite": "bsuite/catch-v0",
    "DeepSea-bsuite": "bsuite/deep_sea-v0",
    "MemoryChain-bsuite": "bsuite/memory_len-v0",
    "UmbrellaChain-bsuite": "bsuite/umbrella_length-v0",
    "DiscountingChain-bsuite": "bsuite/discounting_chain-v0",
    "MNISTBandit-bsuite": "bsuite/mnist-v0",
    "SimpleBandit-bsuite": "bsuite/bandit-v0",
    "FourRooms-misc": "FourRooms-misc",
    "MetaMaze-misc": "MetaMaze-misc",
    "PointRobot-misc": "PointRobot-misc",
    "BernoulliBandit-misc": "BernoulliBandit-misc",
    "GaussianBandit-misc": "GaussianBandit-misc",
    "Reacher-misc": "Reacher-misc",
    "Swimmer-misc": "Swimmer-misc",
    "Pong-misc": "Pong-misc",
    "FrozenLake-misc": "FrozenLake-v1",
}

# Parameters of `make` that turn our defaults into gymnax's.
GYMNAX_DEFAULTS: dict[str, dict[str, Any]] = {
    **{id: {"dtype": "float32"} for id in GYMNAX_IDS if id.endswith("-MinAtar")},
    "DeepSea-bsuite": {"size": 8},
    "MemoryChain-bsuite": {"memory_length": 5},
    "UmbrellaChain-bsuite": {"n_distractor": 0},
}
