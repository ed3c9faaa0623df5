"""Trains CartPole with every combination of collection, gradients, and update in a `Scheme`.

    python -m benchmarks.schemes --output auto                   # workers are threads
    python -m benchmarks.schemes --places ray --seeds 0          # workers are Ray actors
    python -m benchmarks.schemes --algorithms DQN --only async/async/centralized

Each combination trains until the greedy policy has a mean return of 475 over a hundred episodes in
separate environments, or until it has used up its steps. The lags are means over the training: the
age, in updates, of the weights that collected, and the age, in gradient steps, of the weights of a
gradient.
"""

import argparse
import dataclasses
import importlib.util
import itertools
import sys
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from benchmarks import _common
from jaxenvs.training import (
    DQN,
    GAE,
    PPO,
    Algorithm,
    Learner,
    PrioritizedReplay,
    QNetwork,
    Scheme,
    Storage,
    VTrace,
    central,
    remote,
)

ID, TARGET, EPISODES = "CartPole-v1", 475.0, 100
EVALUATE_EVERY = 10_000  # environment steps
WORKERS = 2  # gradient workers, and collectors for each of them
MODES = ("central", "sync", "async")
ALGORITHMS = {"PPO": 400_000, "DQN": 120_000}  # maximum steps of a training run
PLACES = ("threads", "devices", "ray")


@dataclasses.dataclass(frozen=True)
class Case:
    """A combination and the place of its workers."""

    algorithm: str
    collection: str
    gradients: str
    update: str
    place: str

    @property
    def name(self) -> str:
        """Returns the name for `--only`: collection/gradients/update."""
        return f"{self.collection}/{self.gradients}/{self.update}"

    def scheme(self) -> Scheme:
        """Returns the scheme, with settings for its algorithm."""
        algorithm, storage = self._parts()
        # Synchronous workers share an update, so each collects a part of it.
        shared = [mode for mode in (self.collection, self.gradients) if mode == "sync"]
        return Scheme(
            env=ID,
            algorithm=algorithm,
            actor=QNetwork(hidden_sizes=(64, 64)) if self.algorithm == "DQN" else None,
            storage=storage,
            num_envs=16 // WORKERS ** len(shared),
            unroll_length=16 if self.algorithm == "DQN" else 32,
            collection=self._operation(self.collection),
            gradients=self._operation(self.gradients),
            update=self.update,  # pyright: ignore[reportArgumentType] one of `combinations`
        )

    def _parts(self) -> tuple[Algorithm, Storage]:
        if self.algorithm == "DQN":
            algorithm = DQN(
                learning_rate=2e-3,
                batch_size=256,
                replay_ratio=1 / 8,
                target_update_every=1,
                tau=0.01,
                exploration_steps=24_000,
            )
            return algorithm, PrioritizedReplay(capacity=20_000, n_step=5, beta_steps=120_000)
        storage = VTrace() if self.collection == "async" else GAE()
        return PPO(learning_rate=1e-3, clip_value=False), storage

    def _operation(self, mode: str) -> Any:
        if mode == "central":
            return central()
        resources = {"threads": jax.devices()[:1], "devices": None, "ray": {"num_cpus": 0.1}}
        return remote(WORKERS, sync=mode == "sync", resources=resources[self.place])


def cases(algorithms: Sequence[str], places: Sequence[str], only: Sequence[str]) -> list[Case]:
    """Returns all combinations that `Scheme` accepts, once for each place that matters to them."""
    return [
        case
        for algorithm, place, collection, gradients in itertools.product(
            algorithms, places, MODES, MODES
        )
        for update in ("centralized", *(["decentralized"] if gradients == "sync" else []))
        if (case := Case(algorithm, collection, gradients, update, place))
        and (not only or case.name in only)
        and _place_matters(case)
    ]


def _place_matters(case: Case) -> bool:
    if case.place == "devices":  # one program over several devices supports one combination
        kind = (case.collection, case.gradients, case.update)
        return kind == ("central", "sync", "decentralized")
    return case.place == "threads" or {case.collection, case.gradients} != {"central"}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    options = _parse(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains the combinations that `options` select; returns the report for JSON."""
    packages = ("flax", "optax", "distrax", "ray")
    report = _common.new_report("schemes", arguments, packages, len(options.seeds))
    report |= {"seeds": options.seeds, "target": TARGET, "measurements": []}
    for case in cases(options.algorithms, options.places, options.only):
        limit = max(1, int(options.share * ALGORITHMS[case.algorithm]))
        runs = []
        for seed in options.seeds:
            runs.append(train(case, seed, limit))
            if not options.quiet:
                line = ", ".join(f"{name} {value:,.4g}" for name, value in runs[-1].items())
                print(f"{case.algorithm} {case.place} {case.name}: {line}", file=sys.stderr)
        runs = {name: [run[name] for run in runs] for name in runs[0]}
        report["measurements"].append({**dataclasses.asdict(case), "limit": limit, **runs})
    return report


def train(case: Case, seed: int, limit: int) -> dict[str, float]:
    """Trains once; returns its last return, steps, seconds, and mean lags (NaN if none).

    `start_seconds` is the time until the end of the first update and evaluation, including
    compilation.
    """
    begin, mean = time.perf_counter(), -np.inf
    lags: dict[str, list[float]] = {"collection_lag": [], "gradient_lag": []}
    with Learner(case.scheme(), total_steps=limit, seed=seed) as learner:
        metrics, evaluated = learner.step(), 0.0
        float(learner.evaluate(EPISODES).mean)
        start = time.perf_counter()
        while mean < TARGET and not learner.done():
            metrics = learner.step()
            for name, values in lags.items():
                values.append(metrics.get(name, np.nan))
            if metrics["steps"] - evaluated >= EVALUATE_EVERY or learner.done():
                evaluated, mean = metrics["steps"], float(learner.evaluate(EPISODES).mean)
        return {
            "return": mean,
            "steps": metrics["steps"],
            "seconds": time.perf_counter() - start,
            "start_seconds": start - begin,
            **{name: _mean(values) for name, values in lags.items()},
        }


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    work = f"greedy returns in {EPISODES} episodes; lags are means"
    lines = [
        _common.headline(report, work),
        "",
        "| algorithm | workers | collection | gradients | update | solved | return | steps "
        "| seconds | seconds to start | collection lag | gradient lag |",
        "|" + "---|" * 12,
    ]
    for entry in report["measurements"]:
        solved = sum(mean >= report["target"] for mean in entry["return"])
        operations = (entry[name] for name in ("collection", "gradients", "update"))
        cells = [
            *(entry["algorithm"], entry["place"], *operations),
            f"{solved} of {len(entry['return'])}",
            *(_quartiles(entry[name]) for name in ("return", "steps", "seconds", "start_seconds")),
            *(_lag(entry[name]) for name in ("collection_lag", "gradient_lag")),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _quartiles(values: Sequence[float]) -> str:
    low, middle, high = (f"{each:,.0f}" for each in _common.quartiles(values))
    return middle if len(values) == 1 else f"{middle} [{low}, {high}]"


def _lag(values: Sequence[float]) -> str:
    mean = _mean(values)
    return "" if np.isnan(mean) else f"{mean:.2f}"


def _mean(values: Sequence[float]) -> float:
    """Returns the mean without NaNs, or NaN if there is nothing else."""
    known = [value for value in values if not np.isnan(value)]
    return float(np.mean(known)) if known else float("nan")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [case.name for case in cases(["PPO"], ["threads"], [])]
    parser = _common.new_parser("schemes", __doc__)
    add = parser.add_argument
    algorithms = list(ALGORITHMS)
    add(
        "--algorithms",
        type=_common.choices(algorithms),
        default=algorithms,
        help=f"some of {', '.join(algorithms)}",
    )
    add(
        "--places",
        type=_common.choices(PLACES),
        default=_places(),
        help=f"some of {', '.join(PLACES)}",
    )
    add(
        "--only",
        type=_common.choices(names),
        default=[],
        help=f"comma-separated: {', '.join(names)}",
    )
    add("--seeds", type=_common.numbers, default=[0, 1, 2, 3, 4], help="default 0,1,2,3,4")
    add("--share", type=float, default=1.0, help="fraction of the steps; 0.01 for a trial")
    return parser.parse_args(arguments)


def _places() -> list[str]:
    available = {
        "threads": True,
        "devices": jax.local_device_count() >= WORKERS,
        "ray": importlib.util.find_spec("ray") is not None,
    }
    return [place for place in PLACES if available[place]]


if __name__ == "__main__":
    main()
