"""Settings of PPO that were seen to work, one for each id that was tried."""

import dataclasses

from jaxenvs.training.algorithms.ppo import PPO


@dataclasses.dataclass(frozen=True)
class Recipe:
    """What `make_train` wants besides the environment."""

    ppo: PPO
    num_envs: int
    unroll_length: int
    total_steps: int


DEFAULT = Recipe(PPO(), num_envs=64, unroll_length=64, total_steps=1_000_000)

_CARTPOLE = Recipe(
    PPO(learning_rate=7e-4, epochs=10, minibatches=8, clip_value=False),
    num_envs=32,
    unroll_length=64,
    total_steps=400_000,
)

_NORMALISED = PPO(
    learning_rate=1e-3,
    entropy_coefficient=0.0,
    clip_value=False,
    normalise_observations=True,
    normalise_rewards=True,
)

RECIPES: dict[str, Recipe] = {
    "CartPole-v0": _CARTPOLE,
    "CartPole-v1": _CARTPOLE,
    "Acrobot-v1": Recipe(
        _NORMALISED.replace(gae_lambda=0.94),
        num_envs=16,
        unroll_length=128,
        total_steps=300_000,
    ),
    # Short unrolls: the goal is rare at first, and each update keeps the swing that led there.
    "MountainCar-v0": Recipe(
        _NORMALISED.replace(gae_lambda=0.98),
        num_envs=16,
        unroll_length=16,
        total_steps=1_000_000,
    ),
    "MountainCarContinuous-v0": Recipe(
        _NORMALISED.replace(
            learning_rate=3e-4,
            gamma=0.9999,
            gae_lambda=0.9,
            epochs=10,
            entropy_coefficient=0.01,
        ),
        num_envs=16,
        unroll_length=256,
        total_steps=300_000,
    ),
    "Pendulum-v1": Recipe(
        PPO(
            learning_rate=1e-3,
            gamma=0.9,
            epochs=10,
            minibatches=16,
            entropy_coefficient=0.0,
            clip_value=False,
            normalise_rewards=True,
        ),
        num_envs=8,
        unroll_length=256,
        total_steps=300_000,
    ),
}


def recipe(id: str) -> Recipe:
    """The settings for an id; a default that fits many small tasks where it has none of its own."""
    return RECIPES.get(id, DEFAULT)
