"""Parameters of environments: the fields of a dataclass, and what may stand in them."""

import copy
import dataclasses
from collections.abc import Mapping
from types import UnionType
from typing import Any, ClassVar, Self, Union, get_args, get_origin

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxenvs import struct
from jaxenvs.errors import ParameterError, VectorizeError, describe
from jaxenvs.spaces import Space

# What stands for no limit where there must be one. MiniGrid's rewards multiply it by 10 in 32 bits.
NO_LIMIT = 200_000_000  # steps


class Parameterized:
    """A dataclass whose fields are parameters. One of them may contain further parameters."""

    # The field that contains further parameters, such as a wrapped environment.
    inner_parameters: ClassVar[str | None] = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, including those of wrapped environments."""
        own = {field.name: getattr(self, field.name) for field in struct.fields(self)}
        if self.inner_parameters is None:
            return own
        return {**own.pop(self.inner_parameters).parameters, **own}

    def __repr__(self) -> str:
        inner = [repr(getattr(self, self.inner_parameters))] if self.inner_parameters else []
        changed = [
            f"{field.name}={_brief(value)}"
            for field in struct.fields(self)
            if (value := getattr(self, field.name)) is not field.default
            and field.name != self.inner_parameters
        ]
        return f"{type(self).__name__}({', '.join([*inner, *changed])})"

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some parameters changed: `env.replace(gravity=3.7)`.

        Names that are not fields are passed to the wrapped environment's `replace`. Compiled
        programs are reused if the field is not static and the new value has the same type as the
        old one. To `jit`, a Python float and a `jnp.float32` are different types.

        Raises:
            UnknownParameterError: there is no such field. The message suggests the closest name.
            ParameterError: the parameter is a number and the new value is not.
        """
        own = {field.name for field in struct.fields(self)}
        if place := self.inner_parameters:
            inner = {name: changes.pop(name) for name in [*changes] if name not in own}
            if inner:
                changes[place] = changes.get(place, getattr(self, place)).replace(**inner)
        changes = checked_parameters(type(self), changes)
        return struct.replace(self, **changes)


def layers(env: Any, name: str) -> list[Any]:
    """Returns `env` and what is inside, up to the outermost object with the parameter `name`."""
    found: list[Any] = [env]
    while name not in vars(found[-1]):
        found.append(getattr(found[-1], found[-1].inner_parameters))
    return found


def is_static_parameter(env: Any, name: str) -> bool:
    """Returns whether the parameter `name` decides the program, so that it is not a leaf."""
    *_, layer = layers(env, name)
    changed, value = copy.copy(layer), object()
    vars(changed)[name] = value
    return all(leaf is not value for leaf in jax.tree.leaves(changed))


def is_number(field: dataclasses.Field) -> bool:
    """Returns whether a parameter is a single number, by its default or its type."""
    kinds: Any = [field.type]
    if isinstance(field.type, str):  # from __future__ import annotations
        kinds = map(str.strip, field.type.split("|"))
    elif get_origin(field.type) in (Union, UnionType):
        kinds = get_args(field.type)
    kinds = {getattr(kind, "__name__", kind) for kind in kinds} - {"None", "NoneType"}
    return not struct.is_static(field) and (
        isinstance(field.default, int | float) or kinds <= {"int", "float", "bool"}
    )


def check_numbers(env: Any, axes: Any = None) -> None:
    """Checks that parameters that are numbers are not arrays, also those of wrapped environments.

    Args:
        env: the environment of each instance of a batch, or the wrapper of a whole batch.
        axes: a tree like `env`: 0 if a parameter has a row per instance, otherwise None. None if
            instances cannot differ.

    Raises:
        VectorizeError: a number is an array, or a row has more than one.
    """
    for field in filter(is_number, struct.fields(env)):
        name, value = field.name, getattr(env, field.name)
        is_batched = getattr(axes, name, None) is not None
        if getattr(value, "ndim", 0) > is_batched:
            expected, fix = "a number", f'Pass batched=["{name}"] for a number per instance'
            if is_batched:
                expected, fix = "a number per instance", f"Pass an array of shape [{len(value)}]"
            elif axes is None:
                fix = "All instances share it"
            raise VectorizeError(
                f"{type(env).__name__} got {name} of {describe(value)}; expected {expected}."
                f"  {fix}."
            )
    inner = getattr(env, "inner_parameters", None)
    if inner is not None:
        check_numbers(getattr(env, inner), getattr(axes, inner, None))


def checked_parameters(cls: type, params: Mapping[str, Any]) -> dict[str, Any]:
    """Checks numeric parameters of `cls` and converts float64 arrays to float32.

    Returns:
        `params` with float64 arrays replaced by float32 arrays, the dtype of states.

    Raises:
        ParameterError: a parameter's default is a number and its value is not.
    """
    defaults = {
        field.name: field.default
        for field in struct.fields(cls)
        if isinstance(field.default, int | float) and not struct.is_static(field)
    }
    numbers = dict(params)
    for name in defaults.keys() & numbers.keys():
        value = params[name]
        dtype = getattr(value, "dtype", None)
        is_number = not isinstance(
            value, str | bytes | complex | dict | set | list | tuple | type(None)
        )
        if dtype is not None:
            is_number &= jnp.issubdtype(dtype, np.number) or dtype == np.bool_
            is_number &= not jnp.issubdtype(dtype, np.complexfloating)
        if not is_number:
            raise ParameterError(
                f"{cls.__name__} got {name}={value!r:.60}; expected a number such as"
                f" {defaults[name]}, or an array of numbers if the parameter is batched."
            )
        if dtype == np.float64:
            numbers[name] = value.astype(np.float32)
    return numbers


def check_time_limit(name: str, limit: Any) -> None:
    """Checks that `limit` is a number of steps, or an array with one number per instance.

    Skips values that are not known yet, such as tracers. `name` identifies the owner of the limit
    in the error message.

    Raises:
        ParameterError: the limit is not an integer from 1 to 2**31 - 1.
    """
    is_array = isinstance(limit, jax.Array | np.ndarray | np.generic)
    if isinstance(limit, Tracer) or not (
        is_array or limit is None or isinstance(limit, int | float | complex | str | list | tuple)
    ):
        return  # not known yet
    value = np.asarray(limit)
    if (
        value.dtype.kind not in "iu"
        or value.ndim > (1 if is_array else 0)
        or not ((value >= 1) & (value < 2**31)).all()
    ):
        raise ParameterError(
            f"{name} got the time limit {limit!r:.60}; it must be an integer, at least 1 and below"
            " 2**31.  To remove an id's time limit, pass time_limit=None to make."
        )


def _brief(value: Any) -> str:
    if isinstance(value, str | Space):
        return repr(value)
    if hasattr(value, "shape"):
        return describe(value) if value.shape else f"{value}"
    if dataclasses.is_dataclass(value):
        return f"{type(value).__name__}(...)"
    return getattr(value, "__name__", f"{value}")  # functions and classes
