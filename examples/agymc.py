"""Runs N environments until all episodes have ended, like scripts for agymc and classic gym.

python examples/agymc.py --num-envs 16 --episodes 2 --render
"""

import argparse

import numpy as np

import jaxenvs


def main(num_envs: int = 16, episodes: int = 2, render: bool = False) -> np.ndarray:
    """Returns float64[episodes, num_envs], the return of every episode."""
    envs = jaxenvs.make_gym("CartPole-v0", num_envs, api="gym")
    envs.seed(0)
    envs.action_space.seed(0)
    returns = np.zeros((episodes, num_envs))

    for episode in range(episodes):
        done = [False for _ in range(num_envs)]
        envs.reset()

        while not all(done):
            if render:
                envs.render()
            action = envs.action_space.sample()
            (_, reward, done, _) = envs.step(action)
            returns[episode] += reward  # 0 where the episode has ended
        print(f"episode {episode}: returns from {returns[episode].min():.0f} to", end=" ")
        print(f"{returns[episode].max():.0f}, mean {returns[episode].mean():.1f}")

    envs.close()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=16)
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--render", action="store_true")
    flags = parser.parse_args()
    main(flags.num_envs, flags.episodes, flags.render)
