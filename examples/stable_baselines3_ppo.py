"""Trains Stable-Baselines3's PPO on CartPole-v1, in a batch that is one compiled program.

python examples/stable_baselines3_ppo.py
"""

import argparse

import torch
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy

from jaxenvs.faces.stable_baselines3 import JaxVecEnv


def main(total_steps: int = 80_000, num_envs: int = 16, n_steps: int = 128) -> float:
    """Returns the mean return of 16 episodes after training."""
    torch.set_num_threads(1)  # a small network is not faster with more threads
    envs = JaxVecEnv("CartPole-v1", num_envs)
    model = PPO(
        "MlpPolicy",
        envs,
        learning_rate=1e-3,
        n_steps=n_steps,
        batch_size=256,
        gamma=0.98,
        seed=0,
        verbose=1,
        device="cpu",
    )
    model.learn(total_steps)
    envs.close()

    test_envs = JaxVecEnv("CartPole-v1", 16, seed=1)
    mean, deviation = evaluate_policy(model, test_envs, n_eval_episodes=16)
    print(f"mean return after training {mean:.1f}, standard deviation {deviation:.1f}")
    return float(mean)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=80_000)
    main(parser.parse_args().total_steps)
