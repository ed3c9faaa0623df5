"""Ranges of numbers, as annotations of the fields of algorithms and storages.

    @struct.pytree_dataclass
    class KLPPO(PPO):
        beta: NotNegative = 2.0
        gamma: Annotated[float, Range("must be above 0.9", lambda value: value > 0.9)] = 0.99

Subclasses inherit the range of a field, unless they annotate it again.
"""

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import pydantic


@dataclasses.dataclass(frozen=True)
class Range:
    """A range of numbers, for `Annotated[float, Range(...)]`."""

    words: str  # what a number must be, for messages
    fits: Callable[[Any], Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        check = pydantic.AfterValidator(self._check)
        return check.__get_pydantic_core_schema__(source, handler)

    def _check(self, value: Any) -> Any:
        if not self.fits(value):
            raise ValueError(self.words)
        return value


AT_LEAST_0 = Range("must not be below 0", lambda value: value >= 0)

Count = Annotated[int, Range("must be at least 1", lambda value: value >= 1)]
Fraction = Annotated[float, Range("must be between 0 and 1", lambda value: 0 <= value <= 1)]
Positive = Annotated[float, Range("must be above 0", lambda value: value > 0)]
NotNegative = Annotated[float, AT_LEAST_0]
Steps = Annotated[int, AT_LEAST_0]
