"""Metric logs: CSV, JSON lines, TensorBoard, Weights & Biases.

    with open_logs("runs/cartpole") as log:
        log.write(2048, {"episode_return": 21.5})

If the process crashes, only the row that is being written can be lost.
"""

import contextlib
import csv
import importlib
import io
import json
import math
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from jaxenvs.errors import TrainingError, closest, missing_extra

STEP = "step"  # the name of the first column
CSV_FILE, JSON_LINES_FILE = "metrics.csv", "metrics.jsonl"


class Log(Protocol):
    """The interface of a log."""

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes a row of numbers by name, after `step` environment steps. NaN means no value."""

    def close(self) -> None:
        """Closes the log."""


class CSVLog:
    """A log in `metrics.csv`, with a column per name; missing values are empty.

    A new name adds a column, which rewrites the file.

    Args:
        log_dir: the folder.
        resume_step: as in `open_logs`.
    """

    def __init__(self, log_dir: Path, resume_step: int | None = None) -> None:
        self._path = log_dir / CSV_FILE
        self._columns = [STEP]
        rows: list[dict[str, str]] = []
        if resume_step is not None and self._path.exists():
            self._columns, rows = _read_csv(self._path)
            rows = [row for row in rows if int(row[STEP]) <= resume_step]
        self._file = self._rewrite(rows)

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        new = [name for name in metrics if name not in self._columns]
        if new:
            self._file.close()
            _, rows = _read_csv(self._path)
            self._columns += new
            self._file = self._rewrite(rows)
        row = {name: _format_number(value, "") for name, value in metrics.items()}
        self._file.write(
            _csv_line([{STEP: f"{int(step)}", **row}.get(x, "") for x in self._columns])
        )
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _rewrite(self, rows: list[dict[str, str]]) -> io.TextIOWrapper:
        lines = [self._columns, *([row.get(x) or "" for x in self._columns] for row in rows)]
        return replace_file(self._path, "".join(_csv_line(line) for line in lines))


class JSONLinesLog:
    """A log in `metrics.jsonl`, with one object per line; missing values are null.

    Args:
        log_dir: the folder.
        resume_step: as in `open_logs`.
    """

    def __init__(self, log_dir: Path, resume_step: int | None = None) -> None:
        path = log_dir / JSON_LINES_FILE
        kept = ""
        if resume_step is not None and path.exists():
            kept = "".join(
                line
                for line in _complete_lines(path)
                if (row := _parse_row(line)) is not None and row.get(STEP, 0) <= resume_step
            )
        self._file = replace_file(path, kept)

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        entries = {
            STEP: "",
            **{name: _format_number(value, "null") for name, value in metrics.items()},
        }
        entries[STEP] = f"{int(step)}"
        # JSON has no infinity, but readers parse 1e999 as infinity.
        row = ", ".join(
            f"{json.dumps(name)}: {text.replace('inf', '1e999')}" for name, text in entries.items()
        )
        self._file.write(f"{{{row}}}\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoardLog:
    """A log in event files for TensorBoard, written by tensorboardX. NaN is omitted.

    Args:
        log_dir: the folder.
        resume_step: as in `open_logs`; TensorBoard hides later rows of the earlier run.

    Raises:
        MissingExtraError: tensorboardX is not installed.
    """

    def __init__(self, log_dir: Path, resume_step: int | None = None) -> None:
        package = _package_of("tensorboard")
        if resume_step is None:
            for old in log_dir.glob("events.out.tfevents.*"):
                old.unlink()  # otherwise TensorBoard would show two runs as one
        purge_step = None if resume_step is None else resume_step + 1
        self._writer = package.SummaryWriter(str(log_dir), purge_step=purge_step)

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        for name, value in metrics.items():
            if not math.isnan(value):
                self._writer.add_scalar(name, float(value), int(step))
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class WandbLog:
    """A log in a run of Weights & Biases, whose environment variables set mode and project.

    Args:
        log_dir: the folder, which names the run. It stores the run's id, so a resumed training run
            continues the same run.
        resume_step: as in `open_logs`. Rows that were sent cannot be removed; Weights & Biases
            drops new rows that repeat a step.

    Raises:
        MissingExtraError: wandb is not installed.
    """

    def __init__(self, log_dir: Path, resume_step: int | None = None) -> None:
        wandb = _package_of("wandb")
        kept = log_dir / "wandb_id.txt"
        known = kept.read_text().strip() if resume_step is not None and kept.exists() else None
        self._run: Any = wandb.init(
            dir=str(log_dir), name=log_dir.name, id=known, resume="allow" if known else None
        )
        kept.write_text(f"{self._run.id}\n")

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        values = {name: float(x) for name, x in metrics.items() if not math.isnan(x)}
        self._run.log(values, step=int(step))

    def close(self) -> None:
        self._run.finish()


KINDS: dict[str, Callable[[Path, int | None], Log]] = {
    "csv": CSVLog,
    "jsonl": JSONLinesLog,
    "tensorboard": TensorBoardLog,
    "wandb": WandbLog,
}


_PACKAGES = {  # of kinds of logs: title and package
    "tensorboard": ("TensorBoard", "tensorboardX"),
    "wandb": ("Weights & Biases", "wandb"),
}


def _package_of(kind: str) -> Any:
    """Imports the package that a kind of log needs; None if it needs none."""
    if kind not in _PACKAGES:
        return None
    title, package = _PACKAGES[kind]
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise missing_extra(f"Logs for {title}", package, kind) from error


class Logs:
    """A context manager that combines several logs."""

    def __init__(self, logs: Sequence[Log]) -> None:
        self._logs = list(logs)

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Writes a row to each log."""
        for log in self._logs:
            log.write(step, metrics)

    def close(self) -> None:
        """Closes all logs."""
        for log in self._logs:
            log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def open_logs(
    log_dir: str | Path,
    kinds: Collection[str] = ("csv", "jsonl"),
    *,
    resume_step: int | None = None,
) -> Logs:
    """Opens logs of several kinds as one.

    Args:
        log_dir: the folder; it is created if it does not exist.
        kinds: "csv", "jsonl", "tensorboard" (extra `tensorboard`), "wandb" (extra `wandb`).
            Duplicates are ignored.
        resume_step: the step from which a training run resumes. Rows up to this step are kept, and
            later ones dropped, because they will be written again. None replaces existing logs.

    Raises:
        TrainingError: there is no such kind; the message suggests the closest name.
        MissingExtraError: a required package is not installed.
    """
    kinds = check_logs(kinds)
    log_dir = Path(log_dir)
    logs: list[Log] = []
    with removing_on_error(log_dir):
        try:
            for kind in kinds:
                logs.append(KINDS[kind](log_dir, resume_step))
        except BaseException:
            Logs(logs).close()
            raise
    return Logs(logs)


def check_logs(kinds: Collection[str]) -> list[str]:
    """Returns the kinds of logs without duplicates, if all of them can be opened.

    Raises:
        TrainingError, MissingExtraError: see `open_logs`.
    """
    if isinstance(kinds, str):
        raise TrainingError(
            f'open_logs got the string "{kinds}" for the kinds of logs; expected a list.'
            f'  Pass ["{kinds}"].'
        )
    kinds = list(dict.fromkeys(kinds))  # two logs of a kind would overwrite each other
    for kind in kinds:
        if kind not in KINDS:
            raise TrainingError(
                f'there is no log of the kind "{kind}".{closest(kind, KINDS)}'
                f"  The kinds are {', '.join(KINDS)}."
            )
        _package_of(kind)
    return kinds


@contextlib.contextmanager
def removing_on_error(folder: Path) -> Iterator[None]:
    """Creates a folder if it does not exist. After an error, removes everything that is new."""
    new_folders = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    before = {*folder.iterdir()}
    try:
        yield
    except BaseException:
        remove_new(folder, before, new_folders)
        raise


def remove_new(folder: Path, before: set[Path], new_folders: Iterable[Path]) -> None:
    """Removes all that was not in a folder before, then new folders, the innermost first."""
    for path in {*folder.iterdir()} - before:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with contextlib.suppress(OSError):  # others may use a folder by now
        for each in new_folders:
            each.rmdir()


def read_metrics(log_dir: str | Path) -> dict[str, np.ndarray]:
    """Reads a `CSVLog` as float64[rows] per column, with NaN for missing values.

    Raises:
        TrainingError: the folder has no `metrics.csv`.
    """
    path = Path(log_dir) / CSV_FILE
    if not path.is_file():
        raise TrainingError(
            f'"{log_dir}" contains no {CSV_FILE}.  Pass the log_dir of a training run with logs.'
        )
    columns, rows = _read_csv(path)
    return {
        name: np.array([float(row.get(name) or "nan") for row in rows], np.float64)
        for name in columns
    }


def _format_number(value: Any, nothing: str) -> str:
    """Returns the shortest text that parses to the same number, or `nothing` for NaN."""
    number = value if isinstance(value, int) else np.asarray(value)[()]
    if math.isnan(number):
        return nothing
    return f"{int(number)}" if isinstance(number, bool | np.bool_) else str(number)


def _csv_line(fields: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(fields)
    return text.getvalue()


def _read_csv(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Returns columns and rows, ignoring an incomplete last line."""
    reader = csv.DictReader(_complete_lines(path))
    rows = list(reader)
    return list(reader.fieldnames or [STEP]), rows


def _complete_lines(path: Path) -> Iterator[str]:
    with path.open(newline="") as file:
        return iter([line for line in file if line.endswith("\n")])


def _parse_row(line: str) -> dict[str, Any] | None:
    try:
        return json.loads(line)
    except json.JSONDecodeError:
        return None


def replace_file(path: Path, text: str) -> Any:
    """Atomically replaces a file by `text`, and opens it to append."""
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(text, newline="")
    os.replace(draft, path)
    return path.open("a", newline="")
