"""Searches for hyperparameters: random, Sobol, and successive halving.

    config = config_for("ppo", "CartPole-v1")
    space = {"learning_rate": Interval(1e-4, 1e-2, log=True), "clip": [0.1, 0.2, 0.3]}
    for result in sweep(config, sample(space, 16), folder="runs/sweep"):
        print(result.score, result.settings)

Trials whose programs differ only in numbers run side by side in one program, others one after
another.
"""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import statistics
from jaxenvs.errors import TrainingError, check_choice, check_integer, closest
from jaxenvs.training.config import Config
from jaxenvs.training.logs import replace_file
from jaxenvs.training.train_program import Train

PLAN_FILE, TRIALS_FILE = "sweep.json", "trials.jsonl"
SAMPLERS = ("sobol", "random")
_SIZES = ("num_envs", "unroll_length")  # entries of a configuration beside its settings


@dataclasses.dataclass(frozen=True)
class Interval:
    """The values from `low` to `high`, both included. Between integers, they are integers.

    Raises:
        TrainingError: `low` is not below `high`, or not positive with `log`.
    """

    low: float
    high: float
    log: bool = False  # uniform in the logarithm

    def __post_init__(self) -> None:
        if not (-math.inf < self.low < self.high < math.inf and (self.low > 0 or not self.log)):
            raise TrainingError(
                f"an interval got {self.low} and {self.high}; expected a lower and a higher number,"
                " both positive with a logarithmic scale."
            )

    def at(self, share: float) -> float:
        """Returns the value at a share of the interval, from 0 to 1."""
        are_integers = isinstance(self.low, int) and isinstance(self.high, int)
        low, high = (self.low - 0.5, self.high + 0.5) if are_integers else (self.low, self.high)
        if self.log:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        else:
            value = low + share * (high - low)
        value = min(max(value, self.low), self.high)
        return round(value) if are_integers else value


Space = Mapping[str, Interval | Sequence[Any]]  # a sequence has the values to choose from


@dataclasses.dataclass(frozen=True)
class Result:
    """The scores of a trial in a rung."""

    trial: int  # its index
    rung: int  # 0 is the first
    settings: Mapping[str, Any]
    steps: int  # of each seed
    scores: tuple[float, ...]  # of each seed; NaN if no episode finished

    @property
    def score(self) -> float:
        """The interquartile mean over the seeds, or -inf if the score of one is NaN."""
        score = float(statistics.iqm(np.array(self.scores, np.float32)))
        return -math.inf if math.isnan(score) else score


def sample(
    space: Space, trials: int, *, seed: int = 0, sampler: Literal["sobol", "random"] = "sobol"
) -> list[dict[str, Any]]:
    """Draws settings from a space.

    Args:
        space: maps names, as `Config.with_settings` takes them, to an `Interval` or a sequence of
            values. "num_envs" and "unroll_length" are names, too.
        trials: the number of trials. Sobol points are even for powers of two.
        seed: of the draws.
        sampler: "sobol" draws scrambled Sobol points, which cover the space more evenly than
            independent ones, "random".

    Returns:
        The settings of each trial.

    Raises:
        TrainingError: the space is empty, or an argument is out of range.
    """
    check_integer(TrainingError, "sample got trials", trials)
    check_choice("sample got sampler", sampler, SAMPLERS)
    if not space or not all(isinstance(each, Interval) or len(each) for each in space.values()):
        raise TrainingError("sample got an empty space.  Pass a name and its values.")
    if sampler == "random":
        points = np.random.default_rng(seed).random((trials, len(space)))
    else:
        from scipy.stats import qmc

        sobol: Any = qmc.Sobol  # whose `seed` has another name in new stubs
        points = sobol(len(space), seed=seed).random_base2((trials - 1).bit_length())[:trials]

    def value(dimension: Interval | Sequence[Any], share: float) -> Any:
        if isinstance(dimension, Interval):
            return dimension.at(share)
        return dimension[int(share * len(dimension))]

    return [
        {name: value(each, share) for (name, each), share in zip(space.items(), row, strict=True)}
        for row in points.tolist()
    ]


def sweep(
    config: Config,
    trials: Sequence[Mapping[str, Any]],
    *,
    seeds: int = 3,
    rungs: int = 1,
    factor: int = 3,
    metric: str = "episode_return",
    parallel: int = 8,
    folder: str | Path | None = None,
) -> Iterator[Result]:
    """Trains each trial with the same seeds, and yields its scores.

    With several rungs, this is successive halving: all trials train for a part of the steps, the
    best of them for `factor` times as many, and so on until the last rung, which has all steps.
    Every rung trains from the start, with the schedules of the whole training.

    Args:
        config: the configuration that trials change. Schemes are not supported.
        trials: the settings of each trial, such as those of `sample`.
        seeds: the number of seeds of a trial, starting with that of `config`.
        rungs: the number of rungs.
        factor: how many times fewer trials, and more steps, a rung has than the one before.
        metric: a metric of training, higher is better. "evaluation_return" is the mean of
            `evaluation_episodes` of the greedy policy at the end; others are means over the last
            episodes, or over all updates.
        parallel: how many trials train in one program at most.
        folder: stores the results. Those of the same sweep that it has are not computed again.

    Yields:
        A result for each trial of each rung, in the order in which they are computed.

    Raises:
        TrainingError: an argument is out of range, a setting does not fit, or the folder contains
            another sweep.
    """
    for name, number in {"seeds": seeds, "rungs": rungs, "parallel": parallel}.items():
        check_integer(TrainingError, f"sweep got {name}", number)
    check_integer(TrainingError, "sweep got factor", factor, least=2)
    if config.scheme:
        raise TrainingError("sweep got a configuration with a scheme, which it does not support.")
    configs = [with_settings(config, settings) for settings in trials]
    for each in configs:
        if not each.is_hosted:  # otherwise checking would start processes
            _program(each, 1, metric)
    keys = jnp.stack([jax.random.key(config.seed + i) for i in range(seeds)])
    path = None
    if folder is not None:
        path = Path(folder) / TRIALS_FILE
        plan = {"config": config.to_toml(), "trials": [*trials], "seeds": seeds, "rungs": rungs}
        _check_plan(Path(folder), plan | {"factor": factor, "metric": metric})

    def run() -> Iterator[Result]:
        known = {} if path is None else _read(path)
        chosen = [*range(len(trials))]
        for rung in range(rungs):
            part = factor ** (rungs - 1 - rung)  # the steps are divided by it
            results = {i: known[i, rung] for i in chosen if (i, rung) in known}
            yield from results.values()
            missing = {i: configs[i] for i in chosen if i not in results}
            for i, steps, scores in _train(missing, keys, part, metric, parallel):
                result = Result(i, rung, trials[i], steps, tuple(scores.tolist()))
                results[i] = result
                if path is not None:
                    _append(path, result)
                yield result
            best = sorted(chosen, key=lambda i: (-results[i].score, i))
            chosen = best[: -(-len(chosen) // factor)]

    return run()


def with_settings(config: Config, settings: Mapping[str, Any]) -> Config:
    """Returns a configuration with the settings of a trial."""
    sizes = {name: settings[name] for name in _SIZES if name in settings}
    own = {name: x for name, x in settings.items() if name not in sizes}
    return config.with_settings(own).replace(**sizes)


def _train(
    configs: Mapping[int, Config], keys: Any, part: int, metric: str, parallel: int
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Yields the index of each trial, its steps, and its scores, [seeds].

    Trials whose programs differ only in numbers are a group, which compiles once.
    """
    groups: dict[Any, list[tuple[int, list[Any]]]] = {}
    for trial, config in configs.items():
        if config.is_hosted:  # their number is fixed when the pool is made
            yield trial, *_train_hosted(config, keys, part, metric)
            continue
        train = _program(config, part, metric)
        leaves, structure = jax.tree.flatten(train)
        kind = structure, tuple(map(jax.typeof, leaves))
        groups.setdefault(kind, []).append((trial, leaves))
    for (structure, _), group in groups.items():
        example: Train = jax.tree.unflatten(structure, group[0][1])
        size = min(parallel, len(group))
        program, varying = _vectorized(structure, [leaves for _, leaves in group], metric)
        for start in range(0, len(group), size):
            chunk = group[start : start + size]
            rows = [leaves for _, leaves in chunk]
            rows += rows[:1] * (size - len(rows))  # a program of another size would compile again
            values = [jnp.stack([jnp.asarray(row[i]) for row in rows]) for i in varying]
            scores = np.asarray(program((jnp.arange(size), values), keys))
            for (trial, _), own in zip(chunk, scores, strict=False):
                yield trial, _steps(example), own


def _vectorized(structure: Any, rows: Sequence[list[Any]], metric: str) -> tuple[Any, list[int]]:
    """Returns a program for several trials and seeds, and the indices of leaves that differ."""
    first, *others = rows
    varying = [i for i, leaf in enumerate(first) if any(np.any(row[i] != leaf) for row in others)]

    def score(trial: tuple[Any, list[Any]], key: Any) -> jax.Array:
        leaves = dict(enumerate(first)) | dict(zip(varying, trial[1], strict=True))
        return _score(jax.tree.unflatten(structure, leaves.values()), key, metric)

    return jax.jit(jax.vmap(jax.vmap(score, (None, 0)), (0, None))), varying


def _train_hosted(config: Config, keys: Any, part: int, metric: str) -> tuple[int, np.ndarray]:
    """Returns the steps and the scores of hosted environments, which train one after another."""
    scores, steps = [], 0
    for key in keys:
        train = _program(config, part, metric)
        try:
            scores.append(jax.jit(lambda key, train=train: _score(train, key, metric))(key))
            steps = _steps(train)
        finally:
            train.env.close()
    return steps, np.asarray(scores)


def _program(config: Config, part: int, metric: str) -> Train:
    """Returns a training program for a part of the steps, with one report, at the end."""
    evaluation = {"evaluate_every": 1, "evaluation_episodes": config.evaluation_episodes}
    train = config.make_train(**evaluation if metric.startswith("evaluation_") else {})
    updates = -(-train.num_updates // part)
    last_update = None if part == 1 else jnp.int32(train.num_updates)
    return train.replace(num_updates=updates, report_every=updates, last_update=last_update)


def _steps(train: Train) -> int:
    return train.num_updates * train.context.steps_per_update


def _score(train: Train, key: Any, metric: str) -> jax.Array:
    metrics = train(key).metrics
    if metric not in metrics:
        raise TrainingError(
            f'training has no metric "{metric}".{closest(metric, metrics)}'
            f"  It has {', '.join(metrics)}."
        )
    return metrics[metric][-1]


def _check_plan(folder: Path, plan: dict[str, Any]) -> None:
    """Writes the plan of a sweep into a folder, or compares it with the one there.

    Raises:
        TrainingError: the folder contains another sweep.
    """
    text, path = json.dumps(plan, indent=2, default=str) + "\n", folder / PLAN_FILE
    if path.exists():
        if path.read_text(encoding="utf-8") != text:
            raise TrainingError(
                f'"{folder}" contains another sweep.  Pass another folder, or the same arguments to'
                " continue it."
            )
        return
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(path, text).close()


def _read(path: Path) -> dict[tuple[int, int], Result]:
    """Returns the results of a file by trial and rung. Removes an incomplete last line."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    replace_file(path, "".join(lines)).close()
    found = {}
    for line in lines:
        entries = json.loads(line)
        scores = tuple(math.nan if x is None else x for x in entries.pop("scores"))
        result = Result(**entries, scores=scores)
        found[result.trial, result.rung] = result
    return found


def _append(path: Path, result: Result) -> None:
    scores = [None if math.isnan(x) else x for x in result.scores]
    line = json.dumps({**vars(result), "scores": scores}, default=str)
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
