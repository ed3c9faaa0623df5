"""Work on an environment, written as a generator of the calls that it makes into the environment.

The generator does the bookkeeping and yields each call. Its driver decides where the call runs: in
this thread, in a thread that can be abandoned, or on an event loop.
"""

from collections.abc import Callable, Generator
from typing import Any

Call = Callable[[], Any]
Calls = Generator[Call, Any, Any]  # results are sent to it, and exceptions thrown into it


class Abandoned(BaseException):
    """Ends the work of a thread whose environment hung; another thread has taken over."""


class Unthrowable(Exception):
    """Stands for an exception of an environment that means something else to a generator."""

    def __init__(self, original: BaseException) -> None:
        super().__init__(original)
        self.original = original


def throwable(error: BaseException) -> BaseException:
    """Returns what to throw into a generator in place of an exception of an environment."""
    return Unthrowable(error) if isinstance(error, (GeneratorExit, StopIteration)) else error


def original(error: BaseException) -> BaseException:
    """Returns the exception of an environment that was thrown."""
    return error.original if isinstance(error, Unthrowable) else error


def run_here(calls: Calls, run: Callable[[Call], Any] | None = None) -> Any:
    """Runs calls in this thread, each of them through `run`; returns what the generator returns."""
    resume: Any = calls.send
    value: Any = None
    while True:
        try:
            call = resume(value)
        except StopIteration as end:
            return end.value
        try:
            value = call() if run is None else run(call)
            resume = calls.send
        except Abandoned:
            raise
        except BaseException as error:
            resume, value = calls.throw, throwable(error)
