"""Sets of observations and actions: sampling, membership, flattening, conversion.

`sample(key, shape=(...))` draws a whole batch at once. `batch(n)` is the space of n independent
members, with Gymnasium's types: a batched `Discrete` is a `MultiDiscrete`.
"""

import abc
import math
from collections.abc import Mapping, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxenvs.errors import SpaceError


class Space(abc.ABC):
    """A set of values with one structure, shape and dtype."""

    shape: tuple[int, ...] | None
    dtype: np.dtype | None

    @abc.abstractmethod
    def sample(
        self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None
    ) -> chex.ArrayTree:
        """Draws members uniformly, with leading axes `shape`, in one draw a leaf."""

    @abc.abstractmethod
    def contains(self, value: Any) -> jax.Array:
        """bool[]: whether `value` is a member. Jittable; a wrong structure, shape or dtype is False."""

    @abc.abstractmethod
    def batch(self, n: int) -> "Space":
        """The space of `n` independent members, stacked on a leading axis."""


class Box(Space):
    """Arrays between `low` and `high`, both included; infinite bounds are allowed."""

    def __init__(
        self,
        low: Any,
        high: Any,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.dtype = np.dtype(dtype)
        low, high = (_as_array(bound, self.dtype) for bound in (low, high))
        self.shape = tuple(shape) if shape is not None else np.broadcast_shapes(low.shape, high.shape)
        self.low, self.high = (
            np.broadcast_to(b, self.shape) if isinstance(b, np.ndarray) else jnp.broadcast_to(b, self.shape)
            for b in (low, high)
        )

    def sample(self, key, shape=(), mask=None):
        low, high = jnp.asarray(self.low), jnp.asarray(self.high)
        return jax.random.uniform(key, (*shape, *self.shape), self.dtype, low, high)

    def contains(self, value):
        value = jnp.asarray(value)
        if value.shape != self.shape or value.dtype != self.dtype:
            return jnp.bool_(False)
        return jnp.all((value >= self.low) & (value <= self.high))

    def batch(self, n):
        return Box(self.low[None].repeat(n, 0), self.high[None].repeat(n, 0), dtype=self.dtype)


class Discrete(Space):
    """The integers from `start` to `start + n - 1`, as int32[]."""

    def __init__(self, n: int, start: int = 0) -> None:
        self.n, self.start = int(n), int(start)
        self.shape, self.dtype = (), np.dtype(np.int32)

    def sample(self, key, shape=(), mask=None):
        return _integers(key, tuple(shape), self.n) + self.start

    def contains(self, value):
        value = jnp.asarray(value)
        if value.shape != () or value.dtype != self.dtype:
            return jnp.bool_(False)
        return (value >= self.start) & (value < self.start + self.n)

    def batch(self, n):
        return MultiDiscrete(np.full(n, self.n), start=np.full(n, self.start))


class MultiDiscrete(Space):
    """Integer arrays, each element with its own number of values `nvec` and its `start`."""

    def __init__(self, nvec: Any, start: Any = None) -> None:
        self.nvec = np.asarray(nvec, np.int32)
        self.start = np.zeros_like(self.nvec) if start is None else np.asarray(start, np.int32)
        self.shape, self.dtype = self.nvec.shape, np.dtype(np.int32)

    def sample(self, key, shape=(), mask=None):
        n = self.nvec.flat[0] if self.nvec.size and (self.nvec == self.nvec.flat[0]).all() else self.nvec
        return _integers(key, (*shape, *self.shape), n) + self.start

    def contains(self, value):
        value = jnp.asarray(value)
        if value.shape != self.shape or value.dtype != self.dtype:
            return jnp.bool_(False)
        return jnp.all((value >= self.start) & (value < self.start + self.nvec))

    def batch(self, n):
        return MultiDiscrete(np.stack([self.nvec] * n), np.stack([self.start] * n))


def _integers(key: chex.PRNGKey, shape: tuple[int, ...], n: Any) -> jax.Array:
    """Draws int32 from [0, n) without a division.

    A power of two takes only the bits that it needs from each 32-bit word. Any other `n` takes
    the high word of bits * n (multiply-shift), which favours some values by at most n / 2**32.
    """
    if isinstance(n, (int, np.integer)) and n & (n - 1) == 0:
        width = int(n).bit_length() - 1
        if width == 0:
            return jnp.zeros(shape, jnp.int32)
        lanes, size = 32 // width, math.prod(shape)
        words = jax.random.bits(key, (-(-size // lanes), 1), jnp.uint32)
        shifts = np.arange(0, lanes * width, width, dtype=np.uint32)
        values = (words >> shifts[None]) & np.uint32(n - 1)
        return values.reshape(-1)[:size].reshape(shape).astype(jnp.int32)
    bits = jax.random.bits(key, shape, jnp.uint32)
    low, high, n = bits & 0xFFFF, bits >> 16, np.asarray(n, np.uint32)  # exact for n < 2**16
    return ((high * n + ((low * n) >> 16)) >> 16).astype(jnp.int32)


def _as_array(value: Any, dtype: np.dtype) -> np.ndarray | jax.Array:
    """A NumPy array where the values are known, so that spaces are made without a backend."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(value)):
        return jnp.array(value, dtype)
    return np.asarray(value, dtype)
