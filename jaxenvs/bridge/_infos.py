"""From the infos of single environments to those of a batch, in Gymnasium's form."""

import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np


def merged(infos: dict[str, Any], rows: Iterable[tuple[int, Mapping[str, Any]]], size: int) -> None:
    """Puts each (row, info) into `infos`: arrays where values are numbers, and a mask beside each.

    Values that differ in type or shape from row to row are kept as objects.
    """
    for row, info in rows:
        for name, value in info.items():
            if isinstance(value, Mapping):
                entry = infos.get(name)
                if not isinstance(entry, dict):
                    entry = infos[name] = {}
                merged(entry, ((row, value),), size)
            else:
                infos[name] = _put(infos.get(name), row, value, size)
            mask = infos.get(f"_{name}")
            if mask is None:
                mask = infos[f"_{name}"] = np.zeros(size, np.bool_)
            mask[row] = True


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
    info, final_info = pickle.loads(data)
    return info or {}, final_info or {}
