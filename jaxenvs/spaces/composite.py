"""Spaces that consist of other spaces."""

import abc
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import prng
from jaxenvs.errors import SpaceError, check_integer, describe
from jaxenvs.spaces.box import Box
from jaxenvs.spaces.space import Space


class CompositeSpace(Space):
    """The base class of `Dict` and `Tuple`, which delegates to the spaces of the parts."""

    _parts: tuple[Space, ...]

    @abc.abstractmethod
    def _pack(self, parts: Iterable[Any]) -> Any:
        """Returns the dict or tuple of the parts' values."""

    @abc.abstractmethod
    def _unpack(self, value: Any) -> Sequence[Any] | None:
        """Returns the parts' values, or None if `value` has another structure."""

    @abc.abstractmethod
    def _with_parts(self, parts: Iterable[Space]) -> "CompositeSpace":
        """Returns a space of the same structure."""

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> Any:
        masks = [None] * len(self._parts) if mask is None else self._unpack(mask)
        if masks is None:
            raise SpaceError(
                f"sample got a mask whose structure is not that of {self}.\n"
                "  Pass a mask for each part, or None to allow every value of that part."
            )
        keys: Any = jax.random.split(prng.as_fast_key(key), len(self._parts)) if self._parts else ()
        return self._pack(
            space.sample(part_key, shape, part_mask)
            for space, part_key, part_mask in zip(self._parts, keys, masks, strict=True)
        )

    def contains(self, value: Any) -> jax.Array:
        values = self._unpack(value)
        if values is None:
            return jnp.bool_(False)
        result = jnp.bool_(True)
        for space, part in zip(self._parts, values, strict=True):
            result &= space.contains(part)
        return result

    def batch(self, n: int) -> Any:
        n = check_integer(SpaceError, f"{type(self).__name__}.batch got n", n)
        return self._with_parts(space.batch(n) for space in self._parts)

    @property
    def flat_dim(self) -> int:
        return sum(space.flat_dim for space in self._parts)

    def flatten(self, value: Any) -> jax.Array:
        values = self._unpack(value)
        if values is None:
            raise SpaceError(f"flatten got a value whose structure is not that of {self}.")
        dtype = self._flat_dtype()
        flat = [
            space.flatten(part).astype(dtype)
            for space, part in zip(self._parts, values, strict=True)
        ]
        return jnp.concatenate(flat) if flat else jnp.zeros(0, dtype)

    def unflatten(self, array: Any) -> Any:
        array = self._check_flat(array)
        ends = np.cumsum([space.flat_dim for space in self._parts], dtype=int).tolist()
        starts = [0, *ends][: len(ends)]
        return self._pack(
            space.unflatten(array[start:end])
            for space, start, end in zip(self._parts, starts, ends, strict=True)
        )

    def flatten_space(self) -> Box:
        boxes = [cast(Box, space.flatten_space()) for space in self._parts]
        dtype = self._flat_dtype()
        xp: Any = np if all(box.is_concrete for box in boxes) else jnp
        low, high = (
            xp.concatenate([xp.zeros(0, dtype), *(xp.asarray(bound, dtype) for bound in bounds)])
            for bounds in ([box.low for box in boxes], [box.high for box in boxes])
        )
        return Box(low, high, (self.flat_dim,), dtype)

    def _flat_dtype(self) -> np.dtype:
        dtypes = leaf_dtypes(self)
        if len(dtypes) == 1:
            return dtypes.pop()
        return np.dtype(np.float64 if np.dtype(np.float64) in dtypes else np.float32)

    def __len__(self) -> int:
        return len(self._parts)


class Dict(CompositeSpace):
    """Plain dicts with a space for each key.

    Keys are strings. They are sorted, as in JAX and Gymnasium, so `flatten`, samples and tree
    leaves all have the same order. A mask is a dict with the same keys; None allows every value
    of a part. Dicts with other keys and other kinds of mappings are not members.

    Args:
        spaces: a mapping from keys to spaces.
        **more: more spaces, by keyword.

    Raises:
        SpaceError: a key is not a string or given twice, or a value is not a space.

    Example:
        >>> Dict(position=Box(-1.0, 1.0, (2,)), fuel=Discrete(10))
        Dict(fuel=Discrete(10), position=Box(-1.0, 1.0, (2,), float32))
    """

    _keys: tuple[str, ...]

    def __init__(self, spaces: Mapping[str, Space] | None = None, /, **more: Space) -> None:
        if spaces is not None and not isinstance(spaces, Mapping):
            raise SpaceError(
                f"Dict got a {type(spaces).__name__}; it must be a mapping from strings to spaces."
            )
        given = dict(spaces or {})
        if twice := sorted(given.keys() & more.keys()):
            raise SpaceError(f"Dict got {twice} twice, in the mapping and by keyword.")
        given.update(more)
        for key, space in given.items():
            if not isinstance(key, str):
                raise SpaceError(f"Dict got the key {key!r}; keys must be strings.")
            _check_space(space, f'Dict\'s "{key}"')
        keys = tuple(sorted(given))
        vars(self).update(_keys=keys, _parts=tuple(given[key] for key in keys))

    @property
    def spaces(self) -> Mapping[str, Space]:
        """The space of each key, sorted by key; read-only."""
        return types.MappingProxyType(dict(zip(self._keys, self._parts, strict=True)))

    def _pack(self, parts: Iterable[Any]) -> dict[str, Any]:
        return dict(zip(self._keys, parts, strict=True))

    def _unpack(self, value: Any) -> Sequence[Any] | None:
        if not isinstance(value, dict) or value.keys() != set(self._keys):
            return None
        return [value[key] for key in self._keys]

    def _with_parts(self, parts: Iterable[Space]) -> "Dict":
        return Dict(self._pack(parts))

    def __getitem__(self, key: str) -> Space:
        return self.spaces[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dict):
            return NotImplemented
        return self._keys == other._keys and self._parts == other._parts

    def __hash__(self) -> int:
        return hash((Dict, self._keys, self._parts))

    def __repr__(self) -> str:
        if not all(key.isidentifier() for key in self._keys):
            return f"Dict({self._pack(self._parts)})"
        return f"Dict({', '.join(f'{key}={space}' for key, space in self.spaces.items())})"


class Tuple(CompositeSpace):
    """Plain tuples with a space for each position.

    A mask is a tuple with a part per position; None allows every value of a part. Lists are not
    members, because JAX distinguishes them from tuples.

    Args:
        spaces: the spaces, in order.

    Raises:
        SpaceError: `spaces` is not a sequence of spaces.

    Example:
        >>> Tuple([Discrete(2), Box(0.0, 1.0)])
        Tuple(Discrete(2), Box(0.0, 1.0, (), float32))
    """

    def __init__(self, spaces: Iterable[Space]) -> None:
        if not isinstance(spaces, Iterable):
            raise SpaceError(f"Tuple got {spaces!r}; it must be a sequence of spaces.")
        parts = tuple(spaces)
        for index, space in enumerate(parts):
            _check_space(space, f"Tuple's part {index}")
        vars(self).update(_parts=parts)

    @property
    def spaces(self) -> tuple[Space, ...]:
        """The space of each position."""
        return self._parts

    def _pack(self, parts: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(parts)

    def _unpack(self, value: Any) -> Sequence[Any] | None:
        fits = isinstance(value, tuple) and len(value) == len(self._parts)
        return value if fits else None

    def _with_parts(self, parts: Iterable[Space]) -> "Tuple":
        return Tuple(parts)

    def __getitem__(self, index: int) -> Space:
        return self._parts[index]

    def __iter__(self) -> Iterator[Space]:
        return iter(self._parts)

    def __eq__(self, other: object) -> bool:
        return self._parts == other._parts if isinstance(other, Tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash((Tuple, self._parts))

    def __repr__(self) -> str:
        return f"Tuple({', '.join(map(repr, self._parts))})"


def map_leaves(
    function: Callable[[Space, Any, str], Any],
    space: Space,
    value: Any,
    path: str,
    problems: list[str],
) -> Any:
    """Applies `function(space, leaf, path)` to each leaf of `value`.

    Args:
        function: called with the space of an array, the part of `value` at its place, and the
            path of that part, such as "action['arm'][0]".
        space: determines the structure.
        value: a tree of dicts and tuples.
        path: the name of `value`.
        problems: a list to which messages are added where the structure of `value` differs from
            that of `space`.

    Returns:
        The results in the structure of `value`; parts of another structure are returned unchanged.
    """
    if isinstance(space, Dict):
        if not isinstance(value, dict) or value.keys() != set(space):
            keys = f" with keys {list(value)}" if isinstance(value, dict) else ""
            problems.append(
                f"{path} is {describe(value)}{keys}, expected a dict with keys {list(space)}"
            )
            return value
        return {
            key: map_leaves(function, part, value[key], f"{path}[{key!r}]", problems)
            for key, part in space.spaces.items()
        }
    if isinstance(space, Tuple):
        if not isinstance(value, tuple) or len(value) != len(space):
            problems.append(f"{path} is {describe(value)}, expected a tuple of {len(space)}")
            return value
        return tuple(
            map_leaves(function, part, value[i], f"{path}[{i}]", problems)
            for i, part in enumerate(space)
        )
    return function(space, value, path)


def _check_space(space: Any, what: str) -> None:
    if not isinstance(space, Space):
        raise SpaceError(
            f"{what} is {space!r}; it must be a jaxenvs space.\n"
            "  spaces.from_gymnasium and spaces.from_dm_env convert spaces of other libraries."
        )


def leaf_dtypes(space: Space) -> set[np.dtype]:
    """Returns the dtypes of all leaves."""
    if isinstance(space, CompositeSpace):
        return set().union(*(leaf_dtypes(part) for part in space._parts))
    assert space.dtype is not None
    return {space.dtype}
