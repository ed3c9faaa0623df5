"""The files of a training run: logs, checkpoints, and policies, in a folder for each seed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxenvs.errors import TrainingError
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from jaxenvs.training.checkpoint import restore, restore_together, save, save_together
from jaxenvs.training.logs import (
    CSV_FILE,
    JSON_LINES_FILE,
    Logs,
    open_logs,
    read_metrics,
    removing_on_error,
    replace_file,
)
from jaxenvs.training.seeds import Seeds
from jaxenvs.training.types import LearnerState

CHECKPOINT, POLICY, BEST = "checkpoint", "policy", "best"  # folders of a seed
_BEST_SCORE = "best.json"


class RunFiles:
    """The files of a learner.

    Args:
        seeds: the seeds of the run.
        log_dir: the folder of the run, or None, without which only given paths are used.
    """

    def __init__(self, seeds: Seeds, log_dir: Path | None) -> None:
        self._seeds, self._log_dir = seeds, log_dir
        self._folders = [] if log_dir is None else seeds.folders(log_dir)
        self._logs: list[Logs] = []
        self._best = np.full(len(seeds.numbers), -np.inf)  # mean returns of evaluations

    def check_new(self) -> None:
        """Raises TrainingError if a folder already contains a run."""
        for folder in self._folders:
            if found := written_in(folder):
                raise TrainingError(
                    f'the folder "{folder}" already contains a run ({", ".join(found)}).  Pass'
                    " resume=True to continue it, or another folder."
                )

    def open_logs(self, kinds: Sequence[str], resume_step: int | None) -> float:
        """Opens the logs. Returns the seconds of the run so far."""
        log_dir: Any = self._log_dir
        with removing_on_error(log_dir):
            for folder in self._folders:
                self._logs.append(open_logs(folder, kinds, resume_step=resume_step))
        first = self._folders[0]
        if resume_step is None or not (first / CSV_FILE).is_file():
            return 0.0
        return float(np.max(read_metrics(first).get("seconds", ()), initial=0.0))

    def log(self, step: int, metrics: dict[str, Any]) -> None:
        """Writes a row of metrics for each seed."""
        for i, log in enumerate(self._logs):
            row = {name: np.float32(np.atleast_1d(x)[i]) for name, x in metrics.items()}
            row.pop("steps")  # the column `step`
            log.write(step, row)

    def close_logs(self) -> None:
        """Closes the logs."""
        for log in self._logs:
            log.close()
        self._logs = []

    def save(self, learner_state: LearnerState, path: str | Path | None) -> Path:
        """Writes a checkpoint, see `Learner.save`."""
        paths = self._checkpoints("save", path)
        save_together(paths, self._seeds.split(learner_state))
        if path is None:
            self._write_policies(POLICY, learner_state)
        folder: Any = self._log_dir if path is None else Path(path)
        return folder if self._seeds.are_several else paths[0]

    def restore(self, like: LearnerState, path: str | Path | None) -> LearnerState:
        """Reads a checkpoint and the best score beside it, see `Learner.restore`."""
        paths = self._checkpoints("restore", path)
        for each in paths:
            if (each / CHECKPOINT).is_dir():
                raise TrainingError(
                    f'"{each}" is the folder of a run, not a checkpoint.  Restore its checkpoint:'
                    f' "{each / CHECKPOINT}".'
                )
        state = self._seeds.stack(restore_together(paths, self._seeds.split(like)))
        folders = self._folders or [each.parent for each in paths]
        self._best = np.array([_read_score(folder / _BEST_SCORE) for folder in folders])
        return state

    def write_best(self, learner_state: LearnerState, returns: Any, steps: int) -> None:
        """Writes the policies whose mean returns, a number or [S], are higher than before."""
        means = np.atleast_1d(returns)
        if self._folders:
            is_better = means > self._best
            self._write_policies(BEST, learner_state, is_better)
            for i in np.flatnonzero(is_better):
                score = {"evaluation_return": float(means[i]), "steps": steps}
                replace_file(self._folders[i] / _BEST_SCORE, json.dumps(score) + "\n").close()
        self._best = np.fmax(self._best, means)

    def read_best(self, like: BehaviorPolicy) -> BehaviorPolicy:
        """Returns the best policies so far.

        Raises:
            TrainingError: there is none.
        """
        if not self._folders:
            raise TrainingError("policy got best=True, but the learner has no log_dir.")
        shapes = self._seeds.shapes_of_one(jax.eval_shape(lambda: like))
        return self._seeds.stack([restore(folder / BEST, shapes) for folder in self._folders])

    def _write_policies(
        self, name: str, learner_state: LearnerState, chosen: np.ndarray | None = None
    ) -> None:
        """Writes the part of the state that acting needs for all seeds, or for the chosen ones."""
        policies = self._seeds.split(jax.device_get(BehaviorPolicy.of(learner_state)))
        for i, (folder, policy) in enumerate(zip(self._folders, policies, strict=True)):
            if chosen is None or chosen[i]:
                save(folder / name, policy)

    def _checkpoints(self, call: str, path: str | Path | None) -> list[Path]:
        if path is not None:
            return self._seeds.folders(Path(path))
        if not self._folders:
            raise TrainingError(
                f"{call} got no path, and the learner has no log_dir.  Pass a path."
            )
        return [folder / CHECKPOINT for folder in self._folders]


def written_in(folder: Path) -> list[str]:
    """Returns the names of what a learner has written in a folder."""
    names = (CHECKPOINT, BEST, CSV_FILE, JSON_LINES_FILE)
    return [name for name in names if (folder / name).exists()]


def _read_score(path: Path) -> float:
    """Returns the score of the best policy, or -inf if there is none."""
    if not path.is_file():
        return -np.inf
    try:
        return float(json.loads(path.read_text())["evaluation_return"])
    except (ValueError, TypeError, KeyError) as error:
        raise TrainingError(
            f'"{path}" is damaged: {error}.  Delete it; the next evaluation is then the best.'
        ) from error
