"""Operations on an environment, written as generators that yield the calls into the environment.

A generator does the bookkeeping. Whoever drives it decides where each call runs: in this thread, in
a thread that can be abandoned, or on an event loop.
"""

from collections.abc import Callable, Generator
from typing import Any

Call = Callable[[], Any]
Calls = Generator[Call, Any, Any]  # it receives results by send, exceptions by throw


class Abandoned(BaseException):
    """Ends a thread whose environment hung, after another thread has taken over."""


class Unthrowable(Exception):
    """Wraps an environment's exception that would have a meaning to a generator."""

    def __init__(self, original: BaseException) -> None:
        super().__init__(original)
        self.original = original


def throwable(error: BaseException) -> BaseException:
    """Wraps an environment's exception if it cannot be thrown into a generator as it is."""
    return Unthrowable(error) if isinstance(error, (GeneratorExit, StopIteration)) else error


def original(error: BaseException) -> BaseException:
    """Returns the environment's exception, unwrapped."""
    return error.original if isinstance(error, Unthrowable) else error


def run_here(calls: Calls, run: Callable[[Call], Any] | None = None) -> Any:
    """Drives a generator in this thread, each call through `run`; returns its return value."""
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
