"""Trains Tianshou's DQN on CartPole-v1, with a collector that steps 16 instances as one batch.

python examples/tianshou_collector.py
"""

import argparse

import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.utils.net.common import Net

from jaxenvs.faces.tianshou import JaxVectorEnv


def main(total_steps: int = 40_000, num_envs: int = 16) -> float:
    """Returns the mean return of 16 episodes after training."""
    torch.set_num_threads(1)  # a small network is not faster with more threads
    torch.manual_seed(0)
    envs, test_envs = (JaxVectorEnv("CartPole-v1", num_envs, seed=seed) for seed in (0, 1))
    spaces = {"action_space": envs.action_space[0], "observation_space": envs.observation_space[0]}
    network = Net(state_shape=4, action_shape=2, hidden_sizes=[64, 64])
    policy = DiscreteQLearningPolicy(model=network, eps_training=0.1, **spaces)
    algorithm = DQN(
        policy=policy,
        optim=AdamOptimizerFactory(lr=1e-3),
        gamma=0.98,
        n_step_return_horizon=3,
        target_update_freq=200,
    )
    buffer = VectorReplayBuffer(20_000, num_envs)
    collector = Collector(algorithm, envs, buffer)
    collector.collect(n_step=64 * num_envs, random=True, reset_before_collect=True)
    for iteration in range(total_steps // (8 * num_envs)):
        policy.is_within_training_step = True  # explore
        collected = collector.collect(n_step=8 * num_envs)
        for _ in range(8):
            algorithm.update(buffer, sample_size=64)
        if iteration % 50 == 0 and collected.returns_stat:
            steps, mean = collector.collect_step, collected.returns_stat.mean
            print(f"{steps:6d} steps, mean return of the last episodes {mean:.1f}")

    policy.is_within_training_step = False
    test = Collector(algorithm, test_envs).collect(n_episode=16, reset_before_collect=True)
    print(f"mean return after training {test.returns.mean():.1f}")
    return float(test.returns.mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=40_000)
    main(parser.parse_args().total_steps)
