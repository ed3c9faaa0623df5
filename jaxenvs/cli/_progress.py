"""How far a training has come: a bar in a terminal, plain lines elsewhere."""

import math
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from jaxenvs.cli._console import console


class TrainingProgress:
    """Shows the updates that it is called with, as (updates, metrics), and a context manager.

    Calls may come from another thread, in another order than the updates. In a terminal a bar
    moves with each; elsewhere ten lines are printed in all, so that logs stay short. Of several
    seeds, `metrics` has an array; their median is shown.

    Args:
        num_updates: of the training in all.
        steps_per_update: environment steps, of one seed.
        done: updates that were done before, of a training that goes on.
        num_seeds: that learn side by side, each as many steps.
    """

    def __init__(
        self, num_updates: int, steps_per_update: int, *, done: int = 0, num_seeds: int = 1
    ) -> None:
        self._num_updates, self._steps_per_update = num_updates, steps_per_update
        self._num_seeds = num_seeds
        self._first = self._updates = done
        self._episode_return = math.nan
        self._started: float | None = None  # when the first report came: by then all is compiled
        self._console = console()
        self._bar = _bar(self._console) if self._console.is_terminal else None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("compiling", total=None, figures="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, updates: Any, metrics: Mapping[str, Any]) -> None:
        """Takes note of an update."""
        updates = int(updates)
        if updates <= self._updates:
            return
        before, self._updates = self._updates, updates
        returns = np.atleast_1d(np.asarray(metrics["episode_return"]))
        returns = returns[~np.isnan(returns)]
        if returns.size:  # else no episode ended, and the last figure stands
            self._episode_return = float(np.median(returns))
        speed = self._speed()
        if self._bar is not None:
            self._bar.update(
                self._task,
                description="training",
                total=self._num_updates * self._steps_per_update,
                completed=updates * self._steps_per_update,
                figures=f"return {self._episode_return:.1f}  {speed}",
            )
        elif updates * 10 // self._num_updates > before * 10 // self._num_updates:
            self._console.print(
                f"  {updates * self._steps_per_update:>10,} steps"
                f"   mean episode return {self._episode_return:8.1f}   {speed}"
            )

    def _speed(self) -> str:
        now = time.perf_counter()
        if self._started is None:
            self._started, self._first = now, self._updates
            return ""
        updates = (self._updates - self._first) * self._num_seeds
        return f"{updates * self._steps_per_update / (now - self._started):,.0f} steps/s"


def _bar(on: Any) -> Any:
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=30),
        progress.TextColumn("{task.completed:,.0f} steps"),
        progress.TextColumn("{task.fields[figures]}"),
        progress.TimeElapsedColumn(),
        console=on,
    )
