"""Running a training row by row of its metrics, so that it can be looked after in between."""

import abc
import contextlib
import dataclasses
import operator
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.bridge._interrupts import FirstSignal
from jaxenvs.errors import TrainingError
from jaxenvs.training import ActorPolicy, Learner, LearnerState, Scheme, Train, restore, save
from jaxenvs.training.algorithms.base import Behavior
from jaxenvs.training.collecting import summarized
from jaxenvs.training.schemes.workers import hosted

Report = Callable[[int, Mapping[str, np.ndarray]], None]


@dataclasses.dataclass
class Stop:
    """Whether a signal asked to stop, and which."""

    asked: signal.Signals | None = None

    @property
    def status(self) -> int:
        """The exit status: 0, or the usual one for a process that the signal ended."""
        return 0 if self.asked is None else 128 + self.asked


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Takes SIGINT and SIGTERM for a wish to stop; a second one acts as it always does.

    Raises:
        KeyboardInterrupt: the second one came while a program waited for hosted environments.
    """
    stop = Stop()

    def ask(number: signal.Signals) -> None:
        stop.asked = number
        with contextlib.suppress(OSError):  # a print may be what the signal came into
            os.write(2, b"jaxenvs: stops after this row; again to stop at once\n")

    signals = FirstSignal(ask)
    try:
        yield stop
    except jax.errors.JaxRuntimeError as error:
        if stop.asked == signal.SIGINT and "KeyboardInterrupt: " in str(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        signals.ignore()


class Loop(abc.ABC):
    """A training under way, of one seed or of S side by side.

    `run_seconds` are what `timed_updates` took, and `compile_seconds` what it took to begin.
    """

    num_updates: int  # of the training in all
    steps_per_update: int  # environment steps, of one seed

    def __init__(self) -> None:
        self.compile_seconds = self.run_seconds = 0.0
        self.timed_updates = 0

    def run(self, report: Report, stop: Stop) -> None:
        """Trains to the end, or to the row in which a stop was asked for.

        `report` gets the updates so far and a row of metrics, [S] each.
        """
        while self.updates < self.num_updates and stop.asked is None:
            row = self.advance()
            report(self.updates, row)

    @property
    @abc.abstractmethod
    def updates(self) -> int:
        """How many are done."""

    @property
    @abc.abstractmethod
    def env(self) -> Any:
        """What is learned in."""

    @abc.abstractmethod
    def advance(self) -> dict[str, np.ndarray]:
        """Goes on by a row of metrics, [S] each."""

    @abc.abstractmethod
    def policy(self) -> ActorPolicy:
        """The greedy policy as it is now; of S seeds, with a leading axis."""

    @abc.abstractmethod
    def behaviors(self) -> list[Behavior]:
        """What acting takes, of each seed."""

    @abc.abstractmethod
    def save(self, paths: Sequence[Path]) -> None:
        """Writes a checkpoint for each seed."""

    @abc.abstractmethod
    def restore(self, paths: Sequence[Path]) -> None:
        """Goes on from these."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends workers and hosted environments."""


class OneProgram(Loop):
    """A training that is one program, of all seeds.

    It is no `Learner`, which has one seed and keeps what it had before a step: here the state is
    donated, else a memory of transitions would be copied for each row.

    Args:
        train: what to run.
        seed: the first one.
        num_seeds: S; None trains one, without an axis of seeds.
    """

    def __init__(self, train: Train, seed: int, num_seeds: int | None = None) -> None:
        super().__init__()
        self.train, self.num_seeds = train, num_seeds
        self.num_updates = train.num_updates
        self.steps_per_update = train.parts.steps_per_update
        self._programs: dict[int, Any] = {}
        self.learner_state: LearnerState
        if num_seeds is None:
            self.learner_state = jax.jit(train.init)(jax.random.key(seed))
        else:
            keys = jax.vmap(jax.random.key)(np.arange(seed, seed + num_seeds, dtype=np.uint32))
            self.learner_state = jax.jit(jax.vmap(train.init))(keys)

    @property
    def updates(self) -> int:
        return int(np.max(self.learner_state.updates))

    @property
    def env(self) -> Any:
        return self.train.env

    def advance(self) -> dict[str, np.ndarray]:
        count = min(self.train.report_every, self.num_updates - self.updates)
        started = time.perf_counter()
        if count not in self._programs:  # at most two: the last row may be shorter
            self._programs[count] = self._compiled(count)
            self.compile_seconds += time.perf_counter() - started
            started = time.perf_counter()
        self.learner_state, metrics = self._programs[count](self.learner_state)
        row = {name: np.atleast_1d(np.asarray(x)[..., 0]) for name, x in metrics.items()}
        seconds = time.perf_counter() - started
        self.run_seconds += seconds
        self.timed_updates += count
        speed = np.float32(count * self.steps_per_update / seconds)
        return {**row, "steps_per_second": np.full_like(row["steps"], speed)}

    def policy(self) -> ActorPolicy:
        return self.train.policy(self.learner_state)

    def behaviors(self) -> list[Behavior]:
        return self._each(Behavior.of(self.learner_state))

    def save(self, paths: Sequence[Path]) -> None:
        # All are written before one takes its place. So, whenever the process ends, there is a
        # number of updates of which every seed has a checkpoint, in the one folder or the other.
        for path, state in zip(paths, self._each(self.learner_state), strict=True):
            save(_next(path), state)
        for path in paths:
            previous = path.with_name(f".{path.name}.previous")  # where `restore` looks, too
            if path.exists():
                shutil.rmtree(previous, ignore_errors=True)
                path.rename(previous)
            _next(path).rename(path)
            shutil.rmtree(previous, ignore_errors=True)

    def restore(self, paths: Sequence[Path]) -> None:
        like = jax.eval_shape(self.train.init, jax.random.key(0))
        saved = [_saved(path, like) for path in paths]
        common = set.intersection(*map(set, saved))
        if not common:
            stands = ", ".join(
                f"{path.parent} at {max(each) * self.steps_per_update:,} steps"
                for path, each in zip(paths, saved, strict=True)
            )
            raise TrainingError(
                f"the checkpoints of these seeds are not of one time: {stands}.  Go on with each"
                f" alone: jaxenvs train --resume {paths[0].parent}, and so on."
            )
        states = [each[max(common)] for each in saved]
        state = states[0]
        if self.num_seeds is not None:
            state = jax.tree.map(lambda *x: jnp.stack(x), *states)
        if hosted(self.env) is not None:  # whose environments are in no checkpoint
            state = self.train.cut(state).replace(collector=self.learner_state.collector)
        self.learner_state = state

    def close(self) -> None:
        close(self.env)

    def _each(self, tree: Any) -> list[Any]:
        """What belongs to single seeds."""
        if self.num_seeds is None:
            return [tree]
        return [jax.tree.map(operator.itemgetter(i), tree) for i in range(self.num_seeds)]

    def _compiled(self, count: int) -> Any:
        def advance(learner_state: LearnerState) -> Any:
            result = self.train.resume(learner_state, count)
            return result.learner_state, result.metrics

        vmapped = advance if self.num_seeds is None else jax.vmap(advance)
        return jax.jit(vmapped, donate_argnums=0).lower(self.learner_state).compile()


def _next(path: Path) -> Path:
    """Where a checkpoint waits until those of all seeds are written."""
    return path.with_name(f"{path.name}.next")


def _saved(path: Path, like: LearnerState) -> dict[int, LearnerState]:
    """The checkpoints of a seed, by the updates they are from: one, or two after a crash."""
    places = [each for each in (path, _next(path)) if each.is_dir()] or [path]
    states = [restore(each, like) for each in places]
    return {int(np.asarray(state.updates)): state for state in states}


class WithWorkers(Loop):
    """A training of one seed that a `Learner` drives, with its workers.

    Logs, checkpoints and signals are those of the command line, as of every other training.

    Args:
        scheme: what is done where.
        total_steps: environment steps in all.
        seed: of everything random.
        report_every: updates that a row of metrics sums up.
    """

    def __init__(self, scheme: Scheme, total_steps: int, seed: int, report_every: int) -> None:
        super().__init__()
        started = time.perf_counter()
        self._report_every, self._is_compiled = report_every, False
        self._learner = Learner(
            scheme, total_steps=total_steps, seed=seed, report_every=report_every
        )
        self.num_updates = self._learner.num_updates
        self.steps_per_update = self._learner.steps_per_update
        self.compile_seconds = time.perf_counter() - started

    @property
    def updates(self) -> int:
        return self._learner.updates

    @property
    def env(self) -> Any:
        return self._learner.env

    def advance(self) -> dict[str, np.ndarray]:
        started, before = time.perf_counter(), self.updates
        until = min(before + self._report_every, self.num_updates)
        rows = [self._learner.step()]
        while self.updates < until:
            rows.append(self._learner.step())
        seconds = time.perf_counter() - started
        if self._is_compiled:
            self.run_seconds += seconds
            self.timed_updates += self.updates - before
        else:  # workers compile while they begin, which cannot be told apart
            self.compile_seconds += seconds
            self._is_compiled = True
        return _summed_up(rows)

    def policy(self) -> ActorPolicy:
        return self._learner.policy()

    def behaviors(self) -> list[Behavior]:
        return [Behavior.of(self._learner.learner_state)]

    def save(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._learner.save(path)

    def restore(self, paths: Sequence[Path]) -> None:
        (path,) = paths
        self._learner.restore(path)

    def close(self) -> None:
        self._learner.close()


def _summed_up(rows: Sequence[Mapping[str, float]]) -> dict[str, np.ndarray]:
    """Rows of a learner's metrics as one, [1] each."""
    names = {name for row in rows for name in row} - {"seconds"}
    columns = {
        name: jnp.asarray([row.get(name, np.nan) for row in rows], jnp.float32) for name in names
    }
    summary = jax.device_get(summarized(columns))
    return {name: np.atleast_1d(summary[name]) for name in sorted(summary)}


def close(env: Any) -> None:
    """Ends an environment if it is hosted; others have no end."""
    hosts = hosted(env)
    if hosts is not None:
        hosts.close()
