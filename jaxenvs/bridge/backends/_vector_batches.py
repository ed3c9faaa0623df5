"""Batches as vectorized environments return them."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxenvs.bridge.memory.layout import Leaf, getter
from jaxenvs.bridge.workers.views import fitting


class VectorBatch(NamedTuple):
    """The result of a step or a reset of a vectorized environment."""

    ids: Any  # int32[n], the environment of each row; None for all, in order
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Any
    is_reset: bool = False

    @classmethod
    def of_reset(
        cls, result: tuple[Any, Mapping[str, Any]], count: int, ids: np.ndarray | None = None
    ) -> "VectorBatch":
        """Returns the result of a `reset` of `count` environments, with zeros for the rest."""
        observation, info = result
        no = np.zeros(count, bool)
        return cls(ids, observation, np.zeros(count), no, no.copy(), info, is_reset=True)

    @classmethod
    def concatenated(cls, parts: Sequence["VectorBatch"]) -> "VectorBatch":
        """Concatenates partial batches; keeps the info arrays that all of them have."""
        if len(parts) == 1:
            return parts[0]
        return cls(*_concatenated([part[:-1] for part in parts]), is_reset=parts[0].is_reset)

    def take(self, rows: np.ndarray, count: int, ids: np.ndarray | None) -> "VectorBatch":
        """Returns some rows of a batch with `count` rows, which belong to `ids`."""
        return VectorBatch(*take_rows(self, rows, count))._replace(ids=ids)


def take_rows(tree: Any, rows: np.ndarray, count: int) -> Any:
    """Returns some rows of each array in a tree that has `count` rows; the rest is unchanged."""
    if isinstance(tree, Mapping):
        return {name: take_rows(value, rows, count) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(take_rows(value, rows, count) for value in tree)
    is_batch = isinstance(tree, np.ndarray) and tree.shape[:1] == (count,)
    return tree[rows] if is_batch else tree


def _concatenated(trees: Sequence[Any]) -> Any:
    """Concatenates the arrays of trees; omits what is no array, or is missing in one of them."""
    first = trees[0]
    if isinstance(first, Mapping):
        names = [name for name in first if all(name in tree for tree in trees)]
        found = {name: _concatenated([tree[name] for tree in trees]) for name in names}
        return {name: value for name, value in found.items() if value is not None}
    if isinstance(first, tuple):
        return tuple(map(_concatenated, zip(*trees, strict=True)))
    return np.concatenate(trees) if isinstance(first, np.ndarray) else None


def observation_array(value: Any, leaf: Leaf, count: int) -> np.ndarray:
    """Returns a part of an observation as the array of a leaf, [count, ...].

    Raises:
        ValueError: the shape or the kind of dtype is wrong.
    """
    array, shape = np.asarray(value), (count, *leaf.shape)
    if array.dtype == leaf.dtype and array.shape == shape:
        return array
    return fitting(array, dataclasses.replace(leaf, shape=shape)).astype(leaf.dtype)


def field_array(value: Any, leaf: Leaf, count: int) -> np.ndarray:
    """Returns an entry of info as the array of a leaf, [count, ...]; zeros if it is missing."""
    shape = count, *leaf.shape
    if value is not None:
        with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
            array = np.asarray(getter(leaf.path)(value))
            return array.astype(leaf.dtype, copy=False).reshape(shape)
    return np.zeros(shape, leaf.dtype)
