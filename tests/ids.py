"""Registered ids for parametrized tests, and which combinations the quick tests take."""

from collections.abc import Iterable
from typing import Any

import pytest

import jaxenvs

IDS = sorted(jaxenvs.registry)


def one_id_per_class() -> list[str]:
    """Returns the first id of each class; other ids of the class differ from it by numbers."""
    first: dict[type, str] = {}
    for id in IDS:
        first.setdefault(type(jaxenvs.make(id).unwrapped), id)
    return sorted(first.values())


def every_nth(n: int, values: Iterable[Any]) -> list[Any]:
    """Returns the values as parameters of a test; all but every n-th are marked slow."""
    return [
        pytest.param(value, marks=[] if i % n == 0 else [pytest.mark.slow])
        for i, value in enumerate(values)
    ]
