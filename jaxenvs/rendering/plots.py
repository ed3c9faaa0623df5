"""Learning curves and scores as image files. Runs on the host; needs the extra `render`."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxenvs.errors import missing_extra

Curve = tuple[Any, Any]  # steps and returns, [T] each


def write_learning_curve(
    path: str | Path,
    steps: Any,
    episode_return: Any,
    *,
    title: str,
    threshold: float | None = None,
) -> Path:
    """Plots episode returns over environment steps.

    Args:
        path: a .png, .svg or .pdf file; missing folders are created.
        steps: [T], the environment steps taken so far.
        episode_return: [T], or [S, T] for S seeds, whose median is plotted with a band between the
            quartiles. NaN (no episode ended in that update) is skipped.
        title: the title of the plot.
        threshold: a return to mark with a line, such as the one at which a task counts as solved.

    Returns:
        `path`, as a `Path`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    seeds = [(steps, returns) for returns in np.atleast_2d(np.asarray(episode_return))]
    return write_learning_curves(path, {"": seeds}, title=title, threshold=threshold)


def write_learning_curves(
    path: str | Path,
    curves: Mapping[str, Sequence[Curve]],
    *,
    title: str,
    ylabel: str = "mean episode return",
    threshold: float | None = None,
) -> Path:
    """Plots several learning curves: the median and the quartiles over the seeds of each.

    Args:
        path: as in `write_learning_curve`.
        curves: maps names for the legend to a list with a pair (steps, returns), [T] each, per
            seed. NaN is skipped; the line connects the points around it. Seeds with different
            steps are interpolated, and only the others are used after the end of one seed.
        title: the title of the plot.
        ylabel: the label of the vertical axis.
        threshold: as in `write_learning_curve`.

    Returns:
        `path`, as a `Path`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = _new_figure("curves", (7, 4))
    axes = figure.add_subplot()
    for name, seeds in curves.items():
        steps, (low, median, high) = quartiles(seeds)
        (line,) = axes.plot(steps, median, linewidth=1.5, label=name)
        if len(seeds) > 1:
            axes.fill_between(steps, low, high, alpha=0.2, linewidth=0, color=line.get_color())
    if threshold is not None:
        axes.axhline(threshold, color="gray", linestyle="--", linewidth=1)
        axes.annotate(f"solved: {threshold:g}", (0, threshold), (4, 4), textcoords="offset points")
    axes.set(title=title, xlabel="environment steps", ylabel=ylabel)
    if any(curves):
        axes.legend(frameon=False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    return _save(figure, path)


def quartiles(seeds: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the steps at which any seed has a value, [T], and the quartiles there, [3, T].

    The rows are the lower quartile, the median and the upper quartile. Missing values are treated
    as in `write_learning_curves`.
    """
    curves = []
    for steps, values in seeds:
        steps, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
        is_valid = ~np.isnan(values)
        curves.append((steps[is_valid], values[is_valid]))
    grid = np.unique(np.concatenate([steps for steps, _ in curves]))
    if not grid.size:
        return grid, np.empty((3, 0))
    nan = float("nan")
    values = [np.interp(grid, *curve, left=nan, right=nan) for curve in curves if curve[0].size]
    return grid, np.nanquantile(np.stack(values), (0.25, 0.5, 0.75), axis=0)


def write_comparison(
    path: str | Path, panels: Mapping[str, Mapping[str, tuple[Any, Any]]], *, xlabel: str
) -> Path:
    """Plots intervals and performance profiles of groups of runs, a row of two panels per title.

    Args:
        path: a .png, .svg or .pdf file; missing folders are created.
        panels: maps titles to groups, and names of groups for the legend to a pair: a statistic
            with its interval, (point, low, high), where NaN ends are not drawn; and a profile with
            its band, (thresholds, fractions, low, high), [T] each.
        xlabel: the label of scores.

    Returns:
        `path`, as a `Path`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = _new_figure("comparisons", (9, 3 * len(panels)))
    rows = figure.subplots(len(panels), 2, squeeze=False)
    for (left, right), (title, groups) in zip(rows, panels.items(), strict=True):
        for i, (label, (interval, profile)) in enumerate(groups.items()):
            point, *ends = interval
            (line,) = left.plot(point, i, "o", markersize=5)
            color = line.get_color()
            left.plot(ends, [i, i], color=color, linewidth=3, alpha=0.4, solid_capstyle="butt")
            thresholds, fractions, low, high = profile
            right.step(thresholds, fractions, where="post", color=color, label=label)
            right.fill_between(thresholds, low, high, step="post", color=color, alpha=0.2)
        left.set_yticks(range(len(groups)), [*groups])
        left.set(
            title=title, xlabel=f"{xlabel}: IQM, 95 % interval", ylim=(len(groups) - 0.5, -0.5)
        )
        right.set(xlabel=f"{xlabel}: threshold", ylabel="fraction of runs above it", ylim=(0, 1.02))
        right.legend(frameon=False)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(alpha=0.3)
    return _save(figure, path)


def write_sweep(
    path: str | Path,
    points: Mapping[str, Sequence[tuple[Mapping[str, Any], float]]],
    *,
    names: Sequence[str],
    logarithmic: Collection[str] = (),
    ylabel: str = "score",
) -> Path:
    """Plots scores over each hyperparameter, in a panel for each.

    Args:
        path: a .png, .svg or .pdf file; missing folders are created.
        points: maps names for the legend to pairs of hyperparameters, by name, and a score. Scores
            that are not finite are skipped.
        names: the hyperparameters to plot. Values that are not numbers are drawn at equal
            distances.
        logarithmic: the names of those with a logarithmic axis.
        ylabel: the label of the vertical axis.

    Returns:
        `path`, as a `Path`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    figure = _new_figure("sweeps", (3 * columns + 1, 3 * rows))
    panels = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    for axes, name in zip(panels, names, strict=False):
        given = [settings[name] for pairs in points.values() for settings, _ in pairs]
        are_numbers = all(type(value) in (int, float) for value in given)
        categories = [] if are_numbers else list(dict.fromkeys(f"{value}" for value in given))
        for label, pairs in points.items():
            drawn = [(settings[name], score) for settings, score in pairs if np.isfinite(score)]
            x = [value if are_numbers else categories.index(f"{value}") for value, _ in drawn]
            axes.plot(x, [score for _, score in drawn], "o", alpha=0.7, label=label)
        if categories:
            axes.set_xticks(range(len(categories)), categories)
        if name in logarithmic:
            axes.set_xscale("log")
        axes.set(xlabel=name)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.3)
    for axes in panels[::columns]:
        axes.set(ylabel=ylabel)
    if any(points):
        panels[0].legend(frameon=False)
    return _save(figure, path)


def write_radar(
    path: str | Path, scores: Mapping[str, Mapping[str, float]], *, title: str = ""
) -> Path:
    """Plots scores from 0 to 1 as a closed line around a center, one axis per score.

    Args:
        path: a .png, .svg or .pdf file; missing folders are created.
        scores: maps names for the legend, such as those of agents, to scores by name. A score that
            an agent lacks is drawn as 0.
        title: the title of the plot.

    Returns:
        `path`, as a `Path`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    figure = _new_figure("scores", (6, 6))
    names = sorted({name for own in scores.values() for name in own})
    angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
    axes: Any = figure.add_subplot(projection="polar")
    for label, own in scores.items():
        values = [own.get(name, 0.0) for name in names]
        closed = np.append(angles, angles[:1]), np.append(values, values[:1])
        (line,) = axes.plot(*closed, linewidth=2, label=label)
        axes.fill(*closed, alpha=0.2, color=line.get_color())
    axes.set_xticks(angles, [name.replace("_", " ") for name in names])
    for label, side in zip(axes.get_xticklabels(), np.cos(angles).round(3), strict=True):
        label.set_horizontalalignment(("center", "left", "right")[int(np.sign(side))])
    axes.set_yticks([0.25, 0.5, 0.75, 1.0], ["", "0.5", "", "1"])
    axes.set(ylim=(0, 1), title=title)
    if any(scores):
        axes.legend(frameon=False, loc="lower left", bbox_to_anchor=(-0.1, -0.1))
    return _save(figure, path)


def _new_figure(what: str, size: tuple[int, int]) -> Any:
    """Returns an empty figure for a plot of `what`. The size is in inches."""
    try:
        from matplotlib.figure import Figure  # not pyplot, which has global state
    except ImportError as error:
        raise missing_extra(f"Plotting {what}", "matplotlib", "render") from error
    return Figure(figsize=size, layout="constrained")


def _save(figure: Any, path: str | Path) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    return path
