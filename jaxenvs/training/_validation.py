"""Validation of settings, given in Python, in a file, or on the command line."""

import dataclasses
import functools
import json
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pydantic

from jaxenvs import struct
from jaxenvs.errors import TrainingError, check_integer, closest
from jaxenvs.training.ranges import Range

# What messages call the expected value, by the type of pydantic's error.
_WORDS = {
    "callable_type": "a schedule: a function of the gradient steps so far",
    "dict_type": "a table of names and values",
    "list_type": "a list",
    "needs_python_object": "an object, which a file cannot express",
    "tuple_type": "a list",
}
_NOT_NAN = Range("must be a number", lambda value: value == value)


def check_settings(part: Any) -> None:
    """Checks the types and ranges of the fields of an algorithm or a storage.

    Arrays count as numbers, even under tracing, because hyperparameters may be mapped over.

    Raises:
        TrainingError: a value does not fit its field.
    """
    try:
        hints = typing.get_type_hints(type(part), include_extras=True)
    except NameError:  # a user's part, whose annotations are only known where it was written
        return
    for field in dataclasses.fields(part):
        name, value, is_static = field.name, getattr(part, field.name), struct.is_static(field)
        hint = _scalar(hints[name], is_static)
        if hint is None or (isinstance(value, jax.Array) and not is_static):
            continue
        is_numpy = isinstance(value, np.ndarray | np.generic)
        for number in np.ravel(value).tolist() if is_numpy else [value]:
            try:
                _adapter(hint).validate_python(number)
            except pydantic.ValidationError as error:
                raise _refusal(type(part).__name__, f"{name}={value!r:.60}", error) from None


def _scalar(hint: Any, is_static: bool) -> Any:
    """Returns the members of a type that are numbers, names, and functions, or None."""
    scalars, others = [], []
    for kind in options(hint):
        base, *notes = typing.get_args(kind) if typing.get_origin(kind) is Annotated else (kind,)
        if base in (int, float, bool) or typing.get_origin(base) is Literal:
            base = float if base is int and not is_static else base  # a leaf: any number
            scalars.append(Annotated[base, _NOT_NAN, *notes])
        elif base is types.NoneType or typing.get_origin(base) is Callable:
            others.append(base)
    return functools.reduce(operator.or_, scalars + others) if scalars else None


def like_number(value: Any, old: Any) -> Any:
    """Returns a number or an array in the type of an old one of the same shape and kind.

    Programs compile again for an argument of another type.
    """
    numbers = int | float | np.generic | np.ndarray | jax.Array
    if not (isinstance(value, numbers) and isinstance(old, numbers)):
        return value
    if struct.is_traced(value, old) or np.shape(value) != np.shape(old):
        return value
    given, dtype = (x.dtype if hasattr(x, "dtype") else np.dtype(type(x)) for x in (value, old))
    is_number = isinstance(given, np.dtype) and isinstance(dtype, np.dtype)  # not a key
    if not (is_number and np.can_cast(given, dtype, "same_kind")):
        return value
    return type(old)(value) if isinstance(old, int | float) else jnp.asarray(value, dtype)


def check_hidden_sizes(actor: Any) -> None:
    """Checks that `hidden_sizes` are widths of layers.

    Raises:
        TrainingError: they are not.
    """
    sizes = actor.hidden_sizes
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise TrainingError(
            f"{type(actor).__name__} got hidden_sizes={sizes!r:.60}; it takes the width of each"
            " layer, such as (64, 64)."
        )
    for size in sizes:
        check_integer(TrainingError, f"{type(actor).__name__} got a layer of hidden_sizes", size)


def validate(owner: str, hints: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Checks settings and converts them: lists become tuples, and 1e6 becomes an integer.

    Args:
        owner: the owner of the settings, for messages.
        hints: the type of each setting.
        values: the settings as read from TOML.

    Raises:
        TrainingError: there is no such setting (the message suggests the closest), or the value
            has the wrong type or is out of range.
    """
    found = {}
    for name, value in values.items():
        if name not in hints:
            raise TrainingError(f'{owner} has no setting "{name}".{closest(name, hints)}')
        is_name = any(typing.get_origin(kind) is Literal for kind in options(hints[name]))
        given = value.lower() if is_name and isinstance(value, str) else value
        try:
            found[name] = _as_tuple(_adapter(hints[name]).validate_json(_as_json(given)))
        except pydantic.ValidationError as error:
            raise _refusal(owner, f"{name}={quoted(value)}", error) from None
    return found


def options(hint: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or a tuple of any other type itself."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def quoted(value: Any) -> str:
    """Returns a value as messages show it."""
    return f'"{value}"' if isinstance(value, str) else f"{value!r}"


@functools.cache
def _adapter(hint: Any) -> pydantic.TypeAdapter[Any]:
    config: Any = {"strict": True, "arbitrary_types_allowed": True}
    return pydantic.TypeAdapter(hint, config=config)


def _refusal(owner: str, given: str, error: pydantic.ValidationError) -> TrainingError:
    """Returns the error for a value that pydantic refused, or the one that a validator raised."""
    expected = []
    for each in error.errors():
        raised = each.get("ctx", {}).get("error")
        if isinstance(raised, TrainingError):
            return raised
        if raised is not None:
            return TrainingError(f"{owner} got {given}; it {raised}.")
        words = _WORDS.get(each["type"], each["msg"].removeprefix("Input should be "))
        is_item = any(isinstance(part, int) for part in each["loc"])
        expected.append(f"a list, each item {words}" if is_item else words)
    words = " or ".join(dict.fromkeys(expected))
    return TrainingError(f"{owner} got {given}; it should be {words}.")


def _as_json(value: Any) -> str:
    """Returns a value as JSON. Sequences become lists, and 1e6 becomes an integer."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [plain(each) for each in value]
        is_whole = isinstance(value, float) and value.is_integer()
        return int(value) if is_whole else value

    return json.dumps(plain(value), default=repr)


def _as_tuple(value: Any) -> Any:
    return tuple(map(_as_tuple, value)) if isinstance(value, list) else value
