"""A demonstration: `python -m jaxenvs.cli.demo --output demo`.

Compares the speed with Gymnasium, trains on CartPole-v1 from scratch in one program, and evaluates
the policy in jaxenvs and in Gymnasium's CartPole-v1.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from jaxenvs.cli._console import console, table
from jaxenvs.cli.render import play, playing_key
from jaxenvs.core import Policy
from jaxenvs.errors import JaxenvsError
from jaxenvs.rendering.plots import write_learning_curve
from jaxenvs.rendering.video import write_video
from jaxenvs.training import Train, TrainResult
from jaxenvs.training.config import Config, config_for

ID = "CartPole-v1"
SOLVED = 475.0  # Gymnasium's threshold, on the mean of 100 episodes
EPISODES = 100
TIME_LIMIT = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demonstration.

    Returns:
        0 if the policy reaches 475 in both, else 1.
    """
    parser = argparse.ArgumentParser(prog="python -m jaxenvs.cli.demo", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("demo"), metavar="DIR")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument(
        "--total-steps", type=int, metavar="N", help="training steps (default: tuned)"
    )
    options = parser.parse_args(arguments)
    try:
        return demonstrate(options.output, options.seed, options.total_steps)
    except JaxenvsError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 2


def demonstrate(folder: Path, seed: int, total_steps: int | None = None) -> int:
    """Prints the results, and writes learning_curve.png and cartpole.gif."""
    started = time.perf_counter()
    out = console()
    device = jax.devices()[0]
    out.print(f"[bold]jaxenvs {jaxenvs.__version__}[/], jax {jax.__version__}, on", _name(device))

    out.print(f"\n[bold]Environment steps per second[/], {ID}, random actions")
    out.print(speed_table())

    config = config_for("PPO", ID)
    config = config.replace(seed=seed, total_steps=total_steps or config.total_steps)
    out.print(
        f"[bold]PPO from scratch[/], {config.total_steps:,} steps of {config.num_envs} instances,"
        " one jitted program"
    )
    train, result, seconds = learn(config)
    out.print(
        f"  compiled in {seconds['compile']:.1f} s, trained in {seconds['run']:.1f} s"
        f" ({config.total_steps / seconds['run']:,.0f} steps/s, learning included)"
    )

    policy = train.policy(result.learner_state)
    key, playing = jax.random.split(playing_key(seed))
    here = float(jaxenvs.evaluate(jaxenvs.make_vec(ID, EPISODES), policy, 1, key).mean)
    there = float(gymnasium_returns(policy, seed).mean())
    out.print(f"\n[bold]Mean return over {EPISODES} episodes[/], greedy, solved at {SOLVED:g}")
    out.print(f"  in jaxenvs                    {here:6.1f}   {_verdict(here)}")
    out.print(f"  the same policy in Gymnasium  {there:6.1f}   {_verdict(there)}")

    curve = write_learning_curve(
        folder / "learning_curve.png",
        result.metrics["steps"],
        result.metrics["episode_return"],
        title=f"PPO on {ID}, seed {seed}",
        threshold=SOLVED,
    )
    frames, _ = play(jaxenvs.make(ID), policy, playing, max_steps=TIME_LIMIT, every=2, shrink=2)
    animation = write_video(folder / "cartpole.gif", frames, fps=25)  # tau is 0.02 s: real time
    out.print(f"\nWrote {curve} and {animation}. Total: {time.perf_counter() - started:.0f} s.")
    return 0 if min(here, there) >= SOLVED else 1


def learn(config: Config) -> tuple[Train, TrainResult, dict[str, float]]:
    """Trains with a progress bar. Also returns the seconds of "compile" and "run"."""
    train, key = config.make_train(progress=True), jax.random.key(config.seed)
    start = time.perf_counter()
    program = jax.jit(train).lower(key).compile()
    compiled = time.perf_counter()
    result = jax.block_until_ready(program(key))
    finished = time.perf_counter()
    jax.effects_barrier()  # wait for the last reports
    return train, result, {"compile": compiled - start, "run": finished - compiled}


def gymnasium_returns(policy: Policy, seed: int) -> np.ndarray:
    """Returns the policy's returns in Gymnasium, one episode per instance: float64[EPISODES]."""
    envs = gymnasium.make_vec(ID, num_envs=EPISODES, vectorization_mode="sync")
    act, key = jax.jit(policy), playing_key(seed)
    observation, _ = envs.reset(seed=seed)
    returns, running = np.zeros(EPISODES), np.ones(EPISODES, bool)
    while running.any():
        key, action_key = jax.random.split(key)
        actions = act(jnp.asarray(observation, jnp.float32), action_key)
        observation, reward, terminated, truncated, _ = envs.step(np.asarray(actions))
        returns += reward * running
        running &= ~(terminated | truncated)
    envs.close()
    return returns


def speed_table() -> object:
    """Returns a table of steps per second of jaxenvs and of three ways to use Gymnasium."""
    rows = table("", "instances", "steps/s", "vs. fastest Gymnasium")
    theirs = {
        ("gymnasium.make, a Python loop", 1): _gymnasium_loop(),
        ("gymnasium SyncVectorEnv", 64): _gymnasium_vector("sync", 64),
    }
    for num_envs in (1024, 4096, 16384):
        rate = _gymnasium_vector("vector_entry_point", num_envs)
        theirs["gymnasium's own vectorized CartPole", num_envs] = rate
    ours = {("[bold]jaxenvs, jitted rollout[/]", n): _jaxenvs(n) for n in (1024, 16384)}
    best = max(theirs.values())
    for (name, num_envs), rate in {**theirs, **ours}.items():
        ratio = rate / best
        times = f"{ratio:.2f}x" if ratio > 0.1 else f"{ratio:.1g}x"
        rows.add_row(name, f"{num_envs:,}", f"{rate:,.0f}", times)
    return rows


def _jaxenvs(num_envs: int) -> float:
    env, length = jaxenvs.make_vec(ID, num_envs), 500

    keys = iter(jax.random.split(jax.random.key(0), 10_000))

    def run():
        result = jaxenvs.rollout(env, None, length, next(keys), outputs="statistics")
        jax.block_until_ready(result)

    return _rate(run, num_envs * length)


def _gymnasium_loop() -> float:
    env = gymnasium.make(ID)
    actions = np.random.default_rng(0).integers(2, size=5_000)  # drawn before the measurement

    def run():
        env.reset(seed=0)
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()

    return _rate(run, len(actions))


def _gymnasium_vector(mode: str, num_envs: int) -> float:
    envs = gymnasium.make_vec(ID, num_envs=num_envs, vectorization_mode=mode)
    actions = np.random.default_rng(0).integers(2, size=(100, num_envs))
    envs.reset(seed=0)

    def run():
        for action in actions:
            envs.step(action)

    return _rate(run, actions.size)


def _rate(run: Callable[[], object], steps: int, seconds: float = 1.0) -> float:
    """Returns the highest number of steps per second of several runs."""
    run()  # compiles
    fastest, started = float("inf"), time.perf_counter()
    while time.perf_counter() - started < seconds:
        before = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - before)
    return steps / fastest


def _name(device: Any) -> str:
    return f"{jax.device_count()} x {device.device_kind} ({device.platform})"


def _verdict(mean_return: float) -> str:
    return "[green]solved[/]" if mean_return >= SOLVED else "[red]not solved[/]"


if __name__ == "__main__":
    sys.exit(main())
