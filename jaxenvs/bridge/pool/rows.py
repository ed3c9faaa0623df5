"""Gathering some rows of an answer into a batch, and spreading a batch over all rows."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxenvs.bridge.backends.base import Settings
from jaxenvs.bridge.memory.layout import leaves_of, tree_of


class Rows:
    """The arrays of a partial batch, to which rows of an answer are copied."""

    def __init__(self, settings: Settings, size: int) -> None:
        self._settings = settings
        leaves = leaves_of(settings.observation_space)
        self._observation = [np.empty((size, *leaf.shape), leaf.dtype) for leaf in leaves]
        self._reward = np.empty(size)
        self._terminated, self._truncated = np.empty(size, bool), np.empty(size, bool)

    def gather(self, answer: Any, ids: np.ndarray) -> tuple[Any, ...]:
        count = len(ids)
        observation = iter(
            [
                # "clip" spares a second copy; the numbers are in range.
                source.take(ids, 0, target[:count], "clip")
                for source, target in zip(answer.observation, self._observation, strict=True)
            ]
        )
        return (
            tree_of(self._settings.observation_space, observation),
            answer.reward.take(ids, 0, self._reward[:count], "clip"),
            answer.terminated.take(ids, 0, self._terminated[:count], "clip"),
            answer.truncated.take(ids, 0, self._truncated[:count], "clip"),
            fields_of(self._settings, [array[ids] for array in answer.fields]),
        )


def fields_of(settings: Settings, arrays: list[np.ndarray]) -> dict[str, Any]:
    leaves = iter(arrays)
    return {name: tree_of(space, leaves) for name, space in settings.info_fields.items()}


def copied(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: copied(value) for key, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(map(copied, tree))
    return tree.copy()


def spread(infos: Mapping[str, Any], ids: np.ndarray, size: int) -> dict[str, Any]:
    """Returns the infos of some environments as infos of all `size`, with masks of the valid rows.

    Entries without a row for each of `ids` stay unchanged; vectorized environments may have some.
    """
    found: dict[str, Any] = {}
    for name, value in infos.items():
        if isinstance(value, Mapping):
            found[name] = spread(value, ids, size)
        elif isinstance(value, tuple):
            found[name] = tuple(spread({"": each}, ids, size)[""] for each in value)
        elif isinstance(value, np.ndarray) and value.shape[:1] == ids.shape:
            shape = size, *value.shape[1:]
            is_any = value.dtype == object
            found[name] = np.full(shape, None) if is_any else np.zeros(shape, value.dtype)
            found[name][ids] = value
        else:
            found[name] = value
    return found
