"""Steps hosted environments with three layouts of workers, and computes something meanwhile.

python examples/multiprocess_gym_style.py --env gymnasium/CartPole-v1 --num-envs 8 --steps 500
"""

import argparse
import time

import numpy as np

import jaxenvs


def main(
    env: str = "gymnasium/CartPole-v1", num_envs: int = 8, num_workers: int = 2, steps: int = 500
) -> dict[str, np.ndarray]:
    """Returns the rewards, float64[steps, num_envs], of each layout."""
    layouts = {
        "one after the other": {"backend": "serial"},
        "one process each": {"backend": "process", "envs_per_worker": 1},
        f"{num_workers} workers with {num_envs / num_workers:g} each": {
            "backend": "process",
            "num_workers": num_workers,
        },
    }
    weights = np.random.default_rng(0).normal(size=(64, 64))
    rewards = {}

    for layout, options in layouts.items():
        envs = jaxenvs.make_pool(env, num_envs, **options)
        envs.action_space.seed(0)
        rewards[layout] = np.zeros((steps, num_envs))

        envs.reset(seed=0)
        episodes, begin = 0, time.perf_counter()
        for step in range(steps):
            actions = envs.action_space.sample()
            envs.step_async(actions)
            weights = np.tanh(weights @ weights)  # stands for learning, logging, drawing, ...
            _, rewards[layout][step], terminated, truncated, _ = envs.step_wait()
            episodes += np.count_nonzero(terminated | truncated)
        seconds = time.perf_counter() - begin
        envs.close()

        print(f"{layout}: {episodes} episodes, {steps * num_envs / seconds:,.0f} steps/s")
    return rewards


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--env", default="gymnasium/CartPole-v1")
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=500)
    flags = parser.parse_args()
    main(flags.env, flags.num_envs, flags.num_workers, flags.steps)
