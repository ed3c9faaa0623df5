"""Spaces of integers from a finite range: single integers, arrays of integers, arrays of bits."""

import math
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxenvs import prng
from jaxenvs.errors import SpaceError, check_integer
from jaxenvs.spaces.box import Box
from jaxenvs.spaces.space import ArraySpace, add_leading_axes, common_shape, compact, to_text

INT32 = np.iinfo(np.int32)


class IntegerSpace(ArraySpace):
    """The base class of `Discrete` and `MultiDiscrete`; elements have their own value counts."""

    # Compact, like the bounds of a Box. A Discrete has no axes.
    _nvec: np.ndarray
    _start: np.ndarray

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> jax.Array:
        shape = tuple(shape)
        full = (*shape, *self.shape)
        start = add_leading_axes(self._start, len(full))
        if mask is None:
            n = int(self._nvec) if self._nvec.ndim == 0 else 0
            if n > 1 and n & (n - 1) == 0:  # a word is enough for several elements
                digits = prng.random_digits(key, full, n.bit_length() - 1)
                return digits.astype(jnp.int32) + start
            return prng.randint(key, full, add_leading_axes(self._nvec, len(full))) + start
        return _sample_allowed(key, full, self._as_array_mask(mask, shape)) + start

    def _as_array_mask(self, mask: Any, shape: tuple[int, ...]) -> jax.Array:
        """Returns `mask` as bool[..., *self.shape, max(nvec)], where ... is `shape` or nothing."""
        return _check_mask(mask, shape, (*self.shape, int(self._nvec.max(initial=1))), self)

    @property
    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        last = self._start + (self._nvec - 1)
        return np.broadcast_to(self._start, self.shape), np.broadcast_to(last, self.shape)

    def _in_range(self, value: Any) -> Any:
        start = add_leading_axes(self._start, value.ndim)
        last = add_leading_axes(self._start + (self._nvec - 1), value.ndim)
        return ((value >= start) & (value <= last)).all()

    @property
    def flat_dim(self) -> int:
        return int(np.broadcast_to(self._nvec, self.shape).sum(dtype=np.int64))

    def flatten(self, value: Any) -> jax.Array:
        start = add_leading_axes(self._start, len(self.shape))
        offset = (self._check_value(value) - start).reshape(-1)
        if self._nvec.ndim == 0:
            digits = np.arange(int(self._nvec), dtype=np.int32)
            return (offset[:, None] == digits[None]).astype(jnp.int32).reshape(-1)
        counts = np.broadcast_to(self._nvec, self.shape).reshape(-1)
        owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        digits = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        return (offset[owner] == digits).astype(jnp.int32)

    def unflatten(self, array: Any) -> jax.Array:
        array = self._check_flat(array)
        counts = np.broadcast_to(self._nvec, self.shape).reshape(-1)
        if self._nvec.ndim == 0:
            rows = array.reshape(len(counts), int(self._nvec))
        else:
            ends = np.cumsum(counts)
            columns = np.arange(counts.max())[None]
            # Padding repeats an element's first column, so argmax never picks the padding.
            columns = np.where(columns < counts[:, None], columns, 0)
            rows = array[(ends - counts)[:, None] + columns]
        offset = jax.lax.argmax(rows, 1, jnp.int32).reshape(self.shape)
        return offset + add_leading_axes(self._start, len(self.shape))

    def flatten_space(self) -> Box:
        return Box(0, 1, (self.flat_dim,), np.int32)

    def __eq__(self, other: object) -> bool:
        if not (isinstance(other, IntegerSpace) and type(self) is type(other)):
            return NotImplemented
        if self.shape != other.shape:
            return False
        return np.array_equal(self._nvec, other._nvec) and np.array_equal(self._start, other._start)

    def __hash__(self) -> int:
        return hash((type(self), self.shape, self._nvec.tobytes(), self._start.tobytes()))


class Discrete(IntegerSpace):
    """The integers from `start` to `start + n - 1`, as int32[].

    Samples are uniform. If `n` is not a power of two, the probability of a value has a relative
    error of up to n / 2**32, which only matters for huge `n`. A mask is bool or int8 of shape [n]
    or [*shape, n], true for allowed values. Samples are then uniform over the allowed values, or
    `start` if there are none, as in Gymnasium.

    Args:
        n: the number of values. It determines shapes, so it cannot be traced.
        start: the smallest value.

    Raises:
        SpaceError: `n` is not an integer or less than 1, or a value does not fit into int32.

    Example:
        >>> Discrete(3, start=-1)
        Discrete(3, start=-1)
    """

    n: int
    start: int

    def __init__(self, n: int, start: int = 0) -> None:
        n = check_integer(SpaceError, "Discrete got n", n)
        start = check_integer(SpaceError, "Discrete got start", start, None)
        if n > INT32.max or start < INT32.min or start + n - 1 > INT32.max:
            raise SpaceError(
                f"Discrete got n={n} and start={start}; n and every value must fit into int32."
            )
        vars(self).update(_shape=(), _dtype=np.dtype(np.int32), n=n, start=start)
        vars(self).update(_nvec=np.asarray(n, np.int32), _start=np.asarray(start, np.int32))

    def batch(self, n: int) -> "MultiDiscrete":
        """Returns the space of `n` independent members: a `MultiDiscrete`, as in Gymnasium."""
        return MultiDiscrete(
            self.n, self.start, shape=(check_integer(SpaceError, "Discrete.batch got n", n),)
        )

    def __repr__(self) -> str:
        return f"Discrete({self.n}{f', start={self.start}' if self.start else ''})"


class MultiDiscrete(IntegerSpace):
    """Arrays of integers, as int32[shape]; each element has its own number of values.

    Each element is sampled as in `Discrete`. A mask is bool or int8 of shape
    [*self.shape, max(nvec)], where entries beyond an element's number of values are ignored; or, in
    Gymnasium's format, tuples nested like `nvec` with a mask [nvec[i]] per element. Every mask
    array can have the leading axes `shape`. An element without allowed values gets its `start`.

    Args:
        nvec: the number of values of each element, an integer or an array.
        start: the smallest value of each element; None for 0.
        shape: the shape of a member; None for the shape of `nvec` and `start`.

    Raises:
        SpaceError: an entry of `nvec` is not an integer or less than 1, a value does not fit
            into int32, or the shapes do not broadcast.

    Example:
        >>> MultiDiscrete([3, 2])
        MultiDiscrete([3, 2])
        >>> Discrete(3).batch(65_536)
        MultiDiscrete(3, shape=(65536,))
    """

    def __init__(self, nvec: Any, start: Any = None, *, shape: Sequence[int] | None = None) -> None:
        nvec, start = _integers("nvec", nvec), _integers("start", 0 if start is None else start)
        dims = common_shape("MultiDiscrete", {"nvec": nvec, "start": start}, shape)
        if (nvec < 1).any():
            raise SpaceError(f"MultiDiscrete got nvec={to_text(nvec)}; each must be at least 1.")
        last = start + (nvec - 1)
        if (nvec > INT32.max).any() or (start < INT32.min).any() or (last > INT32.max).any():
            raise SpaceError(
                f"MultiDiscrete got nvec={to_text(nvec)} and start={to_text(start)}; nvec and "
                "every value must fit into int32."
            )
        nvec, start = (compact(array.astype(np.int32)) for array in (nvec, start))
        vars(self).update(_shape=dims, _dtype=np.dtype(np.int32), _nvec=nvec, _start=start)

    @property
    def nvec(self) -> np.ndarray:
        """int32[shape], the number of values of each element; read-only."""
        return np.broadcast_to(self._nvec, self.shape)

    @property
    def start(self) -> np.ndarray:
        """int32[shape], the smallest value of each element; read-only."""
        return np.broadcast_to(self._start, self.shape)

    def _as_array_mask(self, mask: Any, shape: tuple[int, ...]) -> jax.Array:
        width = int(self._nvec.max(initial=1))
        if isinstance(mask, tuple | list):
            mask = self._stack_masks(mask, self.nvec, shape, width)
        mask = super()._as_array_mask(mask, shape)
        if self._nvec.ndim == 0:
            return mask
        exists = np.arange(width, dtype=np.int32) < self.nvec[..., None]
        return mask & add_leading_axes(exists, mask.ndim)

    def _stack_masks(self, mask: Any, nvec: Any, shape: tuple[int, ...], width: int) -> jax.Array:
        """Returns nested tuples of masks, padded and stacked, as [..., *nvec.shape, width]."""
        if np.ndim(nvec) == 0:
            n = int(nvec)
            mask = _check_mask(mask, shape, (n,), self)
            return jnp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, width - n)])
        if not isinstance(mask, tuple | list) or len(mask) != len(nvec):
            raise SpaceError(
                f"sample got a mask that is not nested like the nvec of {self}.\n"
                "  Pass a tuple with a mask per element, or one padded array."
            )
        parts = [self._stack_masks(*pair, shape, width) for pair in zip(mask, nvec, strict=True)]
        ndim = np.ndim(nvec)  # of a part without the leading axes `shape`
        if any(part.ndim > ndim for part in parts):
            parts = [jnp.broadcast_to(part, (*shape, *part.shape[-ndim:])) for part in parts]
        return jnp.stack(parts, axis=-ndim - 1)

    def batch(self, n: int) -> "MultiDiscrete":
        """Returns the space of `n` independent members: a `MultiDiscrete` with a leading axis.

        Gymnasium returns an integer Box here, which supports neither masks nor one-hot vectors.
        """
        dims = (check_integer(SpaceError, "MultiDiscrete.batch got n", n), *self.shape)
        batched = MultiDiscrete.__new__(MultiDiscrete)
        vars(batched).update({**vars(self), "_shape": dims})
        return batched

    def __repr__(self) -> str:
        start = f", start={to_text(self._start)}" if self._start.any() else ""
        shape = "" if self._nvec.shape == self.shape else f", shape={self.shape}"
        return f"MultiDiscrete({to_text(self._nvec)}{start}{shape})"


class MultiBinary(ArraySpace):
    """Arrays of zeros and ones, as int8[shape].

    A mask has Gymnasium's format: int8 of the shape of a member, with or without the leading axes
    `shape`. A 0 or 1 fixes the bit to that value; a 2 samples it.

    Args:
        n: the number of bits, or the shape of an array of bits.

    Raises:
        SpaceError: `n` is neither an integer nor a sequence of integers, or less than 1.

    Example:
        >>> MultiBinary((2, 3))
        MultiBinary((2, 3))
    """

    def __init__(self, n: int | Sequence[int]) -> None:
        if isinstance(n, Sequence | np.ndarray) and not isinstance(n, str) and np.ndim(n) == 1:
            shape = tuple(
                check_integer(SpaceError, "MultiBinary got an axis of n", dim) for dim in n
            )
        else:
            shape = (check_integer(SpaceError, "MultiBinary got n", n),)
        vars(self).update(_shape=shape, _dtype=np.dtype(np.int8))

    @property
    def n(self) -> int | tuple[int, ...]:
        """The number of bits of a vector, or the shape of an array with more axes."""
        return self.shape[0] if len(self.shape) == 1 else self.shape

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> jax.Array:
        full = (*shape, *self.shape)
        bits = prng.random_digits(key, full, 1).astype(jnp.int8)
        if mask is None:
            return bits
        mask = jnp.asarray(mask)
        if mask.dtype != jnp.int8 or mask.shape not in (self.shape, full):
            raise SpaceError(
                f"sample got a mask of {mask.dtype}{list(mask.shape)} for {self}; it must be int8 "
                f"of shape {self.shape} or {full}.\n  0 and 1 fix a bit; 2 samples it."
            )
        mask = add_leading_axes(mask, len(full))
        return jnp.where(mask == 2, bits, mask)

    @property
    def bounds(self) -> tuple[np.int8, np.int8]:
        return np.int8(0), np.int8(1)

    def _in_range(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all()

    def batch(self, n: int) -> "MultiBinary":
        """Returns the space of `n` independent members: a `MultiBinary` with a leading axis.

        Gymnasium returns an int8 Box here, which does not support masks.
        """
        return MultiBinary((check_integer(SpaceError, "MultiBinary.batch got n", n), *self.shape))

    @property
    def flat_dim(self) -> int:
        return math.prod(self.shape)

    def flatten(self, value: Any) -> jax.Array:
        return self._check_value(value).reshape(-1)

    def unflatten(self, array: Any) -> jax.Array:
        return self._check_flat(array).astype(jnp.int8).reshape(self.shape)

    def flatten_space(self) -> Box:
        return Box(0, 1, (self.flat_dim,), np.int8)

    def __eq__(self, other: object) -> bool:
        return self.shape == other.shape if isinstance(other, MultiBinary) else NotImplemented

    def __hash__(self) -> int:
        return hash((MultiBinary, self.shape))

    def __repr__(self) -> str:
        return f"MultiBinary({self.n})"


def _integers(name: str, given: Any) -> np.ndarray:
    """Returns `given` as int64, which is wide enough for the range checks."""
    if isinstance(given, Tracer):
        raise SpaceError(
            f"MultiDiscrete got a traced {name}; it must be static.\n"
            "  Declare the parameter that it comes from with struct.static()."
        )
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise SpaceError(f"MultiDiscrete got {name}={given!r}; it must hold integers.")
    return array.astype(np.int64)


def _check_mask(
    mask: Any, shape: tuple[int, ...], own: tuple[int, ...], space: ArraySpace
) -> jax.Array:
    """Returns the mask as bool[*own] or bool[*shape, *own]."""
    mask = jnp.asarray(mask)
    if mask.dtype not in (jnp.bool_, jnp.int8) or mask.shape not in (own, (*shape, *own)):
        raise SpaceError(
            f"sample got a mask of {mask.dtype}{list(mask.shape)} for {space}; it must be bool or "
            f"int8 of shape {own}, or {(*shape, *own)} with shape={shape}.\n"
            "  True or 1 allows a value."
        )
    return mask.astype(jnp.bool_)


def _sample_allowed(key: chex.PRNGKey, shape: tuple[int, ...], allowed: jax.Array) -> jax.Array:
    """Returns int32[shape], uniform over the true entries of the last axis; 0 if there are none.

    One draw is enough: it chooses how many allowed entries come before the sampled one.
    """
    num_allowed_upto = jnp.cumsum(allowed, axis=-1, dtype=jnp.int32)
    count = add_leading_axes(num_allowed_upto[..., -1], len(shape))
    rank = jax.random.randint(prng.as_fast_key(key), shape, 0, count, jnp.int32)
    is_before = add_leading_axes(num_allowed_upto, len(shape) + 1) <= rank[..., None]
    return jnp.where(count > 0, is_before.sum(axis=-1, dtype=jnp.int32), 0)
