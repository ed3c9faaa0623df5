"""Infos that are built on first access, because many callers never look at them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any


class LazyInfoList(Sequence):
    """A sequence of N dicts, as classic gym has them, that is built on first access."""

    def __init__(self, length: int, make: Callable[[], list[dict[str, Any]]]) -> None:
        self._length, self._make = length, make

    @functools.cached_property
    def _dicts(self) -> list[dict[str, Any]]:
        return self._make()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self._dicts[index]

    def __repr__(self) -> str:
        return repr(self._dicts)

    def __eq__(self, other: object) -> bool:
        return self._dicts == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # like a list  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> Any:
        return list, (self._dicts,)
