"""The batches of vectorized environments, in the form of a pool's arrays."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.backends._drivers import Raw
from jaxenvs.bridge.backends.base import Settings
from jaxenvs.bridge.memory.arrays import Answer
from jaxenvs.bridge.memory.layout import Leaf, getter, leaves_of

_SMALL = 4096  # up to this size a dot product finds NaN fastest


class Answers(Sequence):
    """The two answers as arrays with a row for each environment.

    Batches of all environments are kept by reference; partial batches are copied to their rows.
    """

    def __init__(self, memory: Sequence[Answer], settings: Settings) -> None:
        self._memory, self._settings = memory, settings
        self._base: list[Any] = list(memory)
        self._part: list[Any] = [None, None]

    def put(self, buffer: int, ids: np.ndarray | None, leaves: list[Any], batch: Any) -> None:
        if ids is None:
            self._base[buffer], self._part[buffer] = (leaves, batch), None
        else:
            self._part[buffer] = ids, leaves, batch

    def __len__(self) -> int:
        return len(self._memory)

    def __getitem__(self, buffer: Any) -> Any:
        memory, part = self._memory[buffer], self._part[buffer]
        if isinstance(self._base[buffer], tuple):
            self._base[buffer] = self._of(*self._base[buffer])
        if part is not None:
            if self._base[buffer] is not memory:
                _copy_rows(memory, slice(None), self._base[buffer])
                self._base[buffer] = memory
            ids, leaves, batch = part
            _copy_rows(memory, ids, self._of(leaves, batch))
            self._part[buffer] = None
        return self._base[buffer]

    def _of(self, leaves: list[np.ndarray], batch: Any) -> Answer:
        _, reward, terminated, truncated, infos = batch
        fields = self._settings.info_fields
        found = [(infos[name], leaves_of(space)) for name, space in fields.items()]
        finals, final_arrays = [], []
        if self._memory[0].final_observation:
            gets = [getter(leaf.path) for leaf in leaves_of(self._settings.observation_space)]
            finals = [leaf.copy() for leaf in leaves]
            for row in np.flatnonzero(infos.get("_final_obs", ())).tolist():
                for final, get in zip(finals, gets, strict=True):
                    final[row] = get(infos["final_obs"][row])
            final_arrays = final_fields_of(infos, fields)
        size = np.zeros(len(reward), np.int32)
        arrays = [getter(leaf.path)(value) for value, each in found for leaf in each]
        return Answer(
            leaves,
            finals,
            *(reward, terminated, truncated, arrays, final_arrays, size),
            self._memory[0].info,
        )


def final_fields_of(infos: Mapping[str, Any], fields: Mapping[str, Any]) -> list[np.ndarray]:
    """Returns the fields of a batch; where an episode ended, those of its last step (0 if none)."""
    ended, last, found = infos.get("_final_obs"), infos.get("final_info"), []
    for name, space in fields.items():
        finals = last.get(name) if isinstance(last, Mapping) else None
        for leaf in leaves_of(space):
            array = np.array(getter(leaf.path)(infos[name]))
            if ended is not None and ended.any():
                final = field_of(finals, leaf, len(array))
                array[ended] = final[ended]
            found.append(array)
    return found


def _copy_rows(memory: Answer, rows: Any, answer: Answer) -> None:
    for name in ("reward", "terminated", "truncated"):
        getattr(memory, name)[rows] = getattr(answer, name)
    for name in ("observation", "final_observation", "fields", "final_fields"):
        for target, source in zip(getattr(memory, name), getattr(answer, name), strict=True):
            target[rows] = source


def fitting(value: Any, leaf: Leaf, count: int) -> np.ndarray:
    """Returns `value` as the array of a leaf, [count, ...].

    Raises:
        ValueError: the shape or the kind of dtype is wrong.
    """
    found = np.asarray(value)
    if found.dtype == leaf.dtype and found.shape[1:] == leaf.shape and len(found) == count:
        return found
    if found.shape != (count, *leaf.shape) or not np.can_cast(found.dtype, leaf.dtype, "same_kind"):
        raise ValueError(
            f"{f'entry {leaf.at} of the' if leaf.at else 'the'} observation is"
            f" {found.dtype}{list(found.shape)}; its space expects {leaf.dtype}"
            f"{[count, *leaf.shape]}"
        )
    return found.astype(leaf.dtype)


def field_of(value: Any, leaf: Leaf, count: int) -> np.ndarray:
    """Returns an entry of info as an array of its space; zeros if it is missing."""
    if value is None:
        return np.zeros((count, *leaf.shape), leaf.dtype)
    try:
        found = np.asarray(getter(leaf.path)(value))
        return found.astype(leaf.dtype, copy=False).reshape((count, *leaf.shape))
    except (KeyError, IndexError, TypeError, ValueError):
        return np.zeros((count, *leaf.shape), leaf.dtype)


def has_nan(array: np.ndarray) -> bool:
    """Returns whether an array of floats contains NaN."""
    flat = array if array.ndim == 1 else array.reshape(-1)
    return math.isnan(np.dot(flat, flat) if flat.size <= _SMALL else np.min(flat))


def together(
    parts: Sequence[Raw],
    gets: Sequence[Callable[[Any], Any]],
    rebuilt: Callable[[Sequence[np.ndarray]], Any],
) -> Raw:
    """Concatenates partial answers; keeps the info arrays that all of them have."""

    def joined(name: str) -> np.ndarray:
        return np.concatenate([np.asarray(getattr(part, name)) for part in parts])

    leaves = [np.concatenate([get(part.observation) for part in parts]) for get in gets]
    names = [
        name
        for name, value in parts[0].info.items()
        if isinstance(value, np.ndarray) and all(name in part.info for part in parts)
    ]
    info = {name: np.concatenate([part.info[name] for part in parts]) for name in names}
    return Raw(
        joined("ids"),
        rebuilt(leaves),
        joined("reward"),
        joined("terminated"),
        joined("truncated"),
        info,
        parts[0].is_reset,
    )


def rows_of(infos: Mapping[str, Any], rows: np.ndarray, count: int) -> dict[str, Any]:
    """Returns some rows of an info of `count` rows."""
    chosen: dict[str, Any] = {}
    for name, value in infos.items():
        if isinstance(value, Mapping):
            chosen[name] = rows_of(value, rows, count)
        else:
            is_batch = isinstance(value, np.ndarray) and value.shape[:1] == (count,)
            chosen[name] = value[rows] if is_batch else value
    return chosen


def first_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the first environment's part of an info, for entries that are arrays."""
    return {
        name: value[0]
        for name, value in info.items()
        if isinstance(value, np.ndarray) and value.dtype != object and not name.startswith("_")
    }
