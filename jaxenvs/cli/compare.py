"""`jaxenvs compare`: statistics of the final scores of several runs."""

import argparse
import functools
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from jaxenvs import statistics
from jaxenvs.cli._console import check_folder, console, plain, table, writing
from jaxenvs.cli._runs import Run, group_by_task, runs_in
from jaxenvs.cli.plot import check_suffix, curve, labels
from jaxenvs.errors import TrainingError, closest
from jaxenvs.rendering.plots import write_comparison
from jaxenvs.training.logs import STEP

_Scores = dict[str, np.ndarray]  # [runs, tasks] of each group
_FEW = 10  # fewer runs make intervals that are clearly too narrow
_THRESHOLDS = 101  # points of a performance profile


def run(options: argparse.Namespace) -> None:
    """Prints a table for each id, and one of all ids if their scores have a common scale."""
    if options.output is not None:
        check_suffix(options.output)
        check_folder(options.output)
    groups = _groups(runs_in(options.runs))
    steps: dict[str, dict[str, list[int] | None]] = {
        id: {label: _steps(runs) for label, runs in own.items()} for id, own in groups.items()
    }
    scores = {
        id: {label: _scores(runs, options.metric) for label, runs in own.items()}
        for id, own in groups.items()
    }
    if options.scale:
        scales = _scales(options.scale, [*scores])
        title = f"all {len(scores)} ids, normalized"
        scores[title] = _normalized(scores, scales)
        steps[title] = dict.fromkeys(scores[title])
    summaries = {title: _summaries(own) for title, own in scores.items()}
    out = console()
    if options.json:
        rows = [
            {
                "id": title if title in groups else None,
                "group": label,
                "steps": steps[title][label],
                **each,
            }
            for title, own in summaries.items()
            for label, each in own.items()
        ]
        print(json.dumps(rows, indent=2))
    else:
        for title, own in summaries.items():
            out.print(_table(title, own, steps[title], options.metric))
        fewest = min(each["runs"] for own in summaries.values() for each in own.values())
        if fewest < _FEW:
            out.print(
                f"With {fewest} run{'s' * (fewest > 1)}, intervals are too narrow or missing: see"
                ' "What to report" in the documentation.'
            )
    if options.output is not None:
        panels = {title: _panel(own, summaries[title]) for title, own in scores.items()}
        with writing(options.output):
            path = write_comparison(options.output, panels, xlabel=_words(options.metric))
        if not options.json:
            out.print(f"Wrote {path}.", markup=False)


def _groups(runs: list[Run]) -> dict[str, dict[str, list[Run]]]:
    """Returns the runs of each id by the label that `plot` would give them."""
    found: dict[str, dict[str, list[Run]]] = {}
    for id in dict.fromkeys(run.config.id for run in runs):
        groups = group_by_task([run for run in runs if run.config.id == id])
        found[id] = dict(zip(labels(groups), groups, strict=True))
    return found


def _steps(runs: list[Run]) -> list[int]:
    """Returns the smallest and the largest number of environment steps of the runs."""
    counts = [int(curve(run, STEP)[0][-1]) for run in runs]
    return [min(counts), max(counts)]


def _scores(runs: list[Run], metric: str) -> np.ndarray:
    """Returns the last values of a metric, [runs, 1]."""
    scores = []
    for run in runs:
        _, values = curve(run, metric)
        values = values[~np.isnan(values)]
        if not values.size:
            raise TrainingError(
                f'"{run.folder}" has no value of {metric} yet.  Omit it, or train it for longer.'
            )
        scores.append(values[-1])
    return np.array(scores)[:, None]


def _scales(texts: list[str], ids: list[str]) -> np.ndarray:
    """Returns the scores that become 0 and 1, [2, tasks], from texts such as "CartPole-v1=20,500".

    Raises:
        TrainingError: a text is malformed, or there is not one for each id.
    """
    scales = {}
    for text in texts:
        id, _, bounds = text.partition("=")
        try:
            low, high = map(float, bounds.split(","))
        except ValueError:
            low = high = 0.0
        if low == high:
            raise TrainingError(
                f'compare got --scale "{text}"; write it as ID=LOW,HIGH, with two different scores.'
            )
        if id not in ids:
            raise TrainingError(
                f'compare got --scale for "{id}".{closest(id, ids)}  There are'
                f" runs of {', '.join(ids)}."
            )
        scales[id] = low, high
    if len(ids) == 1 or len(scales) < len(ids):
        raise TrainingError(
            f"compare got --scale for {', '.join(scales)} and runs of {', '.join(ids)}.  Pass it"
            " for each of several ids, or for none."
        )
    return np.array([scales[id] for id in ids]).T


def _normalized(scores: Mapping[str, _Scores], scales: np.ndarray) -> _Scores:
    """Returns normalized scores, [runs, tasks], of the groups that have runs of every id."""
    found = {}
    first, *others = scores.values()
    for label in [label for label in first if all(label in other for other in others)]:
        numbers = {id: len(own[label]) for id, own in scores.items()}
        if len({*numbers.values()}) > 1:
            counts = ", ".join(f"{count} of {id}" for id, count in numbers.items())
            raise TrainingError(
                f"{label} has different numbers of runs: {counts}.  Pass equally many, or omit"
                " --scale."
            )
        joined = np.concatenate([own[label] for own in scores.values()], axis=1)
        found[label] = np.asarray(statistics.normalize(joined, *scales))
    if not found:
        raise TrainingError("no group has runs of every id.  Omit --scale.")
    return found


def _summaries(groups: _Scores) -> dict[str, dict[str, Any]]:
    """Returns the statistics of each group. Comparisons are with the first group."""
    first, key, found = next(iter(groups.values())), jax.random.key(0), {}
    for label, scores in groups.items():
        improvement = improvement_interval = None
        if scores is not first:
            pair = scores, first
            improvement = float(statistics.probability_of_improvement(*pair))
            improvement_interval = _interval(statistics.probability_of_improvement, pair, key)
        found[label] = {
            "runs": len(scores),
            "iqm": float(statistics.iqm(scores)),
            "iqm_interval": _interval(statistics.iqm, (scores,), key),
            "mean": float(scores.mean()),
            "min": float(scores.min()),
            "max": float(scores.max()),
            "improvement": improvement,
            "improvement_interval": improvement_interval,
        }
    return found


def _interval(statistic: Any, scores: tuple[np.ndarray, ...], key: Any) -> list[float] | None:
    """Returns the 95 % interval of a statistic, or None if a group has only one run."""
    if min(map(len, scores)) == 1:
        return None
    return np.asarray(statistics.bootstrap_interval(statistic, scores, key)).tolist()


def _table(
    title: str,
    summaries: Mapping[str, dict[str, Any]],
    steps: Mapping[str, list[int] | None],
    metric: str,
) -> Any:
    """Returns a table with a row for each group."""
    several = [f"P(> {next(iter(summaries))})", "95 %"] if len(summaries) > 1 else []
    shown = table(
        *("group", "runs", "steps", "IQM", "95 %", "mean", "min", "max"),
        *map(plain, several),
        title=plain(f"{title}: {_words(metric)}"),
    )
    digits = 3 if max(abs(each["max"]) for each in summaries.values()) < 10 else 1

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.{digits}f}"

    def interval(ends: list[float] | None, digits: int = digits) -> str:
        return "-" if ends is None else " to ".join(f"{end:.{digits}f}" for end in ends)

    for label, each in summaries.items():
        counts = " to ".join(f"{count:,}" for count in dict.fromkeys(steps[label] or ()))
        row = [plain(label), f"{each['runs']}", counts, number(each["iqm"])]
        row += [interval(each["iqm_interval"]), *(number(each[x]) for x in ("mean", "min", "max"))]
        if several:
            improvement = each["improvement"]
            row += ["-" if improvement is None else f"{improvement:.2f}"]
            row += [interval(each["improvement_interval"], 2)]
        shown.add_row(*row)
    return shown


def _panel(groups: _Scores, summaries: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Returns the data of a panel for `write_comparison`."""
    everything = np.concatenate([scores.ravel() for scores in groups.values()])
    taus = np.linspace(everything.min(), everything.max(), _THRESHOLDS)
    profile = functools.partial(statistics.performance_profile, taus=taus)
    found = {}
    for label, scores in groups.items():
        ends = statistics.bootstrap_interval(profile, scores, jax.random.key(0), 2000)
        interval = summaries[label]["iqm_interval"] or [float("nan")] * 2
        found[label] = (
            (summaries[label]["iqm"], *interval),
            (taus, *map(np.asarray, (profile(scores), *ends))),
        )
    return found


def _words(metric: str) -> str:
    return metric.replace("_", " ")
