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
        infos[name] = _column(infos.get(name), at, values, size, depth)
        mask = infos.get(f"_{name}")
        if mask is None:
            mask = infos[f"_{name}"] = np.zeros(size, np.bool_)
        mask[at] = True


def _column(found: Any, at: list[int], values: list[Any], size: int, depth: int) -> Any:
    """`found` with `values` at some of its rows."""
    is_mixed = found is None
    if found is None and _are_alike(values):
        found = _array_for(values[0], size)
        is_mixed = False
        if found.dtype != object:
            try:
                found[at] = values
                return found
            except OverflowError:  # an integer beyond int64
                found, is_mixed = None, True
    for row, value in zip(at, values, strict=True):
        if isinstance(value, Mapping) and depth < _DEEPEST:
            if not isinstance(found, dict):
                found = {}
            merged(found, ((row, value),), size, depth + 1)
        else:
            found = _put(found, row, value, size)
    if is_mixed and isinstance(found, np.ndarray) and found.dtype == object:
        found = np.full(size, None, object)  # the original values, not NumPy scalars
        for row, value in zip(at, values, strict=True):
            found[row] = value
    return found


def _are_alike(values: list[Any]) -> bool:
    first = values[0]
    if not all(type(value) is type(first) for value in values):
        return False
    if type(first) is not np.ndarray:
        return not isinstance(first, Mapping)
    return all(value.shape == first.shape and value.dtype == first.dtype for value in values)


def _put(array: Any, row: int, value: Any, size: int) -> np.ndarray:
    if array is None or isinstance(array, dict):
        array = _array_for(value, size)
    if array.dtype != object:
        found = _as_array(value)
        common = None
        if found is not None and found.shape == array.shape[1:]:
            common = _common(found.dtype, array.dtype)
        if common is not None:
            array = array if common == array.dtype else array.astype(common)
            array[row] = found
            return array
        array = _as_objects(array)
    array[row] = value
    return array


def _as_array(value: Any) -> np.ndarray | None:
    try:
        return np.asarray(value)
    except ValueError:  # lists of different lengths
        return None


def _common(one: np.dtype, other: np.dtype) -> np.dtype | None:
    """Returns a dtype that holds values of both without loss, or None."""
    if one == other:
        return one
    if one.kind in "biufc" and other.kind in "biufc":
        found = np.result_type(one, other)
        # No integer dtype holds both int64 and uint64, and floats would round.
        return None if found.kind == "f" and "f" not in one.kind + other.kind else found
    # NumPy would promote a number and a string to a string.
    return np.result_type(one, other) if one.kind == other.kind and one.kind in "US" else None


def _array_for(value: Any, size: int) -> np.ndarray:
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        kind = type(value) if isinstance(value, (bool, int, float)) else value.dtype
        return np.zeros(size, kind)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return np.zeros((size, *value.shape), value.dtype)
    return np.full(size, None, object)


def _as_objects(array: np.ndarray) -> np.ndarray:
    objects = np.full(len(array), None, object)
    for i, value in enumerate(array):
        objects[i] = value
    return objects


def unpickled(data: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the info of a step, and the final info of the episode that ended in it."""
    if type(data) is tuple:  # never pickled, within one process
        return data
    info, final_info = pickle.loads(data)
    return info or {}, final_info or {}
