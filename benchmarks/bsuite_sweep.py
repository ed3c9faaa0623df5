"""Measures how long a random agent takes for the sweep of bsuite, compared with bsuite's own loop.

Ours plays every setting of an experiment to the last episode and writes the records; tracing and
compilation are included, and the latter is also reported by itself. Theirs is
`bsuite.baselines.experiment.run` with bsuite's random agent. It plays every setting for a short
time, and its time for the whole experiment is the time per episode times the number of episodes;
logging is left out. Both sides of an experiment follow each other in one process. The experiments
of MNIST are played if JAXENVS_MNIST_DIR is set.

A random agent costs next to nothing, so this compares environments, loops, and records only.
"""

import argparse
import contextlib
import functools
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

import jax
from bsuite import bsuite
from bsuite.baselines import experiment as their_loop
from bsuite.baselines.random import agent as their_agent

from benchmarks._common import headline, new_parser, new_report, publish, words
from benchmarks.oracles.bsuite import mnist
from jaxenvs.catalog.bsuite import EXPERIMENTS
from jaxenvs.envs.bsuite.mnist import FOLDER
from jaxenvs.faces.bsuite import RandomAgent, run_experiment, write_records

COMPILATION = "/jax/core/compile/backend_compile_duration"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = new_parser("bsuite_sweep", __doc__)
    names = [
        name for name, each in EXPERIMENTS.items() if each.task != "mnist" or os.environ.get(FOLDER)
    ]
    add = parser.add_argument
    add("--experiments", type=words, default=names, help="comma-separated")
    add("--episodes", type=int, help="episodes of each setting (default: bsuite's)")
    add("--seconds", type=float, default=0.2, help="time per setting of bsuite's loop")
    options = parser.parse_args(arguments)
    publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    report = new_report("bsuite_sweep", arguments, ["bsuite"], 1)
    report["measurements"] = []
    for name in options.experiments:
        entry = _measure_experiment(name, options.episodes, options.seconds)
        report["measurements"].append(entry)
        if not options.quiet:
            print(entry, flush=True)
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    rows = report["measurements"]
    keys = ("settings", "steps", "theirs", "ours", "ours_compiling")
    total = {key: sum(row[key] for row in rows) for key in keys}
    lines = [
        headline(report, "a random agent plays every setting"),
        "",
        "| experiment | settings | million steps | bsuite, s | jaxenvs, s | of it compiling, s"
        " | bsuite / jaxenvs |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in (*rows, {"experiment": "all", **total}):
        lines.append(
            f"| {row['experiment']} | {row['settings']} | {row['steps'] / 1e6:.2f}"
            f" | {row['theirs']:.1f} | {row['ours']:.1f} | {row['ours_compiling']:.1f}"
            f" | {row['theirs'] / row['ours']:.1f} |"
        )
    return "\n".join(lines)


def _measure_experiment(name: str, episodes: int | None, seconds: float) -> dict[str, Any]:
    episodes = EXPERIMENTS[name].num_episodes if episodes is None else episodes
    numbers = range(len(EXPERIMENTS[name].settings))
    theirs = sum(episodes * _their_seconds(f"{name}/{i}", seconds) for i in numbers)
    with tempfile.TemporaryDirectory() as folder, _compile_seconds() as compiling:
        start = time.perf_counter()
        rows = run_experiment(name, RandomAgent, key=jax.random.key(0), num_episodes=episodes)
        write_records(folder, rows)
        ours = time.perf_counter() - start
    return {
        "experiment": name,
        "load_average": os.getloadavg()[0],
        "settings": len(numbers),
        "episodes": episodes,
        "steps": sum(own[-1]["steps"] for own in rows.values()),
        "theirs": theirs,
        "ours": ours,
        "ours_compiling": sum(compiling),
    }


def _their_seconds(id: str, seconds: float) -> float:
    """Returns the time per episode of bsuite's loop."""
    load = functools.partial(mnist.datasets.load_mnist, directory=os.environ.get(FOLDER))
    with (
        mock.patch.object(mnist.datasets, "load_mnist", load),
        mock.patch.object(bsuite.termcolor, "cprint"),  # it prints every id
    ):
        env = bsuite.load_from_id(id)
    agent = their_agent.default_agent(env.observation_spec(), env.action_spec())
    their_loop.run(agent, env, 1)
    played, passed, start = 0, 0.0, time.perf_counter()
    while not played or passed < seconds:
        their_loop.run(agent, env, 1)
        played, passed = played + 1, time.perf_counter() - start
    return passed / played


@contextlib.contextmanager
def _compile_seconds() -> Iterator[list[float]]:
    """Collects the durations of compilations by XLA, without tracing."""
    durations: list[float] = []

    def listen(event: str, duration: float, **_: Any) -> None:
        if event == COMPILATION:
            durations.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield durations
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


if __name__ == "__main__":
    main()
