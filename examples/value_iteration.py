"""Solves many random frozen lakes at once by value iteration on their transition tables.

Then plays each of them with its optimal policy. A map is a leaf of the environment, so instances
can have different maps, and one `vmap` solves them all.

python examples/value_iteration.py
"""

import argparse

import jax
import jax.numpy as jnp

import jaxenvs
from jaxenvs.envs.toy_text import FrozenLake, TransitionTable, generate_random_map


def action_values(table: TransitionTable, gamma: float, sweeps: int) -> jax.Array:
    """Returns the value of each action in each state, float32[num_states, num_actions]."""

    def sweep(values, _):
        future = jnp.where(table.terminated, 0, values.max(axis=-1)[table.next_state])
        return (table.probability * (table.reward + gamma * future)).sum(axis=-1), None

    zeros = jnp.zeros(table.reward.shape[:2], jnp.float32)
    return jax.lax.scan(sweep, zeros, length=sweeps)[0]


def main(num_lakes: int = 256, size: int = 6, num_episodes: int = 64) -> tuple[jax.Array, ...]:
    """Returns the optimal success rate of each lake, and the one measured: float32[num_lakes]."""
    keys = jax.random.split(jax.random.key(0), num_lakes)
    maps = jax.jit(jax.vmap(lambda key: generate_random_map(key, size)))(keys)

    def solve(desc):
        # Without a discount, walking in circles forever could look as good as going to the goal.
        return action_values(FrozenLake(desc=desc).table, gamma=0.9999, sweeps=1_000)

    values = jax.jit(jax.vmap(solve))(maps)

    def policy(observation, key):
        return values[jnp.arange(num_lakes), observation].argmax(axis=-1).astype(jnp.int32)

    lakes = jaxenvs.vectorize(FrozenLake(desc=maps), num_lakes, batched=("desc",))
    played = jaxenvs.evaluate(lakes, policy, num_episodes, jax.random.key(1))

    optimal, measured = values[:, 0].max(axis=-1), played.episode_return.mean(axis=0)
    print(f"{num_lakes} lakes of {size} x {size} cells: the optimal policies should cross")
    print(f"{optimal.mean():.1%} of the time, and did so {measured.mean():.1%} of the time")
    return optimal, measured


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-lakes", type=int, default=256)
    parser.add_argument("--size", type=int, default=6)
    options = parser.parse_args()
    main(options.num_lakes, options.size)
