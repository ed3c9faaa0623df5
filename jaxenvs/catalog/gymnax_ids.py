"""The ids of gymnax."""

# gymnax's id -> ours
GYMNAX_IDS = {
    "CartPole-v1": "CartPole-v1",
    "Pendulum-v1": "Pendulum-v1",
    "Acrobot-v1": "Acrobot-v1",
    "MountainCar-v0": "MountainCar-v0",
    "MountainCarContinuous-v0": "MountainCarContinuous-v0",
    "Catch-bsuite": "bsuite/catch-v0",
    "DeepSea-bsuite": "bsuite/deep_sea-v0",
    "FrozenLake-misc": "FrozenLake-v1",
}
