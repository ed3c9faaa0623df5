"""Learns CartPole-v1 with double Q-learning through the dm_env interface of a batch.

python examples/dqn_dm_env.py
"""

import flax.linen as nn
import jax
import numpy as np
import optax

import jaxenvs

NETWORK = nn.Sequential([nn.Dense(128), nn.relu, nn.Dense(128), nn.relu, nn.Dense(2)])
OPTIMIZER = optax.adam(1e-3)
values = jax.jit(NETWORK.apply)


@jax.jit
def learn(params, target, moments, observation, action, reward, discount, following):
    def loss(params):
        rows, best = np.arange(len(action)), values(params, following).argmax(1)
        wanted = reward + 0.99 * discount * values(target, following)[rows, best]
        return optax.l2_loss(values(params, observation)[rows, action], wanted).mean()

    updates, moments = OPTIMIZER.update(jax.grad(loss)(params), moments)
    params = optax.apply_updates(params, updates)
    return params, optax.incremental_update(params, target, 0.005), moments


def main(total_steps: int = 100_000, num_envs: int = 16) -> float:
    """Returns the mean return of the last 50 episodes."""
    envs, random = jaxenvs.make_dm("CartPole-v1", num_envs, seed=0), np.random.default_rng(0)
    before, memory, stored, running, returns = envs.reset(), None, 0, np.zeros(num_envs), []
    params = target = NETWORK.init(jax.random.key(0), before.observation)
    moments = OPTIMIZER.init(params)
    for t in range(num_envs, total_steps + 1, num_envs):
        greedy = np.asarray(values(params, before.observation).argmax(1))
        explores = random.random(num_envs) < max(0.05, 1 - 5 * t / total_steps)
        action = np.where(explores, random.integers(2, size=num_envs), greedy)
        after = envs.step(action)
        step = (before.observation, action, after.reward, after.discount, after.observation)
        memory = memory or [np.empty((total_steps, *x.shape[1:]), x.dtype) for x in step]
        rows = ~after.first()  # the step after LAST starts an episode and is not a transition
        start, stored = stored, stored + rows.sum()
        for column, part in zip(memory, step, strict=True):
            column[start:stored] = part[rows]
        for sample in random.integers(stored, size=(8, 64)):
            batch = (column[sample] for column in memory)
            params, target, moments = learn(params, target, moments, *batch)
        running = np.where(before.last(), 0, running) + after.reward
        returns.extend(running[after.last()])
        if t % 10_000 == 0:
            print(f"{t:,} steps: the last 50 episodes returned {np.mean(returns[-50:]):.1f}")
        before = after
    return float(np.mean(returns[-50:]))


if __name__ == "__main__":
    main()
