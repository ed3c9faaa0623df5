"""From the infos of single environments to those of a batch, in Gymnasium's form."""

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def merged(infos: dict[str, Any], rows: Iterable[tuple[int, Mapping[str, Any]]], size: int) -> None:
    """Puts each (row, info) into `infos`: arrays where values are numbers, and a mask beside each.

    Values that differ in type or shape from row to row are kept as objects.
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
        infos[name] = _column(infos.get(name), at, values, size)
        mask = infos.get(f"_{name}")
        if mask is None:
            mask = infos[f"_{name}"] = np.zeros(size, np.bool_)
        mask[at] = True


def _column(found: Any, at: list[int], values: list[Any], size: int) -> Any:
    """`found` with `values` at some of its rows."""
    if found is None and _are_alike(values):
        found = _array_for(values[0], size)
        if found.dtype != object:
            try:
                found[at] = values
                return found
            except OverflowError:  # a whole number beyond int64
                pass
    for row, value in zip(at, values, strict=True):
        if isinstance(value, Mapping):
            if not isinstance(found, dict):
                found = {}
            merged(found, ((row, value),), size)
        else:
            found = _put(found, row, value, size)
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
    found = np.asarray(value) if array.dtype != object else None
    if found is not None:
        if found.shape == array.shape[1:] and np.can_cast(found.dtype, array.dtype, "same_kind"):
            array[row] = found
            return array
        if found.dtype != object and found.shape == array.shape[1:]:
            array = array.astype(np.result_type(found.dtype, array.dtype))
            array[row] = found
            return array
        array = _as_objects(array)
    array[row] = value
    return array


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
    """The info of a step, and that of the episode which ended in it."""
    if type(data) is tuple:  # never pickled, within one process
        return data
    info, final_info = pickle.loads(data)
    return info or {}, final_info or {}
