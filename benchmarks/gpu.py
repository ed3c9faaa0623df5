"""Measures on the device that JAX has, such as a GPU, in eight minutes at most.

    python -m benchmarks.gpu --only physics --output auto

The cases of all parts share the time. A case whose program would probably not compile in what is
left is not begun, and one that has not ended by then is given up; the report says so.

- "physics": Hopper, HalfCheetah, Ant, and Humanoid with every engine of jaxenvs, and, if it is
  installed, tasks of MuJoCo Playground. N instances take random actions in a jitted scan and are
  reset when they end. Playground's tasks have other models and control steps, so physics steps per
  second are reported, too. The engine "c" runs on the processor.
- "atari": a game with small pictures, which runs on the processor and is called back.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import jaxenvs
from benchmarks._common import (
    choices,
    headline,
    new_parser,
    new_report,
    numbers,
    publish,
    quartiles,
    words,
)
from jaxenvs import physics

IDS = "Hopper-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5"
GAME = "ALE/Breakout-v5"
PLAYGROUND = "HopperHop", "CheetahRun", "HumanoidRun"
ENGINES = *physics.ENGINES, "Playground, jax", "Playground, warp"
MOST_SAMPLES = 30  # of a case
Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to measure: `run(end)` does so until about `end` (`time.perf_counter()`)."""

    name: dict[str, Any]
    program: Any  # cases with the same value take about the same time to compile
    run: Callable[[float], Result]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = new_parser("gpu", __doc__, has_plot=False)
    add = parser.add_argument
    add("--only", type=choices(list(PARTS)), default=list(PARTS), help=f"of {', '.join(PARTS)}")
    add("--minutes", type=float, default=8.0, help="for all parts together")
    add("--ids", type=words, default=list(IDS), help="of jaxenvs' physics, comma-separated")
    add("--playground", type=words, default=list(PLAYGROUND), help="names of its environments")
    add("--engines", default=";".join(ENGINES), help="of the physics, separated by semicolons")
    add("--num-envs", type=numbers, default=[1024, 4096, 8192], help="of the physics")
    add("--steps", type=int, default=32, help="steps in a scan")
    options = parser.parse_args(arguments)
    publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report. Its measurements name their part; those that failed have an error."""
    start = time.perf_counter()
    packages = ("gymnasium", "mujoco", "mujoco-mjx", "playground", "warp-lang")
    report = new_report("gpu", arguments, packages, MOST_SAMPLES)
    report["measurements"] = []
    cases = [(part, case) for part in options.only for case in PARTS[part](options)]
    end = start + 60 * options.minutes
    compiled: dict[Any, float] = {}  # seconds, by program
    for i, (part, case) in enumerate(cases):
        now = time.perf_counter()
        if now + compiled.get(case.program, 0) >= end:
            found: Result = {"error": "no time was left"}
        else:
            found = _run(case, now + (end - now) / (len(cases) - i), end)
        compiled[case.program] = found.get("compile_seconds", 0)
        report["measurements"].append({"part": part, **case.name, **found})
        if not options.quiet:
            print(_row(report["measurements"][-1]), flush=True)
        jax.clear_caches()  # and with them the memory of programs
    report["seconds"] = time.perf_counter() - start
    return report


def _run(case: Case, until: float, end: float) -> Result:
    """Runs a case in a thread, which is left alone if it has not ended at `end`."""
    results: list[Result] = []

    def run() -> None:
        try:
            results.append(case.run(until))
        except Exception as error:  # the other cases matter
            text = next(iter(str(error).strip().splitlines()), "")
            results.append({"error": f"{type(error).__name__}: {text[:200]}"})

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, end - time.perf_counter()))
    return results[0] if results else {"error": "it had not ended when the time was over"}


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    titles = ("id", "engine", "N", "steps/s", "physics steps/s", "compile, s")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    return "\n".join([headline(report, "steps"), "", *lines, *map(_row, report["measurements"])])


def _row(entry: dict[str, Any]) -> str:
    cells = [entry["id"], entry["engine"], f"{entry['num_envs']:,}"]
    if "error" in entry:
        cells += [entry["error"], "", ""]
    else:
        low, middle, high = quartiles(entry["steps_per_second"])
        cells += [
            f"{middle:,.0f} [{low:,.0f}, {high:,.0f}]",
            f"{middle * entry['physics_steps']:,.0f}",
            f"{entry['compile_seconds']:.1f}",
        ]
    return f"| {' | '.join(cells)} |"


def _physics(options: argparse.Namespace) -> Iterator[Case]:
    """Yields the cases of physics, those with few instances first."""
    has_playground = importlib.util.find_spec("mujoco_playground") is not None
    for num_envs in options.num_envs:
        for engine in options.engines.split(";"):
            impl = engine.partition(", ")[2]
            if not impl:
                for id in options.ids:
                    yield _case(_ours, id, engine, num_envs, options.steps, engine)
            elif has_playground and (impl == "jax" or importlib.util.find_spec(impl)):
                for name in options.playground:
                    yield _case(_playground, name, engine, num_envs, options.steps, impl)


def _case(
    make: Callable[..., Result], id: str, engine: str, num_envs: int, steps: int, chosen: str
) -> Case:
    name = {"id": id, "engine": engine, "num_envs": num_envs}
    return Case(name, (id, engine), functools.partial(make, id, num_envs, steps, chosen))


def _atari(options: argparse.Namespace) -> Iterator[Case]:
    for num_envs in options.num_envs:
        yield _case(_game, GAME, "callback", num_envs, options.steps, "")


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Case]]] = {
    "physics": _physics,
    "atari": _atari,
}


def _ours(id: str, num_envs: int, steps: int, engine: str, until: float) -> Result:
    is_on_cpu = engine == "c" and jax.default_backend() != "cpu"
    cpu = jax.default_device(jax.devices("cpu")[0]) if is_on_cpu else contextlib.nullcontext()
    with cpu:
        found = _play(jaxenvs.make_vec(id, num_envs, engine=engine), steps, until)
        return {**found, "physics_steps": jaxenvs.make(id, engine=engine).unwrapped._num_steps}  # pyright: ignore[reportAttributeAccessIssue]


def _game(id: str, num_envs: int, steps: int, _: str, until: float) -> Result:
    found = _play(jaxenvs.make_vec(id, num_envs, preprocessing=True), steps, until)
    return {**found, "physics_steps": 4}  # frames


def _play(env: Any, steps: int, until: float) -> Result:
    def step(state: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        action_key, step_key = jax.random.split(key)
        state, timestep = env.step(state, env.action_space.sample(action_key), step_key)
        return state, timestep.observation, timestep.reward

    return _scan(lambda key: env.reset(key)[0], step, env.num_envs, steps, until)


def _playground(name: str, num_envs: int, steps: int, impl: str, until: float) -> Result:
    """Measures Playground, whose resets return to the first state of an instance."""
    from mujoco_playground import registry, wrapper

    single = registry.load(name, config_overrides={"impl": impl})
    env = wrapper.wrap_for_brax_training(single)

    def reset(key: jax.Array) -> Any:
        return env.reset(jax.random.key_data(jax.random.split(key, num_envs)))  # keys of old

    def step(state: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        action = jax.random.uniform(key, (num_envs, single.action_size), minval=-1, maxval=1)
        state = env.step(state, action)
        return state, state.obs, state.reward

    found = _scan(reset, step, num_envs, steps, until)
    return {**found, "physics_steps": single.n_substeps}


def _scan(
    reset: Callable[[jax.Array], Any],
    step: Callable[[Any, jax.Array], tuple[Any, Any, Any]],
    num_envs: int,
    steps: int,
    until: float,
) -> Result:
    """Returns the speed of a scan of steps, measured until a time, at least once."""

    @jax.jit
    def run(state: Any, key: jax.Array) -> Any:
        def body(carry: Any, _: None) -> Any:
            state, key, total = carry
            key, step_key = jax.random.split(key)
            state, observation, reward = step(state, step_key)
            leaves = jax.tree.leaves((observation, reward))
            seen = sum(jnp.sum(leaf, dtype=jnp.float32) for leaf in leaves)
            return (state, key, total + seen), None

        return jax.lax.scan(body, (state, key, jnp.float32(0)), length=steps)[0]

    start = time.perf_counter()
    state = jax.block_until_ready(jax.jit(reset)(jax.random.key(0)))
    program = run.lower(state, jax.random.key(1)).compile()
    compile_seconds = time.perf_counter() - start
    key, speeds = jax.random.key(1), []
    while not speeds or (time.perf_counter() < until and len(speeds) < MOST_SAMPLES):
        start = time.perf_counter()
        state, key, total = program(state, key)
        total.block_until_ready()
        speeds.append(num_envs * steps / (time.perf_counter() - start))
    # The first call of a program takes longer.
    return {"steps_per_second": speeds[1:] or speeds, "compile_seconds": compile_seconds}


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # without waiting for a program that still compiles
