"""Curves as pictures. Runs on the host, needs the extra `render`."""

from collections.abc import Mapping, Sequence
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
    """Draws returns over environment steps.

    Args:
        path: a .png, .svg or .pdf; folders on the way are made.
        steps: [T], environment steps so far.
        episode_return: [T], or [S, T] for S seeds: then the median is drawn, and a band between
            the quartiles. NaN marks updates in which no episode ended; they are skipped.
        title: what stands above.
        threshold: a return to mark with a line, such as the one from which a task is solved.

    Returns:
        The path.

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
    """Draws what several trainings reached, each the median of its seeds and their quartiles.

    Args:
        path: as in `write_learning_curve`.
        curves: by the name that stands in the legend, a pair of steps and returns, [T] each, for
            every seed. NaN is skipped: there the line goes straight on. Where seeds have other
            steps they are interpolated, and beyond the end of one the others count.
        title: what stands above.
        ylabel: what stands beside the vertical axis.
        threshold: as in `write_learning_curve`.

    Returns:
        The path.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure  # the figure alone: no window, no global state
    except ImportError as error:
        raise missing_extra("Drawing curves", "matplotlib", "render") from error
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7, 4), layout="constrained")
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
    figure.savefig(path, dpi=120)
    return path


def quartiles(seeds: Sequence[Curve]) -> tuple[np.ndarray, np.ndarray]:
    """The steps at which any seed has a value, [T]; and lower quartile, median and upper, [3, T].

    See `write_learning_curves` for what happens where some have none.
    """
    known = []
    for steps, values in seeds:
        steps, values = np.asarray(steps, np.float64), np.asarray(values, np.float64)
        there = ~np.isnan(values)
        known.append((steps[there], values[there]))
    grid = np.unique(np.concatenate([steps for steps, _ in known]))
    if not grid.size:
        return grid, np.empty((3, 0))
    nan = float("nan")
    values = [np.interp(grid, *each, left=nan, right=nan) for each in known if each[0].size]
    return grid, np.nanquantile(np.stack(values), (0.25, 0.5, 0.75), axis=0)
