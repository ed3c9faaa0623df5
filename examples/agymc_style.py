"""Runs many environments that wait for their frames concurrently, like scripts for agymc.

python examples/agymc_style.py --num-envs 200 --render-seconds 0.002
"""

import argparse
import asyncio
import time
from typing import Any

import gymnasium
import numpy as np

import jaxenvs


class SlowFrames(gymnasium.Wrapper):
    """CartPole with frames that arrive after a delay, as from a remote renderer.

    Any of `reset`, `step`, `render`, and `close` may be a coroutine function. While one environment
    waits in it, the others continue.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__(gymnasium.make("CartPole-v1", render_mode="rgb_array"))
        self.seconds = seconds

    async def render(self) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        await asyncio.sleep(self.seconds)
        return np.zeros((40, 60, 3), np.uint8)


def main(num_envs: int = 200, render_seconds: float = 0.002) -> np.ndarray:
    """Returns float64[num_envs], the return of one episode per environment."""
    envs = jaxenvs.make_gym(
        lambda: SlowFrames(render_seconds), num_envs, api="gym", backend="asyncio"
    )
    envs.seed(0)
    envs.action_space.seed(0)
    returns = np.zeros(num_envs)
    frames, begin = 0, time.perf_counter()

    done = [False for _ in range(num_envs)]
    envs.reset()

    while not all(done):
        envs.render(mode="rgb_array")
        frames += num_envs
        action = envs.action_space.sample()
        (_, reward, done, _) = envs.step(action)
        returns += reward  # 0 where the episode has ended

    seconds = time.perf_counter() - begin
    envs.close()
    print(f"{num_envs} episodes, mean return {returns.mean():.1f}; {frames} frames took", end=" ")
    print(f"{seconds:.2f} s instead of {frames * render_seconds:.2f} s one after the other")
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-envs", type=int, default=200)
    parser.add_argument("--render-seconds", type=float, default=0.002)
    flags = parser.parse_args()
    main(flags.num_envs, flags.render_seconds)
