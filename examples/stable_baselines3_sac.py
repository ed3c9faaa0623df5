"""Trains Stable-Baselines3's SAC on Pendulum-v1, with normalized observations and rewards.

python examples/stable_baselines3_sac.py
"""

import argparse

import torch
from stable_baselines3 import SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecNormalize

from jaxenvs.faces.stable_baselines3 import JaxVecEnv


def main(total_steps: int = 12_000, num_envs: int = 8) -> float:
    """Returns the mean return of 16 episodes after training."""
    torch.set_num_threads(1)  # a small network is not faster with more threads
    envs = VecNormalize(JaxVecEnv("Pendulum-v1", num_envs, seed=0))
    model = SAC(
        "MlpPolicy",
        envs,
        learning_rate=1e-3,
        learning_starts=num_envs * 100,
        gradient_steps=num_envs // 2,  # an update for every second transition
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
        verbose=1,
        device="cpu",
    )
    model.learn(total_steps, log_interval=20)

    test_envs = VecNormalize(JaxVecEnv("Pendulum-v1", 16, seed=1), training=False)
    test_envs.obs_rms, test_envs.norm_reward = envs.obs_rms, False
    mean, deviation = evaluate_policy(model, test_envs, n_eval_episodes=16)
    print(f"mean return after training {mean:.1f}, standard deviation {deviation:.1f}")
    return float(mean)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--total-steps", type=int, default=12_000)
    main(parser.parse_args().total_steps)
