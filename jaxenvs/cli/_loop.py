"""Running a training row by row of its metrics, so that it can be stopped in between."""

import contextlib
import dataclasses
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from jaxenvs.training import LearnerState, Train

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
    """Takes SIGINT and SIGTERM for a wish to stop; a second one acts as it always does."""
    stop, kept = Stop(), {}

    def ask(number: int, frame: Any) -> None:
        stop.asked = signal.Signals(number)
        restore()

    def restore() -> None:
        while kept:
            signal.signal(*kept.popitem())

    if threading.current_thread() is threading.main_thread():  # others cannot be told of signals
        kept = {each: signal.signal(each, ask) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        restore()


@dataclasses.dataclass(frozen=True)
class Loop:
    """A training of one seed, or of S in one program: then its state has a leading axis."""

    train: Train
    num_seeds: int | None = None

    def init(self, seed: int) -> LearnerState:
        """The state of an untrained learner; of S, with the seeds from `seed` on."""
        if self.num_seeds is None:
            return jax.jit(self.train.init)(jax.random.key(seed))
        keys = jax.vmap(jax.random.key)(np.arange(seed, seed + self.num_seeds, dtype=np.uint32))
        return jax.jit(jax.vmap(self.train.init))(keys)

    def run(
        self, learner_state: LearnerState, report: Report, stop: Stop
    ) -> tuple[LearnerState, dict[str, float]]:
        """Trains to the end, or to the row in which a stop was asked for.

        `report` gets the updates so far and a row of metrics, [S] each. The state that is passed
        in is used up. Returns the last one, and the seconds of "compile" and "run".
        """
        done, num_updates = self.updates(learner_state), self.train.num_updates
        seconds = {"compile": 0.0, "run": 0.0}
        programs: dict[int, Any] = {}
        while done < num_updates and stop.asked is None:
            count = min(self.train.report_every, num_updates - done)
            started = time.perf_counter()
            if count not in programs:  # at most two: the last row may be shorter
                programs[count] = self._advance(count).lower(learner_state).compile()
                seconds["compile"] += time.perf_counter() - started
                started = time.perf_counter()
            learner_state, metrics = programs[count](learner_state)
            row = {name: np.asarray(values)[..., 0] for name, values in metrics.items()}
            seconds["run"] += time.perf_counter() - started
            done += count
            report(done, {name: np.atleast_1d(values) for name, values in row.items()})
        return learner_state, seconds

    def updates(self, learner_state: LearnerState) -> int:
        """How many updates a state has behind it."""
        return int(np.max(learner_state.updates))

    def each(self, learner_state: LearnerState) -> list[LearnerState]:
        """The states of single seeds."""
        if self.num_seeds is None:
            return [learner_state]
        return [jax.tree.map(lambda x: x[i], learner_state) for i in range(self.num_seeds)]  # noqa: B023

    def together(self, learner_states: list[LearnerState]) -> LearnerState:
        """What `each` took apart."""
        if self.num_seeds is None:
            return learner_states[0]
        return jax.tree.map(lambda *x: jax.numpy.stack(x), *learner_states)

    def _advance(self, count: int) -> Any:
        def advance(learner_state: LearnerState) -> Any:
            result = self.train.resume(learner_state, count)
            return result.learner_state, result.metrics

        # Donated, else a memory of transitions would be copied for each row.
        vmapped = advance if self.num_seeds is None else jax.vmap(advance)
        return jax.jit(vmapped, donate_argnums=0)
