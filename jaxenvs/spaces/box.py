"""Arrays between bounds."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike

from jaxenvs import prng
from jaxenvs.errors import SpaceError
from jaxenvs.spaces._integers import uniform_integers
from jaxenvs.spaces.base import (
    ArraySpace,
    checked_count,
    common_shape,
    compact,
    lift,
    require_x64,
    text,
)


class Box(ArraySpace):
    """Arrays between `low` and `high`, both included.

    The bounds may be infinite, or traced: a box made from an environment's parameters works in
    `jit` and `vmap`. Known bounds are kept as NumPy arrays, so making a space starts no backend.

    Samples are distributed as Gymnasium documents it for its Box, element by element: uniform
    between two bounds; a lower (upper) bound alone plus (minus) an exponential of mean 1;
    standard normal where there is no bound. Integers are uniform, `high` included; for them an
    infinite bound means the extreme value of the dtype. There is no mask.

    Args:
        low: the lower bound, a number or an array that broadcasts to `shape`.
        high: the upper bound, likewise.
        shape: the shape of a member; None takes that of the bounds (two numbers make a box of
            shape (), where Gymnasium's has shape (1,)).
        dtype: bool, an integer or a floating type. Members of 64-bit types exist only under
            `jax_enable_x64`; they are never narrowed silently.

    Raises:
        SpaceError: a bound is NaN, not a value of `dtype`, or above the other; the shapes do
            not broadcast; `dtype` is of another kind.

    Example:
        >>> Box(-1.0, 1.0, (3,))
        Box(-1.0, 1.0, (3,), float32)
        >>> Box(0, 255, dtype="uint8").contains(256)
        Array(False, dtype=bool)
    """

    # Compact: they broadcast to `shape`. Traced bounds are kept as they came.
    _low: Any
    _high: Any

    def __init__(
        self,
        low: Any,
        high: Any,
        shape: Sequence[int] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        as_dtype = _checked_dtype(dtype)
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

    def sample(self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None) -> jax.Array:
        if mask is not None:
            raise SpaceError(f"sample got a mask for {self}; a Box has none.\n  Pass mask=None.")
        require_x64(self.dtype)
        shape = (*shape, *self.shape)
        low, high = lift(self._low, len(shape)), lift(self._high, len(shape))
        if jnp.issubdtype(self.dtype, np.floating):
            return _sample_reals(key, shape, low, high, self.dtype)
        return _sample_integers(key, shape, low, high, self.dtype)

    def _within(self, value: Any) -> Any:
        low, high = lift(self._low, value.ndim), lift(self._high, value.ndim)
        return ((value >= low) & (value <= high)).all()

    def batch(self, n: int) -> "Box":
        dims = (checked_count(n, "Box.batch(n)"), *self.shape)
        return self._with_shape(dims)

    @property
    def flat_dim(self) -> int:
        return math.prod(self.shape)

    def flatten(self, value: Any) -> jax.Array:
        return self._checked_value(value).reshape(-1)

    def unflatten(self, array: Any) -> jax.Array:
        require_x64(self.dtype)
        return self._checked_flat(array).astype(self.dtype).reshape(self.shape)

    def flatten_space(self) -> "Box":
        dims = (self.flat_dim,)
        if self._low.ndim == self._high.ndim == 0:
            return self._with_shape(dims)
        return Box(self.low.reshape(-1), self.high.reshape(-1), dims, self.dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Box):
            return NotImplemented
        if self.shape != other.shape or self.dtype != other.dtype:
            return False
        if self._low is other._low and self._high is other._high:
            return True
        if not (self._known and other._known):
            raise SpaceError(
                f"{self} == {other} cannot be decided: a bound is traced.\n"
                "  Compare spaces outside of jit and vmap."
            )
        return np.array_equal(self._low, other._low) and np.array_equal(self._high, other._high)

    def __hash__(self) -> int:
        if not self._known:
            raise SpaceError(f"{self} cannot be hashed: a bound is traced.")
        bounds = (tuple(bound.reshape(-1).tolist()) for bound in (self._low, self._high))
        return hash((Box, self.shape, self.dtype, *bounds))

    def __repr__(self) -> str:
        return f"Box({_text(self._low)}, {_text(self._high)}, {self.shape}, {self.dtype})"

    @property
    def _known(self) -> bool:
        return isinstance(self._low, np.ndarray) and isinstance(self._high, np.ndarray)

    def _with_shape(self, shape: tuple[int, ...]) -> "Box":
        """The same bounds, which must broadcast to `shape`, not checked again."""
        box = Box.__new__(Box)
        vars(box).update(_shape=shape, _dtype=self.dtype, _low=self._low, _high=self._high)
        return box


def _between_zero_and(bound: Any, value: jax.Array) -> jax.Array:
    return jnp.clip(value, jnp.minimum(bound, 0), jnp.maximum(bound, 0))


def _sample_reals(
    key: chex.PRNGKey, shape: tuple[int, ...], low: Any, high: Any, dtype: np.dtype
) -> jax.Array:
    """Maps one uniform number an element through the inverse of its distribution function."""
    known = isinstance(low, np.ndarray) and isinstance(high, np.ndarray)
    xp: Any = np if known else jnp
    draw_dtype = np.float64 if dtype == np.float64 else np.float32
    u = jax.random.uniform(prng.fast(key), shape, draw_dtype)

    floored, capped = xp.isfinite(low), xp.isfinite(high)
    # Zeros in place of infinities: a branch that is not taken must not make NaN gradients.
    floor = xp.where(floored, low, 0).astype(draw_dtype)
    cap = xp.where(capped, high, 0).astype(draw_dtype)
    above_minus_one = np.nextafter(draw_dtype(-1), draw_dtype(0))
    distributions: list[tuple[Any, Callable[[], jax.Array]]] = [
        # Not floor + u * (cap - floor): the difference of two large bounds overflows. Each share
        # is clipped, to no effect but one: compilers cannot fuse product and sum, which would
        # round differently from program to program.
        (
            floored & capped,
            lambda: _between_zero_and(floor, floor * (1 - u)) + _between_zero_and(cap, cap * u),
        ),
        (floored & ~capped, lambda: floor - jnp.log1p(-u)),
        (~floored & capped, lambda: cap + jnp.log1p(-u)),
        (
            ~floored & ~capped,
            lambda: (
                jax.lax.erf_inv(jnp.maximum(2 * u - 1, above_minus_one)) * draw_dtype(math.sqrt(2))
            ),
        ),
    ]
    value = None
    for where, draw in distributions:
        if known and not where.any():
            continue
        value = draw() if value is None else jnp.where(where, draw(), value)
    if value is None:  # there are no elements
        return jnp.zeros(shape, dtype)
    return jnp.clip(value.astype(dtype), low, high)  # rounding may step over a bound


def _sample_integers(
    key: chex.PRNGKey, shape: tuple[int, ...], low: Any, high: Any, dtype: np.dtype
) -> jax.Array:
    """Adds an offset to `low` in unsigned arithmetic, which wraps as two's complement does."""
    word = np.dtype(np.uint64 if dtype.itemsize == 8 else np.uint32)
    wide = np.dtype(np.int64 if dtype.itemsize == 8 else np.int32)
    low, high = low.astype(wide).astype(word), high.astype(wide).astype(word)  # extends the sign
    with np.errstate(over="ignore"):
        count = high - low + np.ones((), word)  # 0 if every word is in range
    if isinstance(count, np.generic):
        count = np.asarray(count)
    offset = uniform_integers(key, shape, count, word=word, largest=1 << 8 * dtype.itemsize)
    return (low + offset).astype(dtype)


def _checked_dtype(dtype: DTypeLike) -> np.dtype:
    try:
        known = np.dtype(dtype) if dtype is not None else None
    except TypeError:
        known = None
    if known is not None and _is_real(known) and known.itemsize <= 8:
        return known
    raise SpaceError(
        f"Box got dtype={dtype!r}; it must be bool, an integer or a floating type.\n"
        "  For instance np.float32, np.int32 or np.uint8."
    )


def _is_real(dtype: np.dtype) -> bool:
    return dtype.kind in "biuf" or jnp.issubdtype(dtype, np.floating)  # bfloat16 is of kind V


def _bound(name: str, given: Any, dtype: np.dtype) -> Any:
    """`given` as an array of `dtype`: NumPy where the values are known."""
    if _is_traced(given):
        require_x64(dtype)
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
        if not jnp.issubdtype(dtype, np.floating):
            cast, lost = _integer_bound(array, dtype)
        elif np.isinf(cast := array.astype(dtype)).any():
            lost = np.isinf(cast) & np.isfinite(array)
        else:
            return cast
    if lost.any():
        raise SpaceError(
            f"Box got {name}={given!r}, which is not a value of {dtype}.\n"
            "  Change the bound, or pass the dtype that it is meant for."
        )
    return cast


def _integer_bound(array: np.ndarray, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """The bound as integers, and where that is not what was given."""
    if dtype == np.bool_:
        return array.astype(dtype), (array != 0) & (array != 1)
    limits = np.iinfo(dtype)
    if array.dtype.kind != "f" and jnp.issubdtype(array.dtype, np.integer) | (array.dtype == bool):
        return array.astype(dtype), (array < limits.min) | (array > limits.max)
    # Compared as floats, of which the next above an extreme of 64 bits is far away.
    endless = np.isinf(array) if dtype.kind == "i" else np.zeros(array.shape, bool)
    outside = (array < float(limits.min)) | (array >= float(limits.max) + 1)
    lost = ~endless & (outside | (array != np.floor(array)))
    cast = np.where(lost | endless, 0, array).astype(dtype)
    cast = np.where(endless, np.where(array > 0, limits.max, limits.min), cast)
    return cast.astype(dtype), lost


def _is_traced(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_traced(element) for element in value)
    return isinstance(value, Tracer)


def _check_order(low: np.ndarray, high: np.ndarray) -> None:
    ordered = low <= high  # False where either is NaN
    if low.dtype.kind not in "biu":
        ordered = ordered & (low < np.inf) & (high > -np.inf)
    if ordered.all():
        return
    if np.isnan(low).any() or np.isnan(high).any():
        raise SpaceError(f"Box got low={low} and high={high}; a bound must not be NaN.")
    raise SpaceError(
        f"Box got low={low} and high={high}; low must be at most high, low below infinity and "
        "high above minus infinity.\n  Were the two swapped?"
    )


def _broadcast(bound: Any, shape: tuple[int, ...]) -> Any:
    xp: Any = np if isinstance(bound, np.ndarray) else jnp
    return xp.broadcast_to(bound, shape)


def _text(bound: Any) -> str:
    return text(bound) if isinstance(bound, np.ndarray) else "<traced>"
