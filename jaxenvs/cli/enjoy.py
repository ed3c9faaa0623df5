"""`jaxenvs enjoy`."""

import argparse
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import jaxenvs
from jaxenvs.cli._console import check_folder, console
from jaxenvs.cli._runs import PretrainedRun, make_train_for_playing, runs_or_policies
from jaxenvs.cli.render import play, playing_key, write_episodes
from jaxenvs.errors import RenderError, RolloutError, check_integer
from jaxenvs.rendering.window import Window
from jaxenvs.training import ActorPolicy
from jaxenvs.training.config import Config


def run(options: argparse.Namespace) -> None:
    """Plays episodes with a trained policy, and writes them to a file or shows them."""
    if options.episodes < 1:
        raise RolloutError(f"enjoy got --episodes {options.episodes}; expected a positive number.")
    if options.output is not None:
        check_folder(options.output)
    chosen, *others = runs_or_policies([options.run])
    train, config, out = make_train_for_playing(chosen.config), chosen.config, console()
    try:
        policy = chosen.read_policy(train, options.which)
    finally:
        train.env.close()
    if others:
        out.print(f"Playing {chosen.folder}, the first of {len(others) + 1} runs.", markup=False)
    episodes = _episodes(config, policy, options)
    if options.window:
        _show(episodes, options.fps)
        return
    path = chosen.folder / "episode.gif"
    if isinstance(chosen, PretrainedRun):
        path = f"{chosen.folder.stem}.gif"
    write_episodes(options.output or path, options.fps, *episodes)


def _episodes(
    config: Config, policy: ActorPolicy, options: argparse.Namespace
) -> Iterator[tuple[np.ndarray, float]]:
    """Yields the frames and the return of each episode."""
    keys = jax.random.split(playing_key(options.seed), options.episodes)
    if config.is_hosted:
        yield from _hosted_episodes(config, policy, keys, options.max_steps)
        return
    env = config.wrapped(config.make_instance(), training=False)
    for key in keys:
        yield play(env, policy, key, max_steps=options.max_steps)


def _hosted_episodes(
    config: Config, policy: ActorPolicy, keys: jax.Array, max_steps: int
) -> Iterator[tuple[np.ndarray, float]]:
    """Does the same as `_episodes` for a hosted environment, which renders itself."""
    check_integer(RolloutError, "enjoy got max_steps", max_steps)
    parameters = {**config.env, "backend": "serial", "render_mode": "rgb_array"}
    hosts: Any = jaxenvs.make_vec(config.id, 1, **parameters)
    act = jax.jit(policy)
    try:
        env = config.wrapped(hosts, training=False)
        for key in keys:
            reset_key, key = jax.random.split(key)
            state, timestep = env.reset(reset_key)
            carry, frames, episode_return = policy.initial_carry(1), [_frame(hosts)], 0.0
            for step_keys in jax.random.split(key, (max_steps, 2)):
                if carry is None:
                    action = act(timestep.observation, step_keys[0])
                else:
                    carry, action = act(carry, timestep, step_keys[0])
                state, timestep = env.step(state, action, step_keys[1])
                episode_return += float(timestep.reward[0])
                if timestep.done[0]:  # the environment would now render the next episode
                    break
                frames.append(_frame(hosts))
            yield np.stack(frames), episode_return
    finally:
        hosts.close()


def _frame(hosts: Any) -> np.ndarray:
    (frame,) = hosts.pools[0].render()
    if not isinstance(frame, np.ndarray):
        raise RenderError(
            f"the environment rendered a {type(frame).__name__}; expected uint8[H, W, 3].  Use"
            " `jaxenvs eval`, which does not render."
        )
    return frame


def _show(episodes: Iterator[tuple[np.ndarray, float]], fps: float) -> None:
    """Shows episodes in a window until it is closed, or until Ctrl-C."""
    out, window = console(), Window(round(fps))
    try:
        for number, (frames, episode_return) in enumerate(episodes, start=1):
            for frame in frames:
                window.show(frame)
                if _is_closed():
                    return
            out.print(f"Episode {number}: return {episode_return:.1f}")
    except KeyboardInterrupt:
        pass
    finally:
        window.close()


def _is_closed() -> bool:
    import pygame  # the window has imported it

    return bool(pygame.event.get(pygame.QUIT))
