"""Learns CartPole-v1 from random play alone, with implicit Q-learning (Kostrikov et al., 2021).

python examples/offline_iql.py
python examples/offline_iql.py --dataset cartpole/random-v0    a Minari data set
"""

import argparse
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

import jaxenvs
from jaxenvs.rollouts import Trajectory

GAMMA = 0.99
EXPECTILE = 0.7  # V is this expectile of Q over the actions in the data; 0.5 is the mean
TEMPERATURE = 3.0  # how much the policy prefers actions that are better than V
AVERAGE = 0.005  # how far the target networks move in one update


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential([nn.Dense(64), nn.relu, nn.Dense(64), nn.relu, nn.Dense(outputs)])


NETWORKS = {"q1": mlp(2), "q2": mlp(2), "v": mlp(1), "policy": mlp(2)}
OPTIMIZER = optax.adam(1e-3)


def loss(params: dict, target: dict, batch: Trajectory) -> jax.Array:
    """Returns the sum of the losses of V, both Q, and the policy; they share no weights."""

    def output(name, observation, weights=params):
        return NETWORKS[name].apply(weights[name], observation)

    def of_action(rows):
        return jnp.take_along_axis(rows, batch.action[:, None], axis=1)[:, 0]

    twins = [of_action(output(name, batch.observation, target)) for name in ("q1", "q2")]
    value = output("v", batch.observation)[:, 0]
    advantage = jnp.minimum(*twins) - value
    of_v = jnp.abs(EXPECTILE - (advantage < 0)) * advantage**2

    # A truncated episode would have gone on, so only a terminated one has no next value.
    following = jax.lax.stop_gradient(output("v", batch.final_observation)[:, 0])
    wanted = batch.reward + GAMMA * ~batch.terminated * following
    of_q = sum((of_action(output(name, batch.observation)) - wanted) ** 2 for name in ("q1", "q2"))

    weight = jnp.minimum(jnp.exp(TEMPERATURE * jax.lax.stop_gradient(advantage)), 100)
    log_probs = jax.nn.log_softmax(output("policy", batch.observation))
    return (of_v + of_q - weight * of_action(log_probs)).mean()


def learn(data: Trajectory, num_updates: int, key: jax.Array, batch_size: int = 256) -> Callable:
    """Returns the greedy policy after `num_updates` updates. `data` has leaves [M, ...]."""
    init_key, key = jax.random.split(key)
    keys = jax.random.split(init_key, len(NETWORKS))
    params = {
        name: network.init(each, data.observation[:1])
        for each, (name, network) in zip(keys, NETWORKS.items(), strict=True)
    }

    def update(carry, key):
        params, target, moments = carry
        rows = jax.random.randint(key, (batch_size,), 0, len(data.reward))
        batch = jax.tree.map(lambda x: x[rows], data)
        updates, moments = OPTIMIZER.update(jax.grad(loss)(params, target, batch), moments)
        params = optax.apply_updates(params, updates)
        return (params, optax.incremental_update(params, target, AVERAGE), moments), None

    start = params, params, OPTIMIZER.init(params)
    keys = jax.random.split(key, num_updates)
    (params, _, _), _ = jax.jit(jax.lax.scan, static_argnums=0)(update, start, keys)
    network, weights = NETWORKS["policy"], params["policy"]
    return lambda observation, key: network.apply(weights, observation).argmax(-1)


def main(
    dataset: str | None = None, num_updates: int = 5_000, num_steps: int = 1_000, seed: int = 0
) -> tuple[float, float]:
    """Returns the mean returns of the data and of the policy."""
    envs = jaxenvs.make_vec("CartPole-v1", 64)
    if dataset is None:
        trajectory = jaxenvs.rollout(envs, None, num_steps, jax.random.key(seed)).trajectory
        data = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), trajectory)
    else:
        from jaxenvs.faces.minari import from_minari  # needs the extra `minari`

        data = from_minari(dataset)
    before = float(data.reward.sum() / (data.terminated | data.truncated).sum())
    policy = learn(data, num_updates, jax.random.key(seed + 1))
    after = float(jaxenvs.evaluate(envs, policy, 1, jax.random.key(seed + 2)).mean)
    print(f"{len(data.reward):,} steps: mean return of the data {before:.1f}, of IQL {after:.1f}")
    return before, after


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dataset")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    main(flags.dataset, seed=flags.seed)
