"""Where each array of a pool lies in its shared memory, and the trees that they form.

Arrays lie as the batch that the caller sees: row i belongs to instance i. What steps return is
there twice, so that a batch stays as it is while the next one is being made.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.errors import PoolError

_ALIGNMENT = 128  # two cache lines, which processors fetch in pairs
BUFFERS = 2


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An array that a space has somewhere in it."""

    path: tuple[Any, ...]  # keys and indices that lead to it
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def at(self) -> str:
        """Where it is, as one would write it behind the tree; empty for the tree itself."""
        return _written(self.path)

    def space_in(self, space: Any) -> gymnasium.Space:
        """The part of `space` that it is an element of."""
        for key in self.path:
            space = space.spaces[key]
        return space


def _written(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key!r}]" for key in path)


def leaves_of(space: gymnasium.Space, path: tuple[Any, ...] = ()) -> list[Leaf]:
    """The arrays that an element of `space` consists of.

    Raises:
        PoolError: somewhere in it there is something that is no array of fixed shape.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in leaves_of(sub, (*path, key))]
    if isinstance(space, gymnasium.spaces.Tuple):
        return [leaf for i, sub in enumerate(space.spaces) for leaf in leaves_of(sub, (*path, i))]
    if space.shape is None or space.dtype is None:
        at = _written(path)
        raise PoolError(
            f"a pool cannot hold {space}{' at ' + at if at else ''}: it has no arrays of fixed"
            " shape.  Wrap the environment so that it gives Box, Discrete, MultiDiscrete,"
            " MultiBinary, or Dict or Tuple of them."
        )
    # By its name: unpickled dtypes equal NumPy's own but are not the same objects.
    return [Leaf(path, tuple(space.shape), np.dtype(space.dtype.str))]


def tree_of(space: gymnasium.Space, leaves: Iterator[Any]) -> Any:
    """An element of `space`, or a batch of them, made of its arrays in the order of `leaves_of`."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: tree_of(sub, leaves) for key, sub in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(tree_of(sub, leaves) for sub in space.spaces)
    return next(leaves)


def leaves_in(tree: Any, space: gymnasium.Space) -> list[Any]:
    """The arrays of a tree, in the order of `leaves_of`.

    Raises:
        KeyError, IndexError: it is no tree like `space`.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        if set(tree) != set(space.spaces):
            raise KeyError(f"{sorted(tree)} for {sorted(space.spaces)}")
        return [leaf for key, sub in space.spaces.items() for leaf in leaves_in(tree[key], sub)]
    if isinstance(space, gymnasium.spaces.Tuple):
        if len(tree) != len(space.spaces):
            raise IndexError(f"{len(tree)} for {len(space.spaces)}")
        return [leaf for i, sub in enumerate(space.spaces) for leaf in leaves_in(tree[i], sub)]
    return [tree]


def getter(path: tuple[Any, ...]) -> Callable[[Any], Any]:
    """A function that follows `path` into a tree."""
    if not path:
        return lambda tree: tree
    if len(path) == 1:
        (key,) = path
        return lambda tree: tree[key]

    def get(tree: Any) -> Any:
        for key in path:
            tree = tree[key]
        return tree

    return get


@dataclasses.dataclass(frozen=True)
class Field:
    """An array in shared memory."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype

    def view(self, memory: Any) -> np.ndarray:
        return np.ndarray(self.shape, self.dtype, memory, self.offset)


@dataclasses.dataclass
class Fields:
    """Lays arrays one behind the other."""

    size: int = 0

    def add(self, shape: tuple[int, ...], dtype: Any) -> Field:
        field = Field(self.size, shape, np.dtype(dtype))
        num_bytes = math.prod(shape) * field.dtype.itemsize
        self.size += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return field
