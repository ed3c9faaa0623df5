"""Measures Gymnasium's MuJoCo and Box2D tasks, and those of other libraries.

    python -m benchmarks.physics --output auto
    python -m benchmarks.physics --ids LunarLander-v3 --num-envs 256 \\
        --contestants "jaxenvs;EnvPool, 1 thread;EnvPool, 2 threads" --output box2d.json

Each contestant steps N instances with random actions and resets what ends. jaxenvs runs in one
jitted scan, EnvPool and Gymnasium in a loop of Python. "mjx, plain" is the same task with MJX's own
step, collisions, and line search. "jaxenvs" is for tasks without engines to choose from, "pool" is
Gymnasium's own task in worker processes.
"""

import argparse
import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np

import jaxenvs
from benchmarks._common import (
    Sampler,
    alternate,
    headline,
    new_parser,
    new_report,
    numbers,
    publish,
    quartiles,
    words,
)
from jaxenvs.envs.mujoco import _mjx, physics

IDS = ("InvertedPendulum-v5", "Hopper-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5")
CONTESTANTS = ("mjx", "mjx, plain", "pool", "EnvPool, 1 thread", "EnvPool, 2 threads", "Gymnasium")
Run = Callable[[int], float]  # steps N instances this many times and returns the seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = new_parser("physics", __doc__, has_plot=False)
    add = parser.add_argument
    add("--ids", type=words, default=list(IDS), help="comma-separated")
    add("--num-envs", type=numbers, default=[64], help="comma-separated")
    add("--contestants", type=str, default=";".join(CONTESTANTS), help="separated by semicolons")
    add("--steps", type=int, default=8, help="steps in a scan")
    add("--repeats", type=int, default=5, help="number of repetitions (default 5)")
    add("--min-seconds", type=float, default=0.5, help="minimum duration of a sample")
    options = parser.parse_args(arguments)
    publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    packages = ("gymnasium", "mujoco", "mujoco-mjx", "envpool")
    report = new_report("physics", arguments, packages, options.repeats)
    report["measurements"] = []
    for id in options.ids:
        for num_envs in options.num_envs:
            with contextlib.ExitStack() as stack:
                samplers, compiled = {}, {}
                for name in options.contestants.split(";"):
                    make = functools.partial(_contestant, name, id, num_envs, options.steps)
                    run, compiled[name] = stack.enter_context(make())
                    samplers[name] = Sampler(run)
                alternate(list(samplers.values()), options.repeats, options.min_seconds)
            for name, sampler in samplers.items():
                steps = sampler.calls * num_envs * options.steps
                report["measurements"].append(
                    {
                        "id": id,
                        "num_envs": num_envs,
                        "contestant": name,
                        "steps_per_second": [steps / seconds for seconds in sampler.seconds],
                        "compile_seconds": compiled[name],
                    }
                )
                print(_row(report["measurements"][-1]), flush=True)
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    titles = ("id", "N", "contestant", "steps/s", "compile, s")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    return "\n".join([headline(report, "steps"), "", *lines, *map(_row, report["measurements"])])


def _row(entry: dict[str, Any]) -> str:
    low, middle, high = quartiles(entry["steps_per_second"])
    compiled = entry["compile_seconds"]
    cells = [
        entry["id"],
        f"{entry['num_envs']:,}",
        entry["contestant"],
        f"{middle:,.0f} [{low:,.0f}, {high:,.0f}]",
        "" if compiled is None else f"{compiled:.1f}",
    ]
    return f"| {' | '.join(cells)} |"


@contextlib.contextmanager
def _contestant(
    name: str, id: str, num_envs: int, steps: int
) -> Iterator[tuple[Run, float | None]]:
    """Yields the function to time, and the seconds that its program took to compile."""
    if name.startswith("EnvPool"):
        import envpool

        threads = int(name.split()[1])
        pool: Any = envpool.make(id, "gymnasium", num_envs=num_envs, num_threads=threads)
        pool.reset()
        try:
            yield _loop(pool.step, pool.action_space, (num_envs,), steps), None
        finally:
            pool.close()
    elif name == "Gymnasium":
        import gymnasium

        envs = gymnasium.make_vec(id, num_envs, "sync")
        envs.reset()
        yield _loop(envs.step, envs.single_action_space, (num_envs,), steps), None
        envs.close()
    elif name == "mjx, plain":
        with mock.patch.object(physics, "simulate", _plain_steps), _plain_functions():
            yield _scan(jaxenvs.make_vec(id, num_envs, engine="mjx"), steps)
    else:
        library = "gymnasium/" if name == "pool" else ""
        engine: dict[str, Any] = {"engine": name} if name == "mjx" else {}
        env: Any = jaxenvs.make_vec(library + id, num_envs, **engine)
        try:
            yield _scan(env, steps)
        finally:
            if name == "pool":
                env.close()


def _plain_steps(model: Any, start: Any, frame_skip: int) -> Any:
    return jax.lax.fori_loop(0, frame_skip, lambda _, data: _mjx.mjx.step(model, data), start)


@contextlib.contextmanager
def _plain_functions() -> Iterator[None]:
    """Runs MJX's own functions while jaxenvs traces, too."""
    with mock.patch.object(_mjx, "_is_ours", mock.Mock(get=lambda: False)):
        yield


def _scan(env: Any, steps: int) -> tuple[Run, float]:
    def scan(state: Any, key: Any) -> Any:
        def step(state: Any, key: Any) -> Any:
            state, timestep = env.step(state, env.action_space.sample(key), key)
            return state, timestep.reward.sum()

        return jax.lax.scan(step, state, jax.random.split(key, steps))

    state, _ = jax.jit(env.reset)(jax.random.key(0))
    start = time.perf_counter()
    program = jax.jit(scan).lower(state, jax.random.key(0)).compile()
    compile_seconds = time.perf_counter() - start
    carry = {"state": state, "calls": 0}

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            carry["calls"] += 1
            carry["state"], total = program(carry["state"], jax.random.key(carry["calls"]))
            total.block_until_ready()
        return time.perf_counter() - start

    return run, compile_seconds


def _loop(step: Any, space: Any, shape: tuple[int, ...], steps: int) -> Run:
    random = np.random.default_rng(0)
    if hasattr(space, "n"):
        actions = random.integers(space.n, size=(64, *shape)).astype(space.dtype)
    else:
        low, high = space.low, space.high
        actions = random.uniform(low, high, (64, *shape, *low.shape)).astype(low.dtype)

    def run(calls: int) -> float:
        start = time.perf_counter()
        for i in range(calls * steps):
            step(actions[i % len(actions)])
        return time.perf_counter() - start

    return run


if __name__ == "__main__":
    main()
