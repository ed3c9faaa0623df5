"""What every space can do, and what the spaces of a single array share."""

import abc
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxenvs.errors import SpaceError

if TYPE_CHECKING:
    from jaxenvs.spaces.box import Box


class Space(abc.ABC):
    """An immutable set of values with one structure, and one shape and dtype a leaf."""

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The shape of a member; None where a member is a dict or a tuple."""
        return None

    @property
    def dtype(self) -> np.dtype | None:
        """The dtype of a member, whatever `jax_enable_x64` says; None for a dict or a tuple."""
        return None

    @abc.abstractmethod
    def sample(
        self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None
    ) -> chex.ArrayTree:
        """Draws independent members, in one draw a leaf however many they are.

        Args:
            key: a random key; one for the whole batch.
            shape: leading axes put before every leaf's own.
            mask: restricts what may be drawn, see the space's class. Where it has leading axes
                they are `shape`, one mask for each member; without them it holds for all.

        Raises:
            SpaceError: the mask does not fit, or the dtype needs `jax_enable_x64`.
        """

    @abc.abstractmethod
    def contains(self, value: Any) -> jax.Array:
        """bool[]: whether `value` is a member. Jittable.

        A wrong structure, shape or dtype is False, and known when tracing. An array must have
        the dtype exactly; a Python number, which has none, is taken where the member is a single
        number and the value fits: int for integers and floats, float for floats, bool for bool.
        """

    @abc.abstractmethod
    def batch(self, n: int) -> "Space":
        """The space of `n` independent members, stacked on a new leading axis of every leaf.

        Raises:
            SpaceError: `n` is not a positive integer.
        """

    @property
    @abc.abstractmethod
    def flat_dim(self) -> int:
        """How many numbers `flatten` gives."""

    @abc.abstractmethod
    def flatten(self, value: Any) -> jax.Array:
        """Lays a member out as one vector [flat_dim]. Jittable; `vmap` it over a batch.

        Integers of a `Discrete` or `MultiDiscrete` become one-hot vectors, other arrays are
        raveled. The dtype is the leaves' own if they share one, else float32 (float64 if a leaf
        is float64), which holds integers exactly up to 2**24.

        Raises:
            SpaceError: `value` has another structure or shape than a member.
        """

    @abc.abstractmethod
    def unflatten(self, array: Any) -> Any:
        """The member that `flatten` laid out as `array`. Jittable; `vmap` it over a batch.

        Where a one-hot vector is expected the position of the largest entry counts, so scores
        of a network are taken as well.

        Raises:
            SpaceError: `array` is not of shape [flat_dim].
        """

    @abc.abstractmethod
    def flatten_space(self) -> "Box":
        """The `Box` that the flattened members lie in."""

    def __contains__(self, value: Any) -> bool:
        return bool(self.contains(value))

    def __setattr__(self, name: str, value: Any) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__name__}.{name} cannot be assigned. Spaces are immutable; make another."
        )

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(
            f"{type(self).__name__}.{name} cannot be deleted. Spaces are immutable."
        )

    def _checked_flat(self, array: Any) -> jax.Array:
        array = jnp.asarray(array)
        if array.shape != (self.flat_dim,):
            raise SpaceError(
                f"unflatten got an array of shape {array.shape}; {self} expects "
                f"({self.flat_dim},).\n  Map over leading axes: jax.vmap(space.unflatten)(arrays)."
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
        """The dtype of a member, whatever `jax_enable_x64` says."""
        return self._dtype

    @abc.abstractmethod
    def sample(
        self, key: chex.PRNGKey, shape: Sequence[int] = (), mask: Any = None
    ) -> jax.Array: ...

    def contains(self, value: Any) -> jax.Array:
        member = self._as_member(value)
        return jnp.bool_(False) if member is None else jnp.asarray(self._within(member))

    @abc.abstractmethod
    def _within(self, value: Any) -> Any:
        """Whether an array of the right shape and dtype is a member: a bool, traced or NumPy."""

    def _as_member(self, value: Any) -> Any:
        """`value` as an array, if its shape and dtype are a member's, else None."""
        if isinstance(value, (bool, int, float)) and not isinstance(value, np.generic):
            return _python_number(value, self.dtype) if self.shape == () else None
        if not isinstance(value, (np.ndarray, np.generic, jax.Array)):
            return None
        fits = value.shape == self.shape and value.dtype == self.dtype
        return value if fits else None

    def _checked_value(self, value: Any) -> jax.Array:
        if np.shape(value) != self.shape:
            raise SpaceError(
                f"flatten got a value of shape {np.shape(value)}; {self} has members of shape "
                f"{self.shape}.\n  Map over leading axes: jax.vmap(space.flatten)(values)."
            )
        require_x64(self.dtype)
        return jnp.asarray(value, self.dtype)


def _python_number(value: bool | int | float, dtype: np.dtype) -> np.ndarray | None:
    if isinstance(value, bool) or dtype == np.bool_:
        return np.asarray(value) if isinstance(value, bool) and dtype == np.bool_ else None
    if jnp.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        if isinstance(value, float) or not limits.min <= value <= limits.max:
            return None
    with np.errstate(over="ignore"):  # too large for the dtype: infinite, as in JAX
        return np.asarray(value, dtype)


def checked_count(n: Any, what: str) -> int:
    """`n` as a Python int that is at least 1; `what` opens the message if it is not."""
    count = checked_integer(n, what)
    if count < 1:
        raise SpaceError(f"{what} got {count}; it must be at least 1.")
    return count


def checked_integer(n: Any, what: str) -> int:
    """`n` as a Python int; `what` opens the message if it is none, or traced."""
    if isinstance(n, Tracer):
        raise SpaceError(
            f"{what} got a traced value; it decides shapes and must be known when tracing.\n"
            "  Declare the parameter that it comes from with struct.static()."
        )
    try:
        return int(n.__index__())
    except (AttributeError, TypeError):
        raise SpaceError(f"{what} got {n!r}; it must be an integer.") from None


def common_shape(
    space: str, arrays: Mapping[str, Any], shape: Sequence[int] | None
) -> tuple[int, ...]:
    """`shape`, if the arrays that describe the space broadcast to it; their common one if None."""
    shapes = [array.shape for array in arrays.values()]
    if shape is None and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]
    dims = None
    if shape is not None:
        if not isinstance(shape, Sequence | np.ndarray) or isinstance(shape, str):
            raise SpaceError(f"{space} got shape={shape!r}; it must be a tuple such as (3,).")
        dims = tuple(checked_integer(dim, f"{space}'s shape") for dim in shape)
        if any(dim < 0 for dim in dims):
            raise SpaceError(f"{space} got shape={dims}; no axis may be negative.")
    if dims is not None and not any(shapes):  # numbers, the common case, without NumPy's ~3 us
        return dims
    try:
        common = np.broadcast_shapes(*shapes, dims or ())
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


def require_x64(dtype: np.dtype) -> None:
    """Raises where JAX would silently narrow `dtype` to 32 bits."""
    if dtype.itemsize == 8 and not jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        raise SpaceError(
            f"a space of {dtype} has no arrays while jax_enable_x64 is off.\n"
            "  Use a 32-bit dtype, or switch it on for the whole program."
        )


def compact(array: np.ndarray) -> np.ndarray:
    """A read-only copy of `array` without the leading axes along which it merely repeats.

    The result broadcasts to `array`, and arrays of one shape are equal exactly if their results
    are: what a batch of 65,536 images repeats is stored, compared and compiled once.
    """
    while array.ndim and array.shape[0] and (array[1:] == array[:1]).all():
        array = array[0]
    array = np.array(array)
    array.flags.writeable = False
    return array


def lift(array: Any, ndim: int) -> Any:
    """`array` with leading axes of length 1 up to `ndim`; a scalar stays one."""
    return array.reshape((1,) * (ndim - array.ndim) + array.shape) if array.ndim else array


def text(array: np.ndarray) -> str:
    """`array` in the shortest digits, long axes abridged."""
    if array.ndim == 0:
        return str(array[()])
    rows = [text(row) for row in (array if len(array) <= 10 else [*array[:3], *array[-3:]])]
    return "[" + ", ".join(rows if len(array) <= 10 else [*rows[:3], "...", *rows[3:]]) + "]"
