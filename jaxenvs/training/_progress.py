"""Shows how far a training has come that is one program."""

import atexit
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxenvs.errors import missing_extra


class ProgressBar:
    """A bar in a terminal or a notebook, with the mean return of the last episodes.

    It is called as `on_update` is, from any thread, with the number of the last update as a metric.
    It appears with the first call: until then the training compiles.

    Raises:
        MissingExtraError: rich is not installed.
    """

    def __init__(self) -> None:
        try:
            from rich.progress import Progress
        except ImportError as error:
            raise missing_extra("make_train(progress=True)", "rich", "cli") from error
        self._make_bar = lambda: Progress(auto_refresh=False)
        self._bar: Any = None
        self._task: Any = None
        self._lock = threading.Lock()
        atexit.register(self._stop)  # of a training that was interrupted

    def __call__(self, updates: Any, metrics: Mapping[str, Any]) -> None:
        """Shows that so many updates are done."""
        last = int(np.max(metrics["last_update"]))
        with self._lock:
            if self._bar is None:
                self._bar = self._make_bar()
                self._bar.start()
                self._task = self._bar.add_task("", total=last)
            returns = np.asarray(metrics["episode_return"])
            ended = returns[~np.isnan(returns)]  # of the seeds in which an episode ended
            text = f"return {ended.mean():.1f}" if ended.size else ""
            self._bar.update(self._task, completed=int(updates), description=text, refresh=True)
            if updates >= last:
                self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
        self._bar = None
