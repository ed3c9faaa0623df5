"""Display of training progress: a bar in a terminal or a notebook, plain lines elsewhere."""

import atexit
import math
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxenvs.errors import missing_extra

_NUM_LINES = 10  # lines per training run without a terminal


class ProgressBar:
    """A display of steps, the mean return of the last episodes, and steps per second.

    It can be called from any thread, and out of order. With several seeds, a metric is an array,
    and the display shows the median of the returns.

    Args:
        steps_per_update: environment steps of one seed.
        done: updates that a resumed training run has already done.

    Raises:
        MissingExtraError: rich is not installed.
    """

    def __init__(self, steps_per_update: int, done: int = 0) -> None:
        try:
            from rich.console import Console
        except ImportError as error:
            raise missing_extra("A progress bar", "rich", "cli") from error
        self._console = Console(highlight=False)
        self._is_live = self._console.is_terminal or self._console.is_jupyter
        self._steps_per_update = steps_per_update
        self._timed_from = self._updates = done
        self._timer: float | None = None  # starts with the first report, after compilation
        self._return = math.nan
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Shows the bar if it is not shown yet."""
        if self._bar is not None or not self._is_live:
            return
        from rich import progress

        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=30),
            progress.TextColumn("{task.completed:,.0f} steps"),
            progress.TextColumn("{task.fields[figures]}"),
            progress.TimeElapsedColumn(),
            console=self._console,
        )
        self._bar.start()
        self._task = self._bar.add_task("compiling", total=None, figures="")
        atexit.register(self.stop)  # in case training is interrupted

    def stop(self) -> None:
        """Stops updating the bar. It stays on the screen."""
        if self._bar is not None:
            self._bar.stop()
            atexit.unregister(self.stop)
        self._bar = None

    def __call__(self, updates: Any, num_updates: Any, metrics: Mapping[str, Any]) -> None:
        """Shows that `updates` of `num_updates` are done."""
        with self._lock:
            self._show(int(updates), int(num_updates), np.atleast_1d(metrics["episode_return"]))

    def _show(self, updates: int, num_updates: int, returns: np.ndarray) -> None:
        if updates <= self._updates:
            return
        before, self._updates = self._updates, updates
        if not np.isnan(returns).all():  # all NaN means that no episode has ended
            self._return = float(np.nanmedian(returns))
        steps, speed = updates * self._steps_per_update, self._speed(returns.size)
        if self._is_live:
            self.start()
            self._bar.update(
                self._task,
                description="training",
                total=num_updates * self._steps_per_update,
                completed=steps,
                figures=f"return {self._return:.1f}  {speed}",
            )
        elif updates * _NUM_LINES // num_updates > before * _NUM_LINES // num_updates:
            line = f"  {steps:>10,} steps   mean episode return {self._return:8.1f}   {speed}"
            self._console.print(line, soft_wrap=True)
        if updates >= num_updates:
            self.stop()
            self._updates, self._timer = 0, None  # the same program may run again

    def _speed(self, num_seeds: int) -> str:
        now = time.perf_counter()
        if self._timer is None:
            self._timer, self._timed_from = now, self._updates
            return ""
        steps = (self._updates - self._timed_from) * self._steps_per_update * num_seeds
        return f"{steps / (now - self._timer):,.0f} steps/s"
