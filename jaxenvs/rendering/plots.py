"""Curves as pictures. Runs on the host, needs the extra `render`."""

from pathlib import Path
from typing import Any

import numpy as np

from jaxenvs.errors import missing_extra


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
        episode_return: [T], or [S, T] for S seeds: then the median is drawn, and a band from the
            lowest to the highest. NaN marks updates in which no episode ended; they are skipped.
        title: what stands above.
        threshold: a return to mark with a line, such as the one from which a task is solved.

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
    steps, curves = np.asarray(steps), np.atleast_2d(np.asarray(episode_return))
    known = ~np.isnan(curves).all(axis=0)
    steps, curves = steps[known], curves[:, known]

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    if len(curves) > 1:
        axes.fill_between(steps, np.nanmin(curves, 0), np.nanmax(curves, 0), alpha=0.2, linewidth=0)
    axes.plot(steps, np.nanmedian(curves, axis=0), linewidth=1.5)
    if threshold is not None:
        axes.axhline(threshold, color="grey", linestyle="--", linewidth=1)
        axes.annotate(f"solved: {threshold:g}", (0, threshold), (4, 4), textcoords="offset points")
    axes.set(title=title, xlabel="environment steps", ylabel="mean episode return")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    return path
