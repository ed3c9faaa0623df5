"""Trains in mazes by several curricula, and measures what the curricula cost.

    python -m benchmarks.curricula --output auto --plot auto
    python -m benchmarks.curricula --only cost

Each curriculum trains the same policy for the same number of environment steps in mazes of 13 x 13
cells with 60 walls. Then sampled actions play each of the eight test mazes, with the limit of 450
steps that papers use. Costs are those of a curriculum's own functions, beside a whole update of
domain randomization, and beside `insert_batch` of jaxued, if it is installed.
"""

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from benchmarks import _common
from jaxenvs.envs.minigrid.maze import MazeLevel, mutate
from jaxenvs.envs.minigrid.mazes import TEST_MAZES
from jaxenvs.training import PPO, ActorCritic, make_train
from jaxenvs.training.curricula import (
    ACCEL,
    Curriculum,
    DomainRandomization,
    LevelBuffer,
    LevelSteps,
    PrioritizedLevelReplay,
    SamplingForLearnability,
)

ID = "MiniGrid-Maze-13x13-v0"
BUFFER = LevelBuffer(capacity=4_000, temperature=0.3, staleness=0.3)
CURRICULA: dict[str, Curriculum] = {
    "DR": DomainRandomization(),
    "PLR": PrioritizedLevelReplay(BUFFER, score="max_monte_carlo", robust=False),
    "robust PLR": PrioritizedLevelReplay(BUFFER, score="max_monte_carlo"),
    "ACCEL": ACCEL(BUFFER, score="max_monte_carlo", mutate=mutate),
    "SFL": SamplingForLearnability(num_kept=1_000, num_candidates=5_000, period=50),
}
NUM_ENVS, UNROLL_LENGTH = 256, 256
ATTEMPTS, TEST_LIMIT = 20, 450  # in each test maze
COST_SIZES = (32, 256, 1_024)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("curricula", __doc__, has_plot=True)
    add = parser.add_argument
    add("--steps", type=int, default=10_000_000, help="environment steps of a training")
    add("--seeds", type=int, default=3, help="trainings of each curriculum (default 3)")
    add("--curricula", type=_common.choices([*CURRICULA]), default=[*CURRICULA])
    add("--only", choices=["cost", "mazes"], help="one of the two parts")
    options = parser.parse_args(arguments)
    _common.publish(options, functools.partial(measure, options, arguments), table, plot)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures both parts; returns the report for JSON."""
    report = _common.new_report("curricula", arguments, ["flax", "optax"], options.seeds)
    report |= {"id": ID, "steps": options.steps, "costs": [], "measurements": []}
    if options.only != "mazes":
        report["costs"] = [entry for size in COST_SIZES for entry in costs(size)]
    if options.only != "cost":
        for name in options.curricula:
            for entry in learn(name, options.steps, options.seeds):
                report["measurements"].append(entry)
                if not options.quiet:
                    print(
                        f"{name}: solved {np.mean([*entry['solved'].values()]):.2f}",
                        file=sys.stderr,
                    )
    return report


def make_program(curriculum: Curriculum, num_envs: int, steps: int) -> Any:
    """Returns the training program; its network is that of jaxued without the memory."""
    return make_train(
        ID,
        PPO(
            learning_rate=5e-4,
            gamma=0.995,
            gae_lambda=0.98,
            entropy_coefficient=1e-3,
            epochs=4,
            minibatches=8,
        ),
        actor=ActorCritic(shared=True),
        num_envs=num_envs,
        unroll_length=UNROLL_LENGTH,
        total_steps=steps,
        curriculum=curriculum,
    )


def learn(name: str, steps: int, seeds: int) -> list[dict[str, Any]]:
    """Trains with each seed; returns solve rates by test maze."""
    train = make_program(CURRICULA[name], NUM_ENVS, steps)
    run, entries = jax.jit(train), []
    for seed in range(seeds):
        begin = time.perf_counter()
        result = jax.block_until_ready(run(jax.random.key(seed)))
        seconds = time.perf_counter() - begin
        policy = train.policy(result.learner_state, greedy=False)
        entries.append(
            {
                "curriculum": name,
                "seed": seed,
                "seconds": seconds,
                "gradient_steps": int(result.learner_state.weights.gradient_steps),
                "solved": solve_rates(policy),
            }
        )
    return entries


def solve_rates(policy: Any) -> dict[str, float]:
    """Returns how often sampled actions reach the goal of each test maze."""
    env = jaxenvs.make(ID, max_steps=TEST_LIMIT)
    levels = [MazeLevel.from_name(name) for name in TEST_MAZES for _ in range(ATTEMPTS)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *levels)
    envs = jaxenvs.vectorize(env, len(levels)).at_levels(stacked)
    found = jaxenvs.evaluate(envs, policy, 1, jax.random.key(0))
    solved = (np.asarray(found.episode_return[0]) > 0).reshape(len(TEST_MAZES), ATTEMPTS)
    return dict(zip(TEST_MAZES, solved.mean(axis=1).tolist(), strict=True))


def costs(num_envs: int) -> list[dict[str, Any]]:
    """Returns the milliseconds of a curriculum's functions with a full buffer, and of an update."""
    env: Any = jaxenvs.make(ID)
    train = make_program(DomainRandomization(), num_envs, num_envs * UNROLL_LENGTH)
    update, state = jax.jit(train.update), train.init(jax.random.key(0))
    found = {"update of DR": timed(lambda: update(state), repeats=3)}
    rng = np.random.default_rng(0)
    steps = LevelSteps(
        reward=jnp.asarray(rng.random((UNROLL_LENGTH, num_envs)) < 0.01, jnp.float32),
        done=jnp.asarray(rng.random((UNROLL_LENGTH, num_envs)) < 0.02),
        value=jnp.asarray(rng.random((UNROLL_LENGTH, num_envs)), jnp.float32),
        advantage=jnp.asarray(rng.normal(size=(UNROLL_LENGTH, num_envs)), jnp.float32),
    )
    for name in ("DR", "robust PLR", "ACCEL"):
        curriculum = CURRICULA[name]

        @jax.jit
        def cycle(state: Any, key: Any, curriculum: Any = curriculum) -> Any:
            state, draw = curriculum.sample(env, state, key, num_envs)
            return curriculum.update(state, draw, steps)

        own = curriculum.init(env, num_envs)
        keys = jax.random.split(jax.random.key(1), 2 * BUFFER.capacity // num_envs + 40)
        for key in keys:  # fills the buffer
            own = cycle(own, key)
        later = iter(jax.random.split(jax.random.key(2), 1_000))
        held = [own]

        def step(cycle: Any = cycle, held: Any = held, later: Any = later) -> Any:
            held[0] = cycle(held[0], next(later))
            return held[0]

        found[f"levels of {name}"] = timed(step, repeats=40)
    return [
        {"num_envs": num_envs, "what": what, "milliseconds": 1e3 * seconds}
        for what, seconds in {**found, **theirs(num_envs)}.items()
    ]


def theirs(num_envs: int) -> dict[str, float]:
    """Returns the seconds of jaxued's sampler, if it is installed."""
    if not hasattr(jax, "tree_map"):
        vars(jax)["tree_map"] = jax.tree.map  # its release is older than this name's end
    try:
        from jaxued.level_sampler import LevelSampler  # pyright: ignore[reportMissingImports]
    except ImportError:
        return {}
    sampler = LevelSampler(
        BUFFER.capacity,
        staleness_coeff=0.3,
        prioritization_params={"temperature": 0.3},
        duplicate_check=True,
    )
    levels = jax.random.bernoulli(jax.random.key(0), 0.3, (BUFFER.capacity, 13, 13))
    scores = jax.random.normal(jax.random.key(1), (BUFFER.capacity,))
    insert = jax.jit(sampler.insert_batch)
    state, _ = insert(sampler.initialize(levels[0]), levels, scores)
    draw = jax.jit(sampler.sample_replay_levels, static_argnums=2)
    new = ~levels[:num_envs]
    return {
        "jaxued, draw": timed(lambda: draw(state, jax.random.key(2), num_envs), repeats=10),
        "jaxued, insert": timed(lambda: insert(state, new, scores[:num_envs]), repeats=10),
    }


def timed(call: Callable[[], Any], repeats: int) -> float:
    """Returns the median of the seconds of a call, after one that compiles."""
    jax.block_until_ready(call())
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        jax.block_until_ready(call())
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    lines = [_common.headline(report, f"{report['steps']:,} steps in {report['id']}"), ""]
    if report["measurements"]:
        names = list(dict.fromkeys(entry["curriculum"] for entry in report["measurements"]))
        lines += ["| solved | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
        for maze in (*TEST_MAZES, "all"):
            cells = []
            for name in names:
                own = [e["solved"] for e in report["measurements"] if e["curriculum"] == name]
                rates = [np.mean([*e.values()]) if maze == "all" else e[maze] for e in own]
                cells.append(f"{np.mean(rates):.2f} ({min(rates):.2f} to {max(rates):.2f})")
            lines.append(f"| {maze} | " + " | ".join(cells) + " |")
        lines.append("")
    if report["costs"]:
        sizes = list(dict.fromkeys(entry["num_envs"] for entry in report["costs"]))
        lines += ["| ms | " + " | ".join(f"N = {size:,}" for size in sizes) + " |"]
        lines.append("|---" * (len(sizes) + 1) + "|")
        for what in dict.fromkeys(entry["what"] for entry in report["costs"]):
            row = [e["milliseconds"] for e in report["costs"] if e["what"] == what]
            lines.append(f"| {what} | " + " | ".join(f"{x:.3g}" for x in row) + " |")
    return "\n".join(lines)


def plot(report: dict[str, Any], path: Path) -> None:
    """Draws the solve rate of each curriculum, a point for each seed."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 3.5))
    names = list(dict.fromkeys(entry["curriculum"] for entry in report["measurements"]))
    for i, name in enumerate(names):
        own = [e["solved"] for e in report["measurements"] if e["curriculum"] == name]
        rates = [np.mean([*each.values()]) for each in own]
        axes.plot([i] * len(rates), rates, "o", alpha=0.6)
        axes.plot([i - 0.2, i + 0.2], [np.mean(rates)] * 2, "k-")
    axes.set(xticks=range(len(names)), xticklabels=names, ylabel="test mazes solved", ylim=(0, 1))
    figure.tight_layout()
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
