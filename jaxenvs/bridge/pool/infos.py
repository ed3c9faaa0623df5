"""The infos of single environments merged into the info of a batch, in Gymnasium's form."""

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

_DEEPEST = 16  # dicts below this become objects; one may contain itself


def merged(
    infos: dict[str, Any], rows: Iterable[tuple[int, Mapping[str, Any]]], size: int, depth: int = 0
) -> None:
    """Merges each (row, info) into `infos`: arrays where the values are numbers, each with a mask.

    Numbers of different types become an array of a common type. Values whose shapes differ between
    rows, or that are not all numbers, become arrays of objects.
    """
    columns: dict[str, tuple[list[int], list[Any]]] = {}
    for row, info in rows:
        for name, value in info.items():
            column = columns.get(name)
            if column is None:
                column = columns[name] = [], []
            column[0].append(row)
            column[1].append(value)
    for name, (at, values) in columns.items():
        infos[name] = _column(at, values, size, depth)
        infos[f"_{name}"] = mask = np.zeros(size, np.bool_)
        mask[at] = True


def _column(at: list[int], values: list[Any], size: int, depth: int) -> Any:
    """Returns values of some rows as one array, or a dict of arrays."""
    are_dicts = [isinstance(value, Mapping) for value in values]
    if all(are_dicts) and depth < _DEEPEST:
        found: dict[str, Any] = {}
        merged(found, zip(at, values, strict=True), size, depth + 1)
        return found
    if not any(are_dicts):
        array = _alike(at, values, size) if _are_alike(values) else _common(at, values, size)
        if array is not None:
            return array
    objects = np.full(size, None, object)
    for row, value in zip(at, values, strict=True):
        objects[row] = value
    return objects


def _are_alike(values: list[Any]) -> bool:
    first = values[0]
    if not all(type(value) is type(first) for value in values):
        return False
    if type(first) is not np.ndarray:
        return True
    return all(value.shape == first.shape and value.dtype == first.dtype for value in values)


def _alike(at: list[int], values: list[Any], size: int) -> np.ndarray | None:
    array = _array_for(values[0], size)
    if array is not None:
        try:
            array[at] = values
        except OverflowError:  # an integer beyond int64
            return None
    return array


def _common(at: list[int], values: list[Any], size: int) -> np.ndarray | None:
    """Returns one array for values of different types, or None if no dtype holds them all."""
    array = _array_for(values[0], size)
    for row, value in zip(at, values, strict=True):
        found = _as_array(value)
        if array is None or found is None or found.shape != array.shape[1:]:
            return None
        dtype = _common_dtype(found.dtype, array.dtype)
        if dtype is None:
            return None
        array = array.astype(dtype, copy=False)
        array[row] = found
    return array


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return None


def _common_dtype(one: np.dtype, other: np.dtype) -> np.dtype | None:
    """Returns a dtype that holds values of both without loss, or None."""
    if one == other:
        return one
    if one.kind in "biufc" and other.kind in "biufc":
        found = np.result_type(one, other)
        # No integer dtype holds both int64 and uint64, and floats would round.
        return None if found.kind == "f" and "f" not in one.kind + other.kind else found
    # NumPy would promote a number and a string to a string.
    return np.result_type(one, other) if one.kind == other.kind and one.kind in "US" else None


def _array_for(value: Any, size: int) -> np.ndarray | None:
    """Returns an array for values like this one, or None if they are not numbers."""
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        kind = type(value) if isinstance(value, (bool, int, float)) else value.dtype
        return np.zeros(size, kind)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.zeros((size, *value.shape), value.dtype)
    return None


def unpickled(data: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the info of a step, and the final info of the episode that ended in it."""
    if type(data) is tuple:  # never pickled, within one process
        return data
    info, final_info = pickle.loads(data)
    return info or {}, final_info or {}
