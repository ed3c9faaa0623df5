"""Arrays between bounds."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from jaxenvs import prng
from jaxenvs.errors import SpaceError, check_integer
from jaxenvs.spaces.space import (
    ArraySpace,
    add_leading_axes,
    check_x64,
    common_shape,
    compact,
    to_text,
)
from jaxenvs.struct import is_traced


class Box(ArraySpace):
    """Arrays between `low` and `high`, both inclusive.

    Bounds can be infinite. They can also be traced, so a Box made from an environment's
    parameters works in `jit` and `vmap`. Concrete bounds are kept as NumPy arrays, so making a
    space does not start a JAX backend.

    Samples follow the distributions that Gymnasium documents for its Box, element by element:
    uniform between two bounds; one bound plus or minus an exponential of mean 1; standard normal
    without bounds. Integers are uniform, with the error that `Discrete` documents, and an infinite
    bound means the extreme value of the dtype. Masks are not supported.

    Args:
        low: the lower bound, a number or an array that broadcasts to `shape`.
        high: the upper bound, in the same form.
        shape: the shape of a member. None takes it from the bounds: two numbers make a Box of
            shape (), where Gymnasium's has shape (1,).
        dtype: bool, an integer type or a floating type. Sampling and flattening a 64-bit type
            needs `jax_enable_x64`; values are never silently converted to 32 bits.

    Raises:
        SpaceError: a bound is NaN or not a value of `dtype`, `low` is above `high`, the shapes do
            not broadcast, or `dtype` is of another kind.

    Example:
        >>> Box(-1.0, 1.0, (3,))
        Box(-1.0, 1.0, (3,), float32)
        >>> Box(0, 255, dtype="uint8").contains(256)
        Array(False, dtype=bool)
    """

    # Concrete bounds are compact: they broadcast to `shape`. Traced bounds are stored as given.
    _low: Any
    _high: Any

    def __init__(
        self,
        low: Any,
        high: Any,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        as_dtype = _check_dtype(dtype)
        low, high = _bound("low", low, as_dtype), _bound("high", high, as_dtype)
        dims = common_shape("Box", {"low": low, "high": high}, shape)
        if isinstance(low, np.ndarray) and isinstance(high, np.ndarray):
            _check_order(low, high)
        low, high = (compact(b) if isinstance(b, np.ndarray) else b for b in (low, high))
        vars(self).update(_shape=dims, _dtype=as_dtype, _low=low, _high=high)

    @property
    def low(self) -> Any:
        """The lower bound, broadcast to `shape`: a read-only NumPy array, or traced."""
        return _broadcast(self._low, self.shape)

    @property
    def high(self) -> Any:
        """The upper bound, broadcast to `shape`: a read-only NumPy array, or traced."""
        return _broadcast(self._high, self.shape)

    @property
    def bounds(self) -> tuple[Any, Any]:
        return self.low, self.high

    @property
    def is_concrete(self) -> bool:
        """Whether neither bound is traced."""
        return isinstance(self._low, np.ndarray) and isinstance(self._high, np.ndarray)

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> jax.Array:
        if mask is not None:
            raise SpaceError(
                f"sample got a mask for {self}, which does not support masks.\n  Pass mask=None."
            )
        check_x64(self.dtype)
        shape = (*shape, *self.shape)
        low, high = (add_leading_axes(bound, len(shape)) for bound in (self._low, self._high))
        if jnp.issubdtype(self.dtype, np.floating):
            return _sample_floats(key, shape, low, high, self.dtype)
        return _sample_integers(key, shape, low, high, self.dtype)

    def _in_range(self, value: Any) -> Any:
        low, high = (add_leading_axes(bound, value.ndim) for bound in (self._low, self._high))
        return ((value >= low) & (value <= high)).all()

    def batch(self, n: int) -> "Box":
        return self._reshaped((check_integer(SpaceError, "Box.batch got n", n), *self.shape))

    @property
    def flat_dim(self) -> int:
        return math.prod(self.shape)

    def flatten(self, value: Any) -> jax.Array:
        return self._check_value(value).reshape(-1)

    def unflatten(self, array: Any) -> jax.Array:
        check_x64(self.dtype)
        return self._check_flat(array).astype(self.dtype).reshape(self.shape)

    def flatten_space(self) -> "Box":
        dims = (self.flat_dim,)
        if self._low.ndim == self._high.ndim == 0:
            return self._reshaped(dims)
        return Box(self.low.reshape(-1), self.high.reshape(-1), dims, self.dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Box):
            return NotImplemented
        if self.shape != other.shape or self.dtype != other.dtype:
            return False
        if self._low is other._low and self._high is other._high:
            return True
        if not (self.is_concrete and other.is_concrete):
            raise SpaceError(
                f"cannot compare {self} and {other}: a bound is traced.\n"
                "  Compare spaces outside of jit and vmap."
            )
        return np.array_equal(self._low, other._low) and np.array_equal(self._high, other._high)

    def __hash__(self) -> int:
        if not self.is_concrete:
            raise SpaceError(f"cannot hash {self}: a bound is traced.")
        bounds = (tuple(bound.reshape(-1).tolist()) for bound in (self._low, self._high))
        return hash((Box, self.shape, self.dtype, *bounds))

    def __repr__(self) -> str:
        low, high = (
            to_text(bound) if isinstance(bound, np.ndarray) else "<traced>"
            for bound in (self._low, self._high)
        )
        return f"Box({low}, {high}, {self.shape}, {self.dtype})"

    def _reshaped(self, shape: tuple[int, ...]) -> "Box":
        """Returns a Box with the same bounds, which must broadcast to `shape`. Checks nothing."""
        box = Box.__new__(Box)
        vars(box).update({**vars(self), "_shape": shape})
        return box


def _sample_floats(
    key: chex.PRNGKey, shape: tuple[int, ...], low: Any, high: Any, dtype: np.dtype
) -> jax.Array:
    """Maps one uniform number per element through an inverse distribution function."""
    concrete = isinstance(low, np.ndarray) and isinstance(high, np.ndarray)
    xp: Any = np if concrete else jnp
    draw_dtype = np.float64 if dtype == np.float64 else np.float32
    u = jax.random.uniform(prng.as_fast_key(key), shape, draw_dtype)

    has_low, has_high = xp.isfinite(low), xp.isfinite(high)
    # Infinite bounds become 0: in a branch that is not taken they would make gradients NaN.
    floor = xp.where(has_low, low, 0).astype(draw_dtype)
    ceiling = xp.where(has_high, high, 0).astype(draw_dtype)
    above_minus_one = np.nextafter(draw_dtype(-1), draw_dtype(0))
    distributions: list[tuple[Any, Callable[[], jax.Array]]] = [
        # Not floor + u * (ceiling - floor), because the difference of two large bounds overflows.
        (
            has_low & has_high,
            lambda: _clip_to_zero(floor, floor * (1 - u)) + _clip_to_zero(ceiling, ceiling * u),
        ),
        (has_low & ~has_high, lambda: floor - jnp.log1p(-u)),
        (~has_low & has_high, lambda: ceiling + jnp.log1p(-u)),
        (
            ~has_low & ~has_high,
            lambda: (
                jax.lax.erf_inv(jnp.maximum(2 * u - 1, above_minus_one)) * draw_dtype(math.sqrt(2))
            ),
        ),
    ]
    value = None
    for where, draw in distributions:
        if concrete and not where.any():
            continue
        value = draw() if value is None else jnp.where(where, draw(), value)
    if value is None:  # there are no elements
        return jnp.zeros(shape, dtype)
    return jnp.clip(value.astype(dtype), low, high)  # rounding can exceed a bound


def _clip_to_zero(bound: Any, value: jax.Array) -> jax.Array:
    """Clips `value` to between 0 and `bound`, where it already is.

    The clip prevents compilers from fusing a product and a sum, so all programs round equally.
    """
    return jnp.clip(value, jnp.minimum(bound, 0), jnp.maximum(bound, 0))


def _sample_integers(
    key: chex.PRNGKey, shape: tuple[int, ...], low: Any, high: Any, dtype: np.dtype
) -> jax.Array:
    """Adds an offset to `low` in unsigned arithmetic, which wraps around as two's complement."""
    unsigned = np.uint64 if dtype.itemsize == 8 else np.uint32
    signed = np.int64 if dtype.itemsize == 8 else np.int32
    low, high = (bound.astype(signed).astype(unsigned) for bound in (low, high))
    with np.errstate(over="ignore"):
        count = high - low + np.ones((), unsigned)  # 0 if all values of the type are allowed
    offset_key, word_key = jax.random.split(prng.as_fast_key(key))
    offset = jax.random.randint(offset_key, shape, 0, count, unsigned)
    if not isinstance(count, np.ndarray | np.generic) or (count == 0).any():
        words = jax.random.bits(word_key, shape, unsigned)
        offset = jnp.where(count == 0, words, offset)
    return (low + offset).astype(dtype)


def _check_dtype(dtype: DTypeLike) -> np.dtype:
    try:
        checked = np.dtype(dtype) if dtype is not None else None
    except TypeError:
        checked = None
    if checked is not None and _is_real(checked) and checked.itemsize <= 8:
        return checked
    raise SpaceError(
        f"Box got dtype={dtype!r}; it must be bool, an integer type or a floating type, such as"
        " np.float32, np.int32 or np.uint8."
    )


def _is_real(dtype: np.dtype) -> bool:
    return dtype.kind in "biuf" or jnp.issubdtype(dtype, np.floating)  # bfloat16 is of kind V


def _bound(name: str, given: Any, dtype: np.dtype) -> Any:
    """Returns `given` as an array of `dtype`: a NumPy array unless it is traced."""
    if is_traced(*jax.tree.leaves(given)):
        check_x64(dtype)
        return jnp.asarray(given, dtype)
    try:
        array = np.asarray(given)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype == dtype:
        return array
    if not _is_real(array.dtype):
        raise SpaceError(f"Box got {name}={given!r}; it must be a number or an array of numbers.")
    with np.errstate(over="ignore", invalid="ignore"):
        if jnp.issubdtype(dtype, np.floating):
            bound = array.astype(dtype)
            is_valid = np.isfinite(bound) | ~np.isfinite(array)  # no finite number overflows
        else:
            bound, is_valid = _integer_bound(array, dtype)
    if not np.all(is_valid):
        raise SpaceError(
            f"Box got {name}={given!r}, which is not a value of {dtype}.\n"
            "  Change the bound, or pass another dtype."
        )
    return bound.astype(dtype)


def _integer_bound(array: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, Any]:
    """Returns the bound as Python numbers, which compare exactly, and where they are valid."""
    least, most = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    bound = array.astype(object)
    if dtype.kind == "i":
        bound = np.where(bound == np.inf, most, np.where(bound == -np.inf, least, bound))
    return bound, (bound >= least) & (bound <= most) & (bound % 1 == 0)


def _check_order(low: np.ndarray, high: np.ndarray) -> None:
    is_ordered = low <= high  # False if either is NaN
    if low.dtype.kind not in "biu":
        is_ordered = is_ordered & (low < np.inf) & (high > -np.inf)
    if is_ordered.all():
        return
    if np.isnan(low).any() or np.isnan(high).any():
        raise SpaceError(f"Box got low={low} and high={high}; bounds must not be NaN.")
    raise SpaceError(
        f"Box got low={low} and high={high}; low must be at most high, low less than infinity, and"
        " high greater than minus infinity.\n  Are low and high swapped?"
    )


def _broadcast(bound: Any, shape: tuple[int, ...]) -> Any:
    xp: Any = np if isinstance(bound, np.ndarray) else jnp
    return xp.broadcast_to(bound, shape)
