"""The interface of all spaces, and the base class of spaces of single arrays."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.errors import SpaceError, check_integer


class Space(abc.ABC):
    """An immutable set of values that share a tree structure, and a shape and dtype per leaf."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a member; None if members are dicts or tuples."""
        return None

    @property
    def dtype(self) -> np.dtype | None:
        """The dtype of a member, regardless of `jax_enable_x64`; None for dicts and tuples."""
        return None

    @abc.abstractmethod
    def sample(
        self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None
    ) -> chex.ArrayTree:
        """Draws independent members, with one call of the generator per leaf.

        Args:
            key: one random key for the whole batch.
            shape: leading axes, put before the axes of every leaf.
            mask: restricts the values; each class documents its format. A mask with the
                leading axes `shape` has an entry per member; without them it applies to all.

        Raises:
            SpaceError: the mask does not fit, or the dtype needs `jax_enable_x64`.
        """

    @abc.abstractmethod
    def contains(self, value: Any) -> jax.Array:
        """Returns bool[], whether `value` is a member. Jittable.

        A wrong structure, shape or dtype gives False at trace time. Arrays must have exactly the
        dtype of the space. Python numbers have no dtype; where members are single numbers, a
        Python number that fits is accepted: int for integers and floats, float for floats, bool
        for bool.
        """

    @abc.abstractmethod
    def batch(self, n: int) -> "Space":
        """Returns the space of `n` independent members, stacked on a new leading axis.

        Raises:
            SpaceError: `n` is not a positive integer.
        """

    @property
    @abc.abstractmethod
    def flat_dim(self) -> int:
        """The length of a flattened member."""

    @abc.abstractmethod
    def flatten(self, value: Any) -> jax.Array:
        """Flattens a member to a vector [flat_dim]. Jittable; use `vmap` for a batch.

        Integers of a `Discrete` or `MultiDiscrete` become one-hot vectors; other arrays are
        raveled. If all leaves have the same dtype, the vector has it too. Otherwise it is float32
        (exact for integers up to 2**24), or float64 if any leaf is float64.

        Raises:
            SpaceError: the structure or a shape of `value` is not that of a member.
        """

    @abc.abstractmethod
    def unflatten(self, array: Any) -> Any:
        """Inverts `flatten`. Jittable; use `vmap` for a batch.

        One-hot vectors are decoded by argmax, so a network's scores work too.

        Raises:
            SpaceError: the shape of `array` is not [flat_dim].
        """

    @abc.abstractmethod
    def flatten_space(self) -> "ArraySpace":
        """Returns the `Box` of the flattened members."""

    def __contains__(self, value: Any) -> bool:
        return bool(self.contains(value))

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(
            f"cannot set {type(self).__name__}.{name}: spaces are immutable.  Create a new one."
        )

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(
            f"cannot delete {type(self).__name__}.{name}: spaces are immutable."
        )

    def _check_flat(self, array: Any) -> jax.Array:
        array = jnp.asarray(array)
        if array.shape != (self.flat_dim,):
            raise SpaceError(
                f"unflatten got an array of shape {array.shape}; {self} expects "
                f"({self.flat_dim},).\n  For a batch, use jax.vmap(space.unflatten)(arrays)."
            )
        return array


class ArraySpace(Space):
    """A space whose members are single arrays."""

    _shape: tuple[int, ...]
    _dtype: np.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a member."""
        return self._shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of a member, regardless of `jax_enable_x64`."""
        return self._dtype

    @property
    @abc.abstractmethod
    def bounds(self) -> tuple[Any, Any]:
        """The smallest and the largest value of each element, both inclusive."""

    @abc.abstractmethod
    def sample(
        self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None
    ) -> jax.Array: ...

    def contains(self, value: Any) -> jax.Array:
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            value = _number_as_array(value, self.dtype)
        if not isinstance(value, (np.ndarray, np.generic, jax.Array)):
            return jnp.bool_(False)
        if value.shape != self.shape or value.dtype != self.dtype:
            return jnp.bool_(False)
        return jnp.asarray(self._in_range(value))

    @abc.abstractmethod
    def _in_range(self, value: Any) -> Any:
        """Returns whether an array of the right shape and dtype is a member."""

    def _check_value(self, value: Any) -> jax.Array:
        if np.shape(value) != self.shape:
            raise SpaceError(
                f"flatten got a value of shape {np.shape(value)}; members of {self} have shape "
                f"{self.shape}.\n  For a batch, use jax.vmap(space.flatten)(values)."
            )
        check_x64(self.dtype)
        return jnp.asarray(value, self.dtype)


def _number_as_array(value: bool | int | float, dtype: np.dtype) -> np.ndarray | None:
    """Returns a Python number as an array of `dtype`, or None if it is of another kind."""
    if isinstance(value, bool) or dtype == np.bool_:
        return np.asarray(value) if isinstance(value, bool) and dtype == np.bool_ else None
    if jnp.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        if isinstance(value, float) or not limits.min <= value <= limits.max:
            return None
    with np.errstate(over="ignore"):  # a number too large for the dtype becomes infinite
        return np.asarray(value, dtype)


def common_shape(
    space: str, arrays: Mapping[str, Any], shape: Sequence[int] | None
) -> tuple[int, ...]:
    """Returns the shape that `arrays` broadcast to, which must be `shape` unless that is None."""
    dims = None
    if shape is not None:
        if not isinstance(shape, Sequence | np.ndarray) or isinstance(shape, str):
            raise SpaceError(f"{space} got shape={shape!r}; it must be a tuple such as (3,).")
        name = f"{space} got an axis of shape"
        dims = tuple(check_integer(SpaceError, name, dim, 0) for dim in shape)
    try:
        common = np.broadcast_shapes(*(array.shape for array in arrays.values()), dims or ())
    except ValueError:
        common = None
    if common is None or (dims is not None and common != dims):
        given = " and ".join(f"{name} of shape {array.shape}" for name, array in arrays.items())
        raise SpaceError(
            f"{space} got {given}; they must broadcast to "
            f"{'one shape' if dims is None else f'shape={dims}'}.\n"
            "  Pass numbers, or arrays of the shape of a member."
        )
    return common


def check_x64(dtype: np.dtype) -> None:
    """Raises SpaceError if JAX would silently convert `dtype` to 32 bits."""
    if dtype.itemsize == 8 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise SpaceError(
            f"arrays of {dtype} need jax_enable_x64, which is off.\n"
            "  Use a 32-bit dtype, or turn the flag on for the whole program."
        )


def compact(array: np.ndarray) -> np.ndarray:
    """Returns a read-only copy of `array` without leading axes along which it is constant.

    The result broadcasts to `array`, and two arrays of one shape are equal if and only if their
    compact copies are. So the bounds of 65,536 images are stored, compared and compiled once.
    """
    while array.ndim and array.shape[0] and (array[1:] == array[:1]).all():
        array = array[0]
    array = np.array(array)
    array.flags.writeable = False
    return array


def add_leading_axes(array: Any, ndim: int) -> Any:
    """Returns `array` with leading axes of length 1, `ndim` axes in all. Scalars stay scalars."""
    return array.reshape((1,) * (ndim - array.ndim) + array.shape) if array.ndim else array


def to_text(array: np.ndarray) -> str:
    """Returns the shortest text for `array`; axes longer than 10 are abbreviated."""
    if array.ndim == 0:
        return str(array[()])
    rows = [to_text(row) for row in (array if len(array) <= 10 else [*array[:3], *array[-3:]])]
    return "[" + ", ".join(rows if len(array) <= 10 else [*rows[:3], "...", *rows[3:]]) + "]"
