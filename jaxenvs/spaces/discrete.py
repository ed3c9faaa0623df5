"""Integers from a finite range: one, an array of them, an array of bits."""

import math
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxenvs.errors import SpaceError
from jaxenvs.spaces._integers import uniform_integers
from jaxenvs.spaces.base import (
    ArraySpace,
    checked_count,
    checked_integer,
    common_shape,
    compact,
    lift,
    text,
)
from jaxenvs.spaces.box import Box

INT32 = np.iinfo(np.int32)


class Discrete(ArraySpace):
    """The integers from `start` to `start + n - 1`, as int32[].

    Sampling is uniform: exact if `n` is a power of two, else the probability of a value is off
    by less than one part in 2**16 (in 2**33 for `n` above 2**16).

    A mask is bool or int8 of shape [n] or [*shape, n], true where a value is allowed; samples
    are uniform over the allowed values, and `start` where nothing is allowed, as in Gymnasium.

    Args:
        n: how many values; it decides shapes, so it cannot be traced.
        start: the smallest value.

    Raises:
        SpaceError: `n` is less than 1 or not an integer, or a value does not fit into int32.

    Example:
        >>> Discrete(3, start=-1)
        Discrete(3, start=-1)
    """

    n: int
    start: int

    def __init__(self, n: int, start: int = 0) -> None:
        n, start = checked_count(n, "Discrete(n)"), checked_integer(start, "Discrete's start")
        if n > INT32.max or start < INT32.min or start + n - 1 > INT32.max:
            raise SpaceError(
                f"Discrete got n={n} and start={start}; n and all values must fit into int32."
            )
        vars(self).update(_shape=(), _dtype=np.dtype(np.int32), n=n, start=start)

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> jax.Array:
        shape = tuple(shape)
        if mask is None:
            return uniform_integers(key, shape, self.n).astype(jnp.int32) + self.start
        return _sample_allowed(key, shape, _checked_mask(mask, shape, (self.n,), self)) + self.start

    def _within(self, value: Any) -> Any:
        return (value >= self.start) & (value <= self.start + (self.n - 1))

    def batch(self, n: int) -> "MultiDiscrete":
        """The space of `n` independent members: a `MultiDiscrete`, as in Gymnasium."""
        return MultiDiscrete(self.n, self.start, shape=(checked_count(n, "Discrete.batch(n)"),))

    @property
    def flat_dim(self) -> int:
        return self.n

    def flatten(self, value: Any) -> jax.Array:
        offset = self._checked_value(value) - self.start
        return (offset == np.arange(self.n, dtype=np.int32)).astype(jnp.int32)

    def unflatten(self, array: Any) -> jax.Array:
        return jax.lax.argmax(self._checked_flat(array), 0, jnp.int32) + self.start

    def flatten_space(self) -> Box:
        return Box(0, 1, (self.flat_dim,), np.int32)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Discrete):
            return NotImplemented
        return self.n == other.n and self.start == other.start

    def __hash__(self) -> int:
        return hash((Discrete, self.n, self.start))

    def __repr__(self) -> str:
        return (
            f"Discrete({self.n})" if self.start == 0 else f"Discrete({self.n}, start={self.start})"
        )


class MultiDiscrete(ArraySpace):
    """Arrays of integers, each element with its own number of values, as int32[shape].

    Sampling is that of `Discrete`. A mask is bool or int8 of shape [*self.shape, max(nvec)],
    true where a value of an element is allowed, entries beyond an element's own number ignored;
    or, as in Gymnasium, tuples nested as `nvec` is with a mask [nvec[i]] for each element. Each
    array may have the leading axes `shape`. Where nothing is allowed an element is its `start`.

    Args:
        nvec: how many values each element has, an integer or an array of them.
        start: the smallest value of each element; None is 0.
        shape: the shape of a member; None takes that of `nvec` and `start`.

    Raises:
        SpaceError: an entry of `nvec` is less than 1 or not an integer, a value does not fit
            into int32, or the shapes do not broadcast.

    Example:
        >>> MultiDiscrete([3, 2])
        MultiDiscrete([3, 2])
        >>> Discrete(3).batch(65_536)
        MultiDiscrete(3, shape=(65536,))
    """

    _nvec: np.ndarray  # compact, as a Box's bounds
    _start: np.ndarray

    def __init__(self, nvec: Any, start: Any = None, *, shape: Sequence[int] | None = None) -> None:
        nvec, start = _integers("nvec", nvec), _integers("start", 0 if start is None else start)
        dims = common_shape("MultiDiscrete", {"nvec": nvec, "start": start}, shape)
        if (nvec < 1).any():
            raise SpaceError(f"MultiDiscrete got nvec={text(nvec)}; each must be at least 1.")
        last = start + (nvec - 1)
        if (nvec > INT32.max).any() or (start < INT32.min).any() or (last > INT32.max).any():
            raise SpaceError(
                f"MultiDiscrete got nvec={text(nvec)} and start={text(start)}; nvec and all "
                "values must fit into int32."
            )
        nvec, start = (compact(array.astype(np.int32)) for array in (nvec, start))
        vars(self).update(_shape=dims, _dtype=np.dtype(np.int32), _nvec=nvec, _start=start)

    @property
    def nvec(self) -> np.ndarray:
        """int32[shape]: how many values each element has; read-only."""
        return np.broadcast_to(self._nvec, self.shape)

    @property
    def start(self) -> np.ndarray:
        """int32[shape]: the smallest value of each element; read-only."""
        return np.broadcast_to(self._start, self.shape)

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> jax.Array:
        shape = tuple(shape)
        full = (*shape, *self.shape)
        start = lift(self._start, len(full))
        if mask is None:
            count = lift(self._nvec.astype(np.uint32), len(full))
            return uniform_integers(key, full, count).astype(jnp.int32) + start
        allowed = self._allowed(mask, shape)
        return _sample_allowed(key, full, allowed) + start

    def _allowed(self, mask: Any, shape: tuple[int, ...]) -> jax.Array:
        """The mask as bool[*shape or none, *self.shape, max(nvec)]."""
        width = int(self._nvec.max(initial=1))
        if isinstance(mask, tuple | list):
            mask = self._stacked(mask, self.nvec, shape, width)
        mask = _checked_mask(mask, shape, (*self.shape, width), self)
        if self._nvec.ndim == 0:
            return mask
        real = np.arange(width, dtype=np.int32) < self.nvec[..., None]
        return mask & lift(real, mask.ndim)

    def _stacked(self, mask: Any, nvec: Any, shape: tuple[int, ...], width: int) -> jax.Array:
        """Nested tuples of masks, padded and stacked to [..., *nvec.shape, width]."""
        if np.ndim(nvec) == 0:
            n = int(nvec)
            mask = _checked_mask(mask, shape, (n,), self)
            return jnp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, width - n)])
        if not isinstance(mask, tuple | list) or len(mask) != len(nvec):
            raise SpaceError(
                f"sample got a mask that is not nested as the nvec of {self}.\n"
                "  Give a tuple with a mask for each element, or one padded array."
            )
        parts = [self._stacked(*pair, shape, width) for pair in zip(mask, nvec, strict=True)]
        own = np.ndim(nvec)  # axes of a part that are not leading ones, its width included
        if any(part.ndim > own for part in parts):
            parts = [jnp.broadcast_to(part, (*shape, *part.shape[-own:])) for part in parts]
        return jnp.stack(parts, axis=-own - 1)

    def _within(self, value: Any) -> Any:
        start = lift(self._start, value.ndim)
        last = lift(self._start + (self._nvec - 1), value.ndim)
        return ((value >= start) & (value <= last)).all()

    def batch(self, n: int) -> "MultiDiscrete":
        """The space of `n` independent members: a `MultiDiscrete` with one more axis.

        Gymnasium gives an integer Box of the same values here, which knows neither masks nor
        one-hot vectors.
        """
        dims = (checked_count(n, "MultiDiscrete.batch(n)"), *self.shape)
        batched = MultiDiscrete.__new__(MultiDiscrete)
        vars(batched).update({**vars(self), "_shape": dims})
        return batched

    @property
    def flat_dim(self) -> int:
        return int(self.nvec.sum(dtype=np.int64))

    def flatten(self, value: Any) -> jax.Array:
        offset = (self._checked_value(value) - lift(self._start, len(self.shape))).reshape(-1)
        if self._nvec.ndim == 0:
            digits = np.arange(int(self._nvec), dtype=np.int32)
            return (offset[:, None] == digits[None]).astype(jnp.int32).reshape(-1)
        counts = self.nvec.reshape(-1)
        owner = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        digits = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
        return (offset[owner] == digits).astype(jnp.int32)

    def unflatten(self, array: Any) -> jax.Array:
        array = self._checked_flat(array)
        counts = self.nvec.reshape(-1)
        if self._nvec.ndim == 0:
            rows = array.reshape(len(counts), int(self._nvec))
        else:
            ends = np.cumsum(counts)
            columns = np.arange(counts.max())[None]
            # Beyond its own values an element repeats its first, which argmax then prefers.
            columns = np.where(columns < counts[:, None], columns, 0)
            rows = array[(ends - counts)[:, None] + columns]
        offset = jax.lax.argmax(rows, 1, jnp.int32).reshape(self.shape)
        return offset + lift(self._start, len(self.shape))

    def flatten_space(self) -> Box:
        return Box(0, 1, (self.flat_dim,), np.int32)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, MultiDiscrete):
            return NotImplemented
        if self.shape != other.shape:
            return False
        return np.array_equal(self._nvec, other._nvec) and np.array_equal(self._start, other._start)

    def __hash__(self) -> int:
        return hash((MultiDiscrete, self.shape, self._nvec.tobytes(), self._start.tobytes()))

    def __repr__(self) -> str:
        start = f", start={text(self._start)}" if self._start.any() else ""
        shape = "" if self._nvec.shape == self.shape else f", shape={self.shape}"
        return f"MultiDiscrete({text(self._nvec)}{start}{shape})"


class MultiBinary(ArraySpace):
    """Arrays of zeros and ones, as int8[shape].

    A mask is Gymnasium's: int8 of the members' shape or with the leading axes `shape`, where 0
    and 1 fix a bit to that value and 2 leaves it to chance.

    Args:
        n: how many bits, or the shape of an array of bits.

    Raises:
        SpaceError: `n` is less than 1, or not an integer or a sequence of integers.

    Example:
        >>> MultiBinary((2, 3))
        MultiBinary((2, 3))
    """

    def __init__(self, n: int | Sequence[int]) -> None:
        if isinstance(n, Sequence | np.ndarray) and not isinstance(n, str) and np.ndim(n) == 1:
            shape = tuple(checked_count(dim, "an axis of MultiBinary(n)") for dim in n)
        else:
            shape = (checked_count(n, "MultiBinary(n)"),)
        vars(self).update(_shape=shape, _dtype=np.dtype(np.int8))

    @property
    def n(self) -> int | tuple[int, ...]:
        """The number of bits of a vector; the shape, if there are more axes than one."""
        return self.shape[0] if len(self.shape) == 1 else self.shape

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> jax.Array:
        full = (*shape, *self.shape)
        bits = uniform_integers(key, full, 2).astype(jnp.int8)
        if mask is None:
            return bits
        mask = jnp.asarray(mask)
        if mask.dtype != jnp.int8 or mask.shape not in (self.shape, full):
            raise SpaceError(
                f"sample got a mask of {mask.dtype}{list(mask.shape)} for {self}; it must be int8 "
                f"of shape {self.shape} or {full}.\n  0 and 1 fix a bit, 2 leaves it to chance."
            )
        return jnp.where(lift(mask == 2, len(full)), bits, lift(mask, len(full)))

    def _within(self, value: Any) -> Any:
        return ((value == 0) | (value == 1)).all()

    def batch(self, n: int) -> "MultiBinary":
        """The space of `n` independent members: a `MultiBinary` with one more axis.

        Gymnasium gives an int8 Box of the same values here, which knows no mask.
        """
        return MultiBinary((checked_count(n, "MultiBinary.batch(n)"), *self.shape))

    @property
    def flat_dim(self) -> int:
        return math.prod(self.shape)

    def flatten(self, value: Any) -> jax.Array:
        return self._checked_value(value).reshape(-1)

    def unflatten(self, array: Any) -> jax.Array:
        return self._checked_flat(array).astype(jnp.int8).reshape(self.shape)

    def flatten_space(self) -> Box:
        return Box(0, 1, (self.flat_dim,), np.int8)

    def __eq__(self, other: object) -> bool:
        return self.shape == other.shape if isinstance(other, MultiBinary) else NotImplemented

    def __hash__(self) -> int:
        return hash((MultiBinary, self.shape))

    def __repr__(self) -> str:
        return f"MultiBinary({self.n})"


def _integers(name: str, given: Any) -> np.ndarray:
    """`given` as int64, wide enough for the range checks."""
    if isinstance(given, Tracer):
        raise SpaceError(
            f"MultiDiscrete got a traced {name}; it must be known when tracing.\n"
            "  Declare the parameter that it comes from with struct.static()."
        )
    array = np.asarray(given)
    if array.dtype.kind not in "iu":
        raise SpaceError(f"MultiDiscrete got {name}={given!r}; it must hold integers.")
    return array.astype(np.int64)


def _checked_mask(
    mask: Any, shape: tuple[int, ...], own: tuple[int, ...], space: ArraySpace
) -> jax.Array:
    """The mask as bool[*own] or bool[*shape, *own]."""
    mask = jnp.asarray(mask)
    if mask.dtype not in (jnp.bool_, jnp.int8) or mask.shape not in (own, (*shape, *own)):
        raise SpaceError(
            f"sample got a mask of {mask.dtype}{list(mask.shape)} for {space}; it must be bool or "
            f"int8 of shape {own}, or {(*shape, *own)} with shape={shape}.\n"
            "  True (1) allows a value."
        )
    return mask.astype(jnp.bool_)


def _sample_allowed(key: chex.PRNGKey, shape: tuple[int, ...], allowed: jax.Array) -> jax.Array:
    """int32[shape]: uniform over the true entries of the last axis; 0 where there are none.

    Draws how many allowed values come before the one that is taken, so one draw does.
    """
    rank_upto = jnp.cumsum(allowed, axis=-1, dtype=jnp.int32)
    count = lift(rank_upto[..., -1], len(shape))
    rank = uniform_integers(key, shape, count.astype(jnp.uint32), largest=allowed.shape[-1])
    before = lift(rank_upto, len(shape) + 1) <= rank.astype(jnp.int32)[..., None]
    index = before.sum(axis=-1, dtype=jnp.int32)
    return jnp.where(count > 0, index, 0)
