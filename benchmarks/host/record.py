"""Timing and reporting for the parts of the host bridge's benchmark."""

import contextlib
import dataclasses
import itertools
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import _common

Timed = Callable[[int], float]  # (number of calls) -> seconds
_WARM_UP_CALLS = 3  # untimed calls before a sample, which wake idle workers and warm caches


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Results of one contestant in one case of a part."""

    part: str
    case: str
    contestant: str
    calls: int  # per sample
    micros: list[float]  # per call, one value per repetition
    num_envs: int | None = None


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure derived from measurements, with the value that is required."""

    part: str
    case: str
    name: str
    values: list[float]  # one per repetition, from the samples of that repetition
    required: float | None = None
    at_least: bool = True  # whether `required` is a minimum; otherwise it is a maximum

    @property
    def middle(self) -> float:
        return _common.quartiles(self.values)[1]

    @property
    def margin(self) -> float | None:
        """Returns how many times better than required the median is; below 1 means missed."""
        if self.required is None:
            return None
        if self.at_least:
            return self.middle / self.required
        return self.required / self.middle if self.middle > 0 else float("inf")


class Record:
    """Collects the measurements of a part.

    Args:
        part: its name.
        repeats: repetitions of every comparison.
        min_seconds: minimum duration of a sample.
        quick: whether to measure only a few cases.
        quiet: whether to print no progress.
    """

    def __init__(
        self, part: str, repeats: int, min_seconds: float, quick: bool = False, quiet: bool = False
    ) -> None:
        self.part, self.repeats, self.min_seconds = part, repeats, min_seconds
        self.quick, self._quiet = quick, quiet
        self.measurements: list[Measurement] = []
        self.figures: list[Figure] = []
        self.notes: list[str] = []

    def race(
        self,
        case: str,
        sides: Mapping[str, Timed],
        *,
        num_envs: int | None = None,
        min_seconds: float | None = None,
    ) -> dict[str, list[float]]:
        """Times the sides in turn, in rotating order.

        Returns:
            The seconds per call of each side, one value per repetition.
        """
        samplers = {name: _common.Sampler(run) for name, run in sides.items()}
        least = self.min_seconds if min_seconds is None else min_seconds
        _common.alternate(list(samplers.values()), self.repeats, least)
        seconds = {}
        for name, sampler in samplers.items():
            seconds[name] = [sample / sampler.calls for sample in sampler.seconds]
            micros = [1e6 * each for each in seconds[name]]
            self.measurements.append(
                Measurement(self.part, case, name, sampler.calls, micros, num_envs)
            )
        line = ", ".join(f"{m.contestant} {_middle(m.micros):.4g}" for m in self._of(case))
        self._print(f"{case}: {line} µs")
        return seconds

    def figure(
        self,
        case: str,
        name: str,
        values: Iterable[float],
        required: float | None = None,
        *,
        at_least: bool = True,
    ) -> None:
        """Adds a figure with one value per repetition, and the value required of its median."""
        figure = Figure(self.part, case, name, list(values), required, at_least)
        self.figures.append(figure)
        target = f" (required {'≥' if at_least else '≤'} {required:g})" if required else ""
        self._print(f"{case}: {name} = {figure.middle:.3g}{target}")

    def note(self, text: str) -> None:
        """Adds a note to the report, once."""
        if text not in self.notes:
            self.notes.append(text)
            self._print(f"note: {text}")

    def as_dict(self) -> dict[str, Any]:
        return {
            "measurements": [dataclasses.asdict(each) for each in self.measurements],
            "figures": [dataclasses.asdict(each) for each in self.figures],
            "notes": [f"{self.part}: {text}" for text in self.notes],
        }

    def _of(self, case: str) -> list[Measurement]:
        return [each for each in self.measurements if each.case == case]

    def _print(self, text: str) -> None:
        if not self._quiet:
            print(f"[{self.part}] {text}", file=sys.stderr, flush=True)


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Returns the ratios of two sides' seconds within each repetition."""
    return [a / b for a, b in zip(above, below, strict=True)]


def fastest(seconds: Mapping[str, Sequence[float]], names: Iterable[str]) -> str:
    """Returns the name with the smallest median."""
    return min(names, key=lambda name: _middle(seconds[name]))


def stepping(step: Callable[[Any], Any], actions: Sequence[Any]) -> Timed:
    """Returns a function that times calls of `step`, cycling through the actions."""
    following = itertools.cycle(actions)

    def run(calls: int) -> float:
        for action in itertools.islice(following, _WARM_UP_CALLS):
            step(action)
        begin = time.perf_counter()
        for action in itertools.islice(following, calls):
            # The result stays alive until the next step, as in a learner.
            result = step(action)  # noqa: F841
        return time.perf_counter() - begin

    return run


def slow_stepping(step: Callable[[Any], Any], actions: Sequence[Any]) -> Timed:
    """Returns the same without warm-up calls, for steps of many milliseconds."""
    following = itertools.cycle(actions)

    def run(calls: int) -> float:
        begin = time.perf_counter()
        for action in itertools.islice(following, calls):
            step(action)
        return time.perf_counter() - begin

    return run


@contextlib.contextmanager
def paused(pids: Sequence[int]) -> Iterator[Callable[[Timed], Timed]]:
    """Stops processes that would spin while they are idle.

    Yields a decorator that resumes the processes while the decorated function runs.
    """

    def signal_all(number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wrapped(run: Timed) -> Timed:
        def resumed(calls: int) -> float:
            signal_all(signal.SIGCONT)
            try:
                return run(calls)
            finally:
                signal_all(signal.SIGSTOP)

        return resumed

    signal_all(signal.SIGSTOP)
    try:
        yield wrapped
    finally:
        signal_all(signal.SIGCONT)


def _middle(samples: Sequence[float]) -> float:
    return _common.quartiles(samples)[1]
