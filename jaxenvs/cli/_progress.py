"""How far a training has come: a bar in a terminal, plain lines elsewhere."""

import math
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from jaxenvs.cli._console import console


class TrainingProgress:
    """An `on_update` for `make_train`, and a context manager around the run.

    Calls may come from another thread, in another order than the updates. In a terminal a bar
    moves with each; elsewhere ten lines are printed in all, so that logs stay short.
    """

    def __init__(self, num_updates: int, steps_per_update: int) -> None:
        self._num_updates, self._steps_per_update = num_updates, steps_per_update
        self._updates, self._episode_return = 0, math.nan
        self._console = console()
        self._bar = _bar(self._console) if self._console.is_terminal else None
        self._task: Any = None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("compiling", total=None, episode_return="")
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
        episode_return = float(metrics["episode_return"])
        if not math.isnan(episode_return):  # NaN: no episode ended, so the last figure stands
            self._episode_return = episode_return
        if self._bar is not None:
            self._bar.update(
                self._task,
                description="training",
                total=self._num_updates * self._steps_per_update,
                completed=updates * self._steps_per_update,
                episode_return=f"return {self._episode_return:.1f}",
            )
        elif updates * 10 // self._num_updates > before * 10 // self._num_updates:
            self._console.print(
                f"  {updates * self._steps_per_update:>10,} steps"
                f"   mean episode return {self._episode_return:8.1f}"
            )


def _bar(on: Any) -> Any:
    from rich import progress

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(bar_width=30),
        progress.TextColumn("{task.completed:,.0f} steps"),
        progress.TextColumn("{task.fields[episode_return]}"),
        progress.TimeElapsedColumn(),
        console=on,
    )
