"""`jaxenvs render`."""

import argparse
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxenvs
from jaxenvs.cli._console import console
from jaxenvs.core import Environment, Policy
from jaxenvs.errors import RolloutError
from jaxenvs.rendering.video import write_video

_CHUNK = 25  # pictures drawn at once: enough to be quick, few enough to fit


def run(options: argparse.Namespace) -> None:
    """Plays an episode of `options.id` and writes it to `options.output`."""
    env = jaxenvs.make(options.id)
    policy = None
    if options.checkpoint is not None:
        from jaxenvs.cli.train import read_policy

        policy = read_policy(Path(options.checkpoint), options.id)
    key = jax.random.key(options.seed)
    frames, episode_return = play(env, policy, key, max_steps=options.max_steps)
    write_video(options.output, frames, fps=options.fps)
    console().print(
        f"Wrote {options.output}: {len(frames)} frames of"
        f" {frames.shape[2]} x {frames.shape[1]}, return {episode_return:.1f}."
    )


def play(
    env: Environment,
    policy: Policy | None,
    key: jax.Array,
    *,
    max_steps: int,
    every: int = 1,
    shrink: int = 1,
) -> tuple[np.ndarray, float]:
    """Plays one episode, to its end or to `max_steps`, and draws it.

    Args:
        env: one instance.
        policy: acts on a batch of one; None draws actions at random.
        key: a random key.
        max_steps: where to stop an episode that does not end.
        every: draw every so many states, and the last one in any case.
        shrink: average squares of so many pixels a side, for smaller files.

    Returns:
        uint8[T, H, W, 3], from the first state to the last; and the episode's return.
    """
    if max_steps < 1:
        raise RolloutError(f"max_steps is {max_steps}; an episode has at least 1 step.")
    states, rewards, dones = jax.tree.map(
        np.asarray, jax.jit(_episode, static_argnums=(1, 3))(env, policy, key, max_steps)
    )
    ends = np.flatnonzero(dones)
    length = int(ends[0]) + 1 if len(ends) else max_steps
    chosen = np.unique([*range(0, length, every), length])  # state t is what step t - 1 led to
    draw = jax.jit(jax.vmap(env.render))
    frames = []
    for start in range(0, len(chosen), _CHUNK):
        part = chosen[start : start + _CHUNK]
        padded = np.resize(part, _CHUNK)  # one shape, one program
        pictures = np.asarray(draw(jax.tree.map(lambda x: x[padded], states)))  # noqa: B023
        frames.append(_shrunk(pictures[: len(part)], shrink))
    return np.concatenate(frames), float(rewards[:length].sum())


def _shrunk(frames: np.ndarray, factor: int) -> np.ndarray:
    """Averages squares, so that thin lines fade where leaving out pixels would lose them."""
    if factor == 1:
        return frames
    height, width = (size // factor for size in frames.shape[1:3])
    squares = frames[:, : height * factor, : width * factor]
    squares = squares.reshape((-1, height, factor, width, factor, 3))
    return squares.mean((2, 4)).round().astype(np.uint8)


def _episode(
    env: Environment, policy: Policy | None, key: jax.Array, max_steps: int
) -> tuple[Any, jax.Array, jax.Array]:
    """States [max_steps + 1, ...], rewards and ends [max_steps]; goes on past the end."""

    def act(observation, key):
        if policy is None:
            return env.action_space.sample(key)
        batch_of_one = jax.tree.map(lambda x: x[None], observation)
        return jax.tree.map(lambda x: x[0], policy(batch_of_one, key))

    def step(carry, key):
        state, observation = carry
        action_key, step_key = jax.random.split(key)
        state, timestep = env.step(state, act(observation, action_key), step_key)
        return (state, timestep.observation), (state, timestep.reward, timestep.done)

    reset_key, key = jax.random.split(key)
    first, timestep = env.reset(reset_key)
    _, (states, rewards, dones) = jax.lax.scan(
        step, (first, timestep.observation), jax.random.split(key, max_steps)
    )
    states = jax.tree.map(lambda a, b: jax.numpy.concatenate([a[None], b]), first, states)
    return states, rewards, dones
