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
    PPO(learning_rate=1e-3, epochs=10, clip_value=False),
    num_envs=32,
    unroll_length=64,
    total_steps=300_000,
)

RECIPES: dict[str, Recipe] = {
    "CartPole-v0": _CARTPOLE,
    "CartPole-v1": _CARTPOLE,
}


def recipe(id: str) -> Recipe:
    """The settings for an id; a default that fits many small tasks where it has none of its own."""
    return RECIPES.get(id, DEFAULT)
