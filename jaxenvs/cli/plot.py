"""`jaxenvs plot`."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxenvs.cli._console import check_folder, console, writing
from jaxenvs.cli._runs import Run, group_by_task, runs_in
from jaxenvs.errors import RenderError, TrainingError, closest, missing_extra
from jaxenvs.rendering.plots import Curve, write_learning_curves
from jaxenvs.training.config import Config
from jaxenvs.training.logs import STEP, read_metrics


def run(options: argparse.Namespace) -> None:
    """Plots one curve for each configuration of the runs."""
    check_suffix(options.output)
    check_folder(options.output)
    groups = group_by_task(runs_in(options.runs))
    curves: dict[str, list[Curve]] = {
        label: [curve(each, options.metric) for each in group]
        for label, group in zip(labels(groups), groups, strict=True)
    }
    tasks = {group[0].config.id for group in groups}
    metric = options.metric.replace("_", " ")
    with writing(options.output):
        path = write_learning_curves(
            options.output,
            curves,
            title=options.title or ", ".join(sorted(tasks)),
            ylabel=f"mean {metric}" if options.metric.startswith("episode_") else metric,
        )
    out = console()
    for label, group in zip(curves, groups, strict=True):
        out.print(f"{label}: {len(group)} run{'s' * (len(group) > 1)}", markup=False)
    out.print(f"Wrote {path}.", markup=False)


def labels(groups: Sequence[Sequence[Run]]) -> list[str]:
    """Returns a label for each group: algorithm, id if there are several, and special settings.

    Special settings are those that differ between groups of the same algorithm and id. If there are
    more than three, the label is the folder.
    """
    settings = [_settings_of(group[0].config) for group in groups]
    several_ids = len({each["id"] for each in settings}) > 1
    found = []
    for group, own in zip(groups, settings, strict=True):
        alike = [each for each in settings if all(each[x] == own[x] for x in ("algorithm", "id"))]
        names = sorted({name for each in alike for name in each} - {"report_every"})
        special = [x for x in names if len({repr(each.get(x)) for each in alike}) > 1]
        words = [own["algorithm"], *([own["id"]] if several_ids else [])]
        if len(special) <= 3:
            words += [f"{x.rpartition('.')[2]}={_short(own[x])}" for x in special if x in own]
        else:
            words.append(_common_folder(group))
        found.append(" ".join(words))
    if len(set(found)) < len(found):
        return [_common_folder(group) for group in groups]
    return found


def _settings_of(config: Config) -> dict[str, Any]:
    complete = config.complete()
    settings: dict[str, Any] = {
        name: value for name, value in vars(complete).items() if isinstance(value, str | int)
    }
    for name in ("seed", "save_every", "evaluate_every", "evaluation_episodes"):
        settings.pop(name, None)
    for table in ("settings", "actor", "storage", "scheme", "env"):
        settings |= {f"{table}.{name}": value for name, value in getattr(complete, table).items()}
    if complete.wrappers:
        settings["wrappers"] = [each["type"] for each in complete.wrappers]
    return settings


def _short(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ",".join(f"{item}" for item in value)
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def _common_folder(group: Sequence[Run]) -> str:
    folder = group[0].folder
    return f"{folder if len(group) == 1 else folder.parent}"


def curve(run: Run, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps and the values of a metric, [T] each.

    Raises:
        TrainingError: there are no rows yet, or there is no such metric.
    """
    metrics = read_metrics(run.folder)
    if not metrics[STEP].size:
        raise TrainingError(
            f'"{run.folder}" has no rows of metrics yet.  Omit it, or continue it: jaxenvs train'
            f" --resume {run.folder}."
        )
    if metric not in metrics:
        raise TrainingError(
            f'"{run.folder}" has no metric "{metric}".{closest(metric, metrics)}'
            f"  It has {', '.join(name for name in metrics if name != STEP)}."
        )
    return metrics[STEP], metrics[metric]


def check_suffix(name: str) -> None:
    """Raises RenderError for a file format that matplotlib cannot write."""
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise missing_extra("Drawing curves", "matplotlib", "render") from error
    if (
        Path(name).suffix.lower().removeprefix(".")
        not in FigureCanvasBase.get_supported_filetypes()
    ):
        raise RenderError(f'"{Path(name).name}" must end in .png, .svg or .pdf, for the format.')
