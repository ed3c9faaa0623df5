"""What the parts of the host bridge's benchmark measure with and report to."""

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

# (calls) -> seconds that they took
Timed = Callable[[int], float]
_PRELUDE = 3  # untimed calls before a sample: whoever sat idle is awake, and caches are warm


@dataclasses.dataclass(frozen=True)
class Measurement:
    """What one contestant did with one case of a part."""

    part: str
    case: str
    contestant: str
    calls: int  # a sample
    micros: list[float]  # a call, one a repetition
    num_envs: int | None = None


@dataclasses.dataclass(frozen=True)
class Figure:
    """A number that the project wants to know, beside what it is to be."""

    part: str
    case: str
    name: str
    values: list[float]  # one a repetition, each from samples of that repetition alone
    required: float | None = None
    at_least: bool = True  # else at most

    @property
    def middle(self) -> float:
        return _common.quartiles(self.values)[1]

    @property
    def margin(self) -> float | None:
        """How many times better than required; below 1 it is missed."""
        if self.required is None:
            return None
        if self.at_least:
            return self.middle / self.required
        return self.required / self.middle if self.middle > 0 else float("inf")


class Record:
    """Where a part puts what it measured.

    Args:
        part: its name.
        repeats: repetitions of every comparison.
        min_seconds: the least duration of a sample, unless a single call is longer.
        quick: whether a look is enough, with few cases.
        quiet: whether nothing is said in between.
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
        """Times the sides in turn, the order rotating; returns seconds a call by repetition."""
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
        self.say(f"{case}: {line} µs")
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
        """Adds a figure, one value a repetition, and what its median is to be."""
        figure = Figure(self.part, case, name, list(values), required, at_least)
        self.figures.append(figure)
        target = f" (required {'≥' if at_least else '≤'} {required:g})" if required else ""
        self.say(f"{case}: {name} = {figure.middle:.3g}{target}")

    def note(self, text: str) -> None:
        """Something that a reader of the figures has to know."""
        if text not in self.notes:
            self.notes.append(text)
            self.say(f"note: {text}")

    def say(self, text: str) -> None:
        if not self._quiet:
            print(f"[{self.part}] {text}", file=sys.stderr, flush=True)

    def as_dict(self) -> dict[str, Any]:
        return {
            "measurements": [dataclasses.asdict(each) for each in self.measurements],
            "figures": [dataclasses.asdict(each) for each in self.figures],
            "notes": [f"{self.part}: {text}" for text in self.notes],
        }

    def _of(self, case: str) -> list[Measurement]:
        return [each for each in self.measurements if each.case == case]


def ratios(above: Sequence[float], below: Sequence[float]) -> list[float]:
    """Of each repetition, the seconds of one side over those of another."""
    return [a / b for a, b in zip(above, below, strict=True)]


def fastest(seconds: Mapping[str, Sequence[float]], names: Iterable[str]) -> str:
    """Whose median is the least."""
    return min(names, key=lambda name: _middle(seconds[name]))


def stepping(step: Callable[[Any], Any], actions: Sequence[Any]) -> Timed:
    """Calls `step` with one action after the other."""
    following = itertools.cycle(actions)

    def run(calls: int) -> float:
        for action in itertools.islice(following, _PRELUDE):
            step(action)
        begin = time.perf_counter()
        for action in itertools.islice(following, calls):
            # Kept until the next step, as a learner does.
            result = step(action)  # noqa: F841
        return time.perf_counter() - begin

    return run


def slow_stepping(step: Callable[[Any], Any], actions: Sequence[Any]) -> Timed:
    """As `stepping`, for steps of many milliseconds: without the untimed ones."""
    following = itertools.cycle(actions)

    def run(calls: int) -> float:
        begin = time.perf_counter()
        for action in itertools.islice(following, calls):
            step(action)
        return time.perf_counter() - begin

    return run


@contextlib.contextmanager
def parked(pids: Sequence[int]) -> Iterator[Callable[[Timed], Timed]]:
    """Stops processes while it is not their turn: some spin while nobody wants anything of them.

    Gives a function that has another one run with the processes going on.
    """

    def signal_all(number: signal.Signals) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def wrapped(run: Timed) -> Timed:
        def woken(calls: int) -> float:
            signal_all(signal.SIGCONT)
            try:
                return run(calls)
            finally:
                signal_all(signal.SIGSTOP)

        return woken

    signal_all(signal.SIGSTOP)
    try:
        yield wrapped
    finally:
        signal_all(signal.SIGCONT)


def _middle(samples: Sequence[float]) -> float:
    return _common.quartiles(samples)[1]
