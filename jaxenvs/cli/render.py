"""`jaxenvs render`."""

import argparse
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from jaxenvs import keys
from jaxenvs.cli._console import check_folder, console, writing
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import RenderError, RolloutError, TrainingError, check_integer
from jaxenvs.rendering.video import write_video

_CHUNK = 25  # frames per call: enough for speed, few enough for memory


def run(options: argparse.Namespace) -> None:
    """Plays an episode of `options.id` and writes it to `options.output`."""
    check_folder(options.output)
    env, policy = jaxenvs.make(options.id), None
    if options.checkpoint is not None:
        env, policy = _load_policy(options, env)
    key = playing_key(options.seed)
    write_episodes(options.output, options.fps, play(env, policy, key, max_steps=options.max_steps))


def write_episodes(path: str | Path, fps: float, *episodes: tuple[np.ndarray, float]) -> None:
    """Writes episodes, as `play` returns them, one after the other, and prints their returns.

    Raises:
        RenderError: the file cannot be written.
    """
    frames = np.concatenate([frames for frames, _ in episodes])
    with writing(path):
        write_video(path, frames, fps=fps)
    returns = ", ".join(f"{episode_return:.1f}" for _, episode_return in episodes)
    size = f"{frames.shape[2]} x {frames.shape[1]}"
    console().print(
        f"Wrote {path}: {len(frames)} frames of {size}, return {returns}.", markup=False
    )


def playing_key(seed: int) -> jax.Array:
    """Returns the key of the episodes that eval, enjoy and render play.

    A training run with the same seed does not use this key, and neither do its evaluations, which
    count from 0. The episodes therefore differ from those that selected the best policy.
    """
    return keys.evaluation_key(jax.random.key(seed), np.uint32(2**32 - 1))


def _load_policy(options: argparse.Namespace, env: Environment) -> tuple[Environment, Any]:
    """Returns the wrapped environment and the policy of the first run in a folder.

    Raises:
        TrainingError: the run is for another environment.
    """
    from jaxenvs.cli._runs import make_train_for_playing, runs_in  # needs the extra `train`

    run, *_ = runs_in([options.checkpoint])
    if run.config.id.removeprefix("gymnasium/") != options.id:
        raise TrainingError(
            f'the run in "{options.checkpoint}" is for {run.config.id}, not {options.id}.  Pass'
            " another id or folder."
        )
    config = run.config.replace(id=options.id)
    return config.wrapped(env, training=False), run.read_policy(
        make_train_for_playing(config), options.which
    )


def play(
    env: Environment,
    policy: Callable[..., Any] | None,
    key: jax.Array,
    *,
    max_steps: int,
    every: int = 1,
    shrink: int = 1,
) -> tuple[np.ndarray, float]:
    """Plays and renders one episode of at most `max_steps`.

    Args:
        env: one instance.
        policy: a policy for a batch of one, as in `jaxenvs.rollout`; it is recurrent if it has an
            `initial_carry(num_envs)` that is not None. None draws actions at random.
        key: a random key.
        max_steps: the number of steps after which to stop.
        every: render every `every`-th state, and the last one.
        shrink: average squares of `shrink` by `shrink` pixels, for smaller files.

    Returns:
        The frames, uint8[T, H, W, 3], from the first state to the last, and the episode's return,
        the sum over all agents.
    """
    check_integer(RolloutError, "render got max_steps", max_steps)
    states, rewards, dones = jax.device_get(
        jax.jit(_episode, static_argnums=(1, 3))(env, policy, key, max_steps)
    )
    ends = np.flatnonzero(dones)
    length = int(ends[0]) + 1 if len(ends) else max_steps
    chosen = np.unique([*range(0, length, every), length])  # step t - 1 leads to state t
    draw = jax.jit(jax.vmap(env.render))
    frames = []
    for start in range(0, len(chosen), _CHUNK):
        part = chosen[start : start + _CHUNK]
        frames.append(_downscale(_draw(env, draw, states, part), shrink))
    returns = [float(each[:length].sum()) for each in jax.tree.leaves(rewards)]
    return np.concatenate(frames), sum(returns)


def _draw(
    env: Environment, program: Callable[[Any], jax.Array], states: Any, part: np.ndarray
) -> np.ndarray:
    """Returns pictures of the states with the indices `part`."""
    padded = np.resize(part, _CHUNK)  # one shape, so one program
    with contextlib.suppress(RenderError):
        return np.asarray(program(jax.tree.map(lambda x: x[padded], states)))[: len(part)]
    # Some libraries draw outside of compiled programs only.
    return np.stack(
        [env.render(jax.tree.map(lambda x: jnp.asarray(x[i]), states)) for i in part]  # noqa: B023
    )


def _downscale(frames: np.ndarray, factor: int) -> np.ndarray:
    """Downscales frames by averaging squares, which keeps thin lines visible."""
    if factor == 1:
        return frames
    height, width = (size // factor for size in frames.shape[1:3])
    squares = frames[:, : height * factor, : width * factor]
    squares = squares.reshape((-1, height, factor, width, factor, 3))
    return squares.mean((2, 4)).round().astype(np.uint8)


def _episode(
    env: Environment, policy: Callable[..., Any] | None, key: jax.Array, max_steps: int
) -> tuple[Any, jax.Array, jax.Array]:
    """Returns states [max_steps + 1, ...], rewards and dones [max_steps].

    Continues stepping after the end of the episode.
    """
    memory = getattr(policy, "initial_carry", lambda _: None)(1)

    def step(carry, key):
        state, timestep, memory = carry
        action_key, step_key = jax.random.split(key)
        if policy is None:
            action = env.action_space.sample(action_key)
        else:
            memory, action = act_in_one(policy, memory, timestep, action_key)
        state, timestep = env.step(state, action, step_key)
        return (state, timestep, memory), (state, timestep.reward, timestep.done)

    reset_key, key = jax.random.split(key)
    first, timestep = env.reset(reset_key)
    _, (states, rewards, dones) = jax.lax.scan(
        step, (first, timestep, memory), jax.random.split(key, max_steps)
    )
    states = jax.tree.map(lambda a, b: jax.numpy.concatenate([a[None], b]), first, states)
    return states, rewards, dones


def act_in_one(
    policy: Callable[..., Any], memory: Any, timestep: TimeStep, key: jax.Array
) -> tuple[Any, Any]:
    """Returns the memory and the action in a single instance; memory is None if there is none."""
    one = jax.tree.map(lambda x: x[None], timestep)
    if memory is None:
        action = policy(one.observation, key)
    else:
        memory, action = policy(memory, one, key)
    return memory, jax.tree.map(lambda x: x[0], action)
