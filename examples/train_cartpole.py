"""Trains PPO on CartPole-v1 with four seeds in one jitted program.

python examples/train_cartpole.py
"""

import argparse

import jax
import jax.numpy as jnp

from jaxenvs.training import PPO, make_train


def main(total_steps: int = 300_000, seeds: int = 4) -> jax.Array:
    """Returns float32[seeds]: for each seed, the best of the updates' mean returns."""
    ppo = PPO(learning_rate=1e-3, epochs=10, clip_value=False)
    train = make_train("CartPole-v1", ppo, num_envs=32, unroll_length=64, total_steps=total_steps)
    keys = jax.random.split(jax.random.key(0), seeds)
    result = jax.jit(jax.vmap(train))(keys)
    best = jnp.nanmax(result.metrics["episode_return"], axis=1)
    for seed, mean_return in enumerate(best):
        print(f"seed {seed}: best mean return {mean_return:.1f}")
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=300_000)
    main(parser.parse_args().total_steps)
