"""The batches of vectorized environments, in the form of a pool's arrays."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from jaxenvs.bridge.memory.arrays import Answer
from jaxenvs.bridge.memory.layout import Leaf, getter, leaves_of, tree_of
from jaxenvs.bridge.workers.views import flat_has_nan


class Raw(NamedTuple):
    """An answer of a vectorized environment, unchanged."""

    ids: Any  # int32[n], the environment of each row; None for all, in order
    observation: Any
    reward: Any
    terminated: Any
    truncated: Any
    info: Mapping[str, Any]
    is_reset: bool = False

    @classmethod
    def of_reset(cls, found: tuple[Any, Mapping[str, Any]], count: int) -> "Raw":
        """Returns the answer of a `reset` of `count` environments, with zeros for the rest."""
        flags = np.zeros(count, bool)
        observation, info = found
        return cls(None, observation, np.zeros(count), flags, flags.copy(), info, is_reset=True)

    @classmethod
    def together(cls, parts: Sequence["Raw"]) -> "Raw":
        """Concatenates partial answers; keeps the info arrays that all of them have."""
        if len(parts) == 1:
            return parts[0]
        return cls(*_joined([part[:-1] for part in parts]), is_reset=parts[0].is_reset)

    def rows(self, rows: np.ndarray, count: int, ids: np.ndarray | None) -> "Raw":
        """Returns some rows of an answer with `count` rows, which belong to `ids`."""
        return Raw(*rows_of(self, rows, count))._replace(ids=ids)


class Form:
    """The arrays that batches of a space consist of."""

    def __init__(self, space: gymnasium.Space) -> None:
        self.space, self.leaves = space, leaves_of(space)
        self._gets = [getter(leaf.path) for leaf in self.leaves]
        self.is_plain = len(self.leaves) == 1 and not self.leaves[0].path

    def parts(self, tree: Any) -> list[Any]:
        return [tree] if self.is_plain else [get(tree) for get in self._gets]

    def tree(self, parts: Sequence[Any]) -> Any:
        return parts[0] if self.is_plain else tree_of(self.space, iter(parts))


@dataclasses.dataclass
class Batch:
    """A batch with the attributes of an `Answer`; those that are seldom read are made then."""

    form: Form  # of the observations
    info_fields: Mapping[str, gymnasium.Space]
    ids: np.ndarray  # the environment of each row
    observation: list[np.ndarray]
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    infos: dict[str, Any]  # the environment's own, and the info_fields

    @property
    def fields(self) -> list[np.ndarray]:
        """The info_fields."""
        return [getter(leaf.path)(self.infos[name]) for name, leaf in self._field_leaves()]

    @property
    def final_fields(self) -> list[np.ndarray]:
        """The info_fields; where an episode ended, those of its last step, or 0."""
        ended, last = self.infos.get("_final_obs"), self.infos.get("final_info")
        if ended is None or not ended.any():
            return self.fields
        finals = [array.copy() for array in self.fields]
        for array, (name, leaf) in zip(finals, self._field_leaves(), strict=True):
            value = last.get(name) if isinstance(last, Mapping) else None
            array[ended] = field_of(value, leaf, len(array))[ended]
        return finals

    def _field_leaves(self) -> list[tuple[str, Leaf]]:
        spaces = self.info_fields.items()
        return [(name, leaf) for name, space in spaces for leaf in leaves_of(space)]

    @property
    def final_observation(self) -> list[np.ndarray]:
        """The observation; where an episode ended, its last one."""
        ended = np.flatnonzero(self.infos.get("_final_obs", ())).tolist()
        if not ended:
            return self.observation
        finals = [array.copy() for array in self.observation]
        for row in ended:
            parts = self.form.parts(self.infos["final_obs"][row])
            for array, part in zip(finals, parts, strict=True):
                array[row] = part
        return finals


def copy_rows(source: Any, target: Answer, rows: Any) -> None:
    """Copies an answer, or a batch, to some rows of an answer."""
    for name in ("reward", "terminated", "truncated"):
        getattr(target, name)[rows] = getattr(source, name)
    names = "observation", "fields"
    if target.final_observation:  # under same-step autoreset
        names += "final_observation", "final_fields"
    for name in names:
        for array, found in zip(getattr(target, name), getattr(source, name), strict=True):
            array[rows] = found


def rows_of(tree: Any, rows: np.ndarray, count: int) -> Any:
    """Returns some rows of each array in a tree that has `count` rows; the rest is unchanged."""
    if isinstance(tree, Mapping):
        return {name: rows_of(value, rows, count) for name, value in tree.items()}
    if isinstance(tree, tuple):
        return tuple(rows_of(value, rows, count) for value in tree)
    is_batch = isinstance(tree, np.ndarray) and tree.shape[:1] == (count,)
    return tree[rows] if is_batch else tree


def _joined(trees: Sequence[Any]) -> Any:
    """Concatenates the arrays of trees; omits what is no array, or is missing in one of them."""
    first = trees[0]
    if isinstance(first, Mapping):
        names = [name for name in first if all(name in tree for tree in trees)]
        found = {name: _joined([tree[name] for tree in trees]) for name in names}
        return {name: value for name, value in found.items() if value is not None}
    if isinstance(first, tuple):
        return tuple(map(_joined, zip(*trees, strict=True)))
    return np.concatenate(trees) if isinstance(first, np.ndarray) else None


def fitting(value: Any, leaf: Leaf, count: int) -> np.ndarray:
    """Returns `value` as the array of a leaf, [count, ...].

    Raises:
        ValueError: the shape or the kind of dtype is wrong.
    """
    found, shape = np.asarray(value), (count, *leaf.shape)
    if found.dtype == leaf.dtype and found.shape == shape:
        return found
    if found.shape != shape or not np.can_cast(found.dtype, leaf.dtype, "same_kind"):
        raise ValueError(
            f"{f'entry {leaf.at} of the' if leaf.at else 'the'} observation is"
            f" {found.dtype}{list(found.shape)}; its space expects {leaf.dtype}{list(shape)}"
        )
    return found.astype(leaf.dtype)


def field_of(value: Any, leaf: Leaf, count: int) -> np.ndarray:
    """Returns an entry of info as an array of its space; zeros if it is missing."""
    shape = count, *leaf.shape
    if value is not None:
        with contextlib.suppress(KeyError, IndexError, TypeError, ValueError):
            found = np.asarray(getter(leaf.path)(value))
            return found.astype(leaf.dtype, copy=False).reshape(shape)
    return np.zeros(shape, leaf.dtype)


def has_nan(array: np.ndarray) -> bool:
    """Returns whether an array of floats contains NaN."""
    return flat_has_nan(array if array.ndim == 1 else array.reshape(-1))
