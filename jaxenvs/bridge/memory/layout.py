"""The elements of a space as a tree of arrays."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.errors import PoolError


@dataclasses.dataclass(frozen=True)
class Leaf:
    """An array inside the elements of a space."""

    path: tuple[Any, ...]  # the keys and indices that lead to it
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def at(self) -> str:
        """The path as an indexing expression, such as "['a'][0]"; empty at the root."""
        return _written(self.path)

    def space_in(self, space: Any) -> gymnasium.Space:
        """Returns the part of `space` that the array belongs to."""
        for key in self.path:
            space = space.spaces[key]
        return space


def _written(path: tuple[Any, ...]) -> str:
    return "".join(f"[{key!r}]" for key in path)


def leaves_of(space: gymnasium.Space, path: tuple[Any, ...] = ()) -> list[Leaf]:
    """Returns the arrays that make up an element of `space`.

    Raises:
        PoolError: a part of the space is not an array of fixed shape.
    """
    if isinstance(space, gymnasium.spaces.Dict):
        return [leaf for key, sub in space.spaces.items() for leaf in leaves_of(sub, (*path, key))]
    if isinstance(space, gymnasium.spaces.Tuple):
        return [leaf for i, sub in enumerate(space.spaces) for leaf in leaves_of(sub, (*path, i))]
    if space.shape is None or space.dtype is None:
        at = _written(path)
        raise PoolError(
            f"a pool cannot hold {space}{' at ' + at if at else ''}, whose elements are not arrays"
            " of fixed shape.  Wrap the environment so that its spaces are Box, Discrete,"
            " MultiDiscrete, MultiBinary, or Dict or Tuple of these."
        )
    # By name, because an unpickled dtype equals NumPy's own but is another object.
    return [Leaf(path, tuple(space.shape), np.dtype(space.dtype.str))]


def tree_of(space: gymnasium.Space, leaves: Iterator[Any]) -> Any:
    """Builds an element of `space`, or a batch, from its arrays in the order of `leaves_of`."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: tree_of(sub, leaves) for key, sub in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(tree_of(sub, leaves) for sub in space.spaces)
    return next(leaves)


def leaves_in(tree: Any, space: gymnasium.Space) -> list[Any]:
    """Returns the arrays of a tree, in the order of `leaves_of`.

    Raises:
        KeyError, IndexError: the tree does not have the structure of `space`.
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
    """Returns a function that follows `path` into a tree."""
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
