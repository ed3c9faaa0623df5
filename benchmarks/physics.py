"""Measures Gymnasium's MuJoCo and Box2D tasks, and those of other libraries.

    python -m benchmarks.physics --output auto
    python -m benchmarks.physics --ids LunarLander-v3 --num-envs 256 --output box2d.json

All contestants of a case step N instances with random actions and reset what ends, in one process
and in turn, each with 1 thread and with 2:

- "jit": `make_vec` in a jitted scan, whose carry sums observations and rewards;
- "make_gym" and "EnvPool", stepped from Python; EnvPool is beside "jit", too;
- "pool": Gymnasium's own task in worker processes, as many as threads;
- "Gymnasium": one instance of Gymnasium's own, stepped from Python;
- "mjx", with --mjx, since its programs compile for long: as "jit", with the engine MJX.
"""

import argparse
import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

if __name__ == "__main__":  # before JAX reads it, so that programs have the threads of the engine
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")

import jax
import jax.numpy as jnp

import jaxenvs
from benchmarks import _common

IDS = (
    *("InvertedPendulum-v5", "Hopper-v5", "Walker2d-v5", "HalfCheetah-v5", "Ant-v5"),
    "Humanoid-v5",
)
SIZES = (1, 16, 64, 256, 1024)
Run = Callable[[int], float]  # steps N instances this many times and returns the seconds


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("physics", __doc__)
    add = parser.add_argument
    add("--ids", type=_common.words, default=list(IDS), help="comma-separated")
    add("--num-envs", type=_common.numbers, default=list(SIZES), help="comma-separated")
    add("--threads", type=_common.numbers, default=[1, 2], help="comma-separated")
    add("--mjx", action="store_true", help="MJX, too, with 64 instances")
    add("--steps", type=int, default=64, help="steps in a scan")
    add("--repeats", type=int, default=7, help="number of repetitions (default 7)")
    add("--min-seconds", type=float, default=0.3, help="minimum duration of a sample")
    options = parser.parse_args(arguments)
    _common.publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    packages = ("gymnasium", "mujoco", "mujoco-mjx", "envpool")
    report = _common.new_report("physics", arguments, packages, options.repeats)
    report["measurements"] = []
    for id in options.ids:
        for num_envs in options.num_envs:
            names = contestants(id, num_envs, options.threads, options.mjx)
            report["measurements"] += _measure_case(id, num_envs, names, options)
    return report


def contestants(id: str, num_envs: int, threads: Sequence[int], mjx: bool) -> list[tuple[str, int]]:
    """Returns the names and threads of what is measured with this id and number of instances."""
    if num_envs == 1:
        return [("jit", 1), ("make_gym", 1), ("Gymnasium", 1)]
    kinds = ["jit"] * (num_envs >= 64) + ["make_gym"] * (num_envs <= 64) + ["EnvPool"]
    found = [(kind, count) for kind in kinds for count in threads]
    if num_envs == 64:
        found += [("pool", max(threads))] + [("mjx", 1)] * mjx
    if "num_threads" not in jaxenvs.make(id).parameters:  # a program that does not divide its work
        found = [(kind, count) for kind, count in found if kind == "EnvPool" or count == threads[0]]
    return found


def _measure_case(
    id: str, num_envs: int, names: Sequence[tuple[str, int]], options: argparse.Namespace
) -> list[dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(CONTESTANTS[kind](id, num_envs, threads, options.steps))
            for kind, threads in names
        ]
        runs = [(run, steps * num_envs) for run, steps, _ in made]
        found = _common.speeds(runs, options.repeats, options.min_seconds)
    entries = []
    for (kind, threads), measured, (*_, seconds) in zip(names, found, made, strict=True):
        case = {"id": id, "num_envs": num_envs, "contestant": kind, "threads": threads}
        entries.append({**case, "steps_per_second": measured, "compile_seconds": seconds})
        if not options.quiet:
            print(*_row(entries[-1]), sep=", ", flush=True)
    return entries


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    titles = "id", "N", "contestant", "threads", "steps/s", "compile, s"
    lines = _common.markdown(titles, map(_row, report["measurements"]))
    return "\n".join([_common.headline(report, "steps"), "", *lines])


def _row(entry: dict[str, Any]) -> list[str]:
    compiled = entry["compile_seconds"]
    return [
        entry["id"],
        f"{entry['num_envs']:,}",
        entry["contestant"],
        f"{entry['threads']}",
        _common.spread(entry["steps_per_second"], ",.0f"),
        "" if compiled is None else f"{compiled:.1f}",
    ]


# Contestants. Each yields the function to time, the steps of all instances that a call of it
# takes, and the seconds that its program took to compile.

Made = Iterator[tuple[Run, int, float | None]]


@contextlib.contextmanager
def _jit(id: str, num_envs: int, threads: int, steps: int, **parameters: Any) -> Made:
    env = jaxenvs.make_vec(id, num_envs, **_of_threads(id, threads), **parameters)

    @jax.jit
    def scan(state: Any, key: jax.Array, actions: jax.Array) -> Any:
        def step(carry: Any, action: jax.Array) -> Any:
            state, key, total = carry
            key, step_key = jax.random.split(key)
            state, timestep = env.step(state, action, step_key)
            seen = sum(leaf.sum() for leaf in jax.tree.leaves(timestep.observation))
            return (state, key, total + seen + timestep.reward.sum()), None

        carry = state, key, jnp.float32(0)
        return jax.lax.scan(step, carry, actions)[0]

    carry = jax.jit(env.reset)(jax.random.key(0))[0], jax.random.key(1)
    actions = jnp.asarray(_common.random_actions(env.single_action_space, (steps, num_envs)))
    start = time.perf_counter()
    program = scan.lower(*carry, actions).compile()
    seconds = time.perf_counter() - start

    def run(calls: int) -> float:
        nonlocal carry
        start = time.perf_counter()
        for _ in range(calls):
            *carry, total = program(*carry, actions)
            total.block_until_ready()
        return time.perf_counter() - start

    yield run, steps, seconds


@contextlib.contextmanager
def _make_gym(id: str, num_envs: int, threads: int, steps: int) -> Made:
    if num_envs == 1:
        env = jaxenvs.make_gym(id, **_of_threads(id, threads))
        yield _one(env), 1, None
    else:
        env = jaxenvs.make_gym(id, num_envs, **_of_threads(id, threads))
        env.reset(seed=0)
        yield _common.stepping(env.step, env.single_action_space, num_envs), 1, None
    env.close()


@contextlib.contextmanager
def _envpool(id: str, num_envs: int, threads: int, steps: int) -> Made:
    import envpool

    pool: Any = envpool.make(id, "gymnasium", num_envs=num_envs, num_threads=threads)
    pool.reset()
    try:
        yield _common.stepping(pool.step, pool.action_space, num_envs), 1, None
    finally:
        pool.close()


@contextlib.contextmanager
def _pool(id: str, num_envs: int, threads: int, steps: int) -> Made:
    with jaxenvs.make_pool(f"gymnasium/{id}", num_envs, num_workers=threads, seed=0) as pool:
        pool.reset()
        yield _common.stepping(pool.step, pool.single_action_space, num_envs), 1, None


@contextlib.contextmanager
def _gymnasium(id: str, num_envs: int, threads: int, steps: int) -> Made:
    import gymnasium

    env = gymnasium.make(id)
    yield _one(env), 1, None
    env.close()


CONTESTANTS: dict[str, Callable[..., contextlib.AbstractContextManager[Any]]] = {
    "jit": _jit,
    "make_gym": _make_gym,
    "EnvPool": _envpool,
    "pool": _pool,
    "Gymnasium": _gymnasium,
    "mjx": functools.partial(_jit, engine="mjx"),
}


def _of_threads(id: str, threads: int) -> dict[str, int]:
    """Returns the parameter that sets the threads of an id, if it has one."""
    return {"num_threads": threads} if "num_threads" in jaxenvs.make(id).parameters else {}


def _one(env: Any) -> Run:
    """Returns a loop over one instance that resets it when an episode ends."""
    env.reset(seed=0)

    def step(actions: Any) -> None:
        _, _, terminated, truncated, _ = env.step(actions[0])
        if terminated or truncated:
            env.reset()

    return _common.stepping(step, env.action_space, 1)


if __name__ == "__main__":
    main()
