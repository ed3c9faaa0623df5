"""Spaces made of spaces."""

import abc
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import prng
from jaxenvs.errors import SpaceError
from jaxenvs.spaces.base import ArraySpace, Space, checked_count
from jaxenvs.spaces.box import Box


class CompositeSpace(Space):
    """What `Dict` and `Tuple` share: each part is treated by its own space."""

    _parts: tuple[Space, ...]

    @abc.abstractmethod
    def _pack(self, parts: Iterable[Any]) -> Any:
        """The dict or tuple of values for each part."""

    @abc.abstractmethod
    def _unpack(self, value: Any) -> Sequence[Any] | None:
        """The values for each part, None if `value` has another structure."""

    @abc.abstractmethod
    def _with_parts(self, parts: Iterable[Space]) -> "CompositeSpace":
        """A space of the same structure."""

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> Any:
        masks = [None] * len(self._parts) if mask is None else self._unpack(mask)
        if masks is None:
            raise SpaceError(
                f"sample got a mask whose structure is not that of {self}.\n"
                "  Give each part its mask, or None where all is allowed."
            )
        keys: Any = jax.random.split(prng.fast(key), len(self._parts)) if self._parts else ()
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
        n = checked_count(n, f"{type(self).__name__}.batch(n)")
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
        array = self._checked_flat(array)
        ends = np.cumsum([space.flat_dim for space in self._parts], dtype=int).tolist()
        starts = [0, *ends][: len(ends)]
        return self._pack(
            space.unflatten(array[start:end])
            for space, start, end in zip(self._parts, starts, ends, strict=True)
        )

    def flatten_space(self) -> Box:
        boxes = [space.flatten_space() for space in self._parts]
        bounds = [[box.low for box in boxes], [box.high for box in boxes]]
        dtype = self._flat_dtype()
        known = all(isinstance(bound, np.ndarray) for side in bounds for bound in side)
        xp: Any = np if known else jnp
        low, high = (
            xp.concatenate([xp.asarray(bound, dtype) for bound in side] or [xp.zeros(0, dtype)])
            for side in bounds
        )
        return Box(low, high, (self.flat_dim,), dtype)

    def _flat_dtype(self) -> np.dtype:
        dtypes = set(_leaf_dtypes(self))
        if len(dtypes) == 1:
            return dtypes.pop()
        return np.dtype(np.float64 if np.dtype(np.float64) in dtypes else np.float32)

    def __len__(self) -> int:
        return len(self._parts)


class Dict(CompositeSpace):
    """Plain dicts with a space for each key.

    Keys are strings and are kept sorted, as JAX sorts those of every dict it returns and as
    Gymnasium sorts those of a dict: the order of parts in `flatten`, in a sample and in the
    tree's leaves is one. Masks are dicts with the same keys, None where all is allowed. A dict
    with other keys, or another mapping than a dict, is not a member.

    Args:
        spaces: a mapping from keys to spaces.
        **more: further spaces, by keyword.

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
                f"Dict got {type(spaces).__name__}; it must be a mapping from strings to spaces."
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
        """The space of each key, keys sorted; read-only."""
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

    Masks are tuples of as many parts, None where all is allowed. A list is not a member, since
    it is another tree to JAX.

    Args:
        spaces: the spaces, in order.

    Raises:
        SpaceError: one of them is not a space.

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


def _check_space(space: Any, what: str) -> None:
    if not isinstance(space, Space):
        raise SpaceError(
            f"{what} is {space!r}; it must be a jaxenvs space.\n"
            "  spaces.from_gymnasium and spaces.from_dm_env convert those of other libraries."
        )


def _leaf_dtypes(space: Space) -> Iterator[np.dtype]:
    if isinstance(space, CompositeSpace):
        for part in space._parts:
            yield from _leaf_dtypes(part)
    elif isinstance(space, ArraySpace):
        yield space.dtype
