"""The tables, and what they consist of."""

import statistics
from collections.abc import Callable, Iterable, Sequence

Table = Callable[[], list[str]]
TABLES: dict[str, Table] = {}


def table(make: Table) -> Table:
    """Registers a function that returns the lines of the table of its name."""
    TABLES[make.__name__] = make
    return make


def ratios(theirs: Sequence[float], ours: Sequence[float]) -> list[float]:
    """Returns the ratio within each repetition."""
    return [their / own for their, own in zip(theirs, ours, strict=True)]


def median(samples: Sequence[float]) -> float:
    return statistics.median(samples)


def digits(value: float) -> str:
    """Returns three significant digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def times(samples: Sequence[float]) -> str:
    """Returns the median of ratios, such as 4.75×."""
    middle = median(samples)
    return f"{middle:.1f}×" if middle >= 10 else f"{middle:.2f}×"


def numbers(values: Iterable[int]) -> list[str]:
    return [f"{value:,}" for value in values]


def threads(count: int) -> str:
    return f"{count} thread{'s' * (count > 1)}"
