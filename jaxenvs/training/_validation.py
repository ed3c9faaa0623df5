"""Validation of settings, given in Python, in a file, or on the command line."""

import dataclasses
import functools
import json
import operator
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.errors import TrainingError, check_integer, closest, missing_extra
from jaxenvs.training.ranges import Range


def check_settings(part: Any) -> None:
    """Checks the types and ranges of the fields of an algorithm or a storage.

    Arrays count as numbers, even under tracing, because hyperparameters may be mapped over.

    Raises:
        TrainingError: a value does not fit its field.
    """
    try:
        hints = typing.get_type_hints(type(part))
        annotated = typing.get_type_hints(type(part), include_extras=True)
    except NameError:  # a user's part, whose annotations are only known where it was written
        return
    for field in dataclasses.fields(part):
        name, value, is_static = field.name, getattr(part, field.name), struct.is_static(field)
        if (hint := _scalar(hints[name], is_static)) is None:
            continue
        problem = _problem(hint, value, is_static) or _out_of_range(annotated[name], value)
        if problem is not None:
            raise TrainingError(f"{type(part).__name__} got {name}={value!r:.60}; it {problem}.")


def _scalar(hint: Any, is_static: bool) -> Any:
    """Returns the part of a type that allows numbers, names, and functions, or None."""
    kinds = [x for x in options(hint) if x in (int, float, bool) or typing.get_origin(x) is Literal]
    if not kinds:
        return None
    if not is_static:  # a leaf: any number
        kinds = [float if kind is int else kind for kind in kinds]
    others = [x for x in options(hint) if x is type(None) or typing.get_origin(x) is Callable]
    return functools.reduce(operator.or_, kinds + others)


def _problem(hint: Any, value: Any, is_static: bool) -> str | None:
    """Returns why a value does not have its type, or None if it does."""
    if isinstance(value, jax.Array) and not is_static:
        return None
    if callable(value) and any(typing.get_origin(x) is Callable for x in options(hint)):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and int in options(hint):  # 1e6 is an integer in files alone
        return "should be a valid integer"
    is_numbers = isinstance(value, np.ndarray) and np.issubdtype(value.dtype, np.number)
    return None if is_numbers else mismatch(hint, value)


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


def validate(owner: str, fields: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Checks settings and converts them: lists become tuples, and 1e6 becomes an integer.

    Args:
        owner: the owner of the settings, for messages.
        fields: the type of each setting, or a function that raises if the value is wrong.
        values: the settings as read from TOML.

    Raises:
        TrainingError: there is no such setting (the message suggests the closest), or the value
            has the wrong type.
    """
    found = {}
    for name, value in values.items():
        if name not in fields:
            raise TrainingError(f'{owner} has no setting "{name}".{closest(name, fields)}')
        expected = fields[name]
        if isinstance(expected, types.FunctionType):
            expected(value)
            found[name] = value
            continue
        if isinstance(value, str) and any(
            typing.get_origin(x) is Literal for x in options(expected)
        ):
            value = value.lower()
        problem = mismatch(expected, value)
        if problem is not None:
            raise TrainingError(f"{owner} got {name}={quoted(value)}; it {problem}.")
        found[name] = _as_tuple(_adapter(expected).validate_json(_as_json(value)))
    return found


def mismatch(hint: Any, value: Any) -> str | None:
    """Returns what the type expects, or None if `value` has that type."""
    import pydantic

    try:
        _adapter(hint).validate_json(_as_json(value))
    except pydantic.ValidationError as error:
        expected = []
        for each in error.errors():
            words = each["msg"].removeprefix("Input should be ")
            is_item = any(isinstance(part, int) for part in each["loc"])
            expected.append(f"a list, each item {words}" if is_item else words)
        if any(typing.get_origin(each) is Callable for each in options(hint)):
            expected.append("a schedule: a function of the gradient steps so far")
        return f"should be {' or '.join(dict.fromkeys(expected))}"
    return None


def options(hint: Any) -> tuple[Any, ...]:
    """Returns the members of a union, or a tuple of any other type itself."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return typing.get_args(hint) if is_union else (hint,)


def quoted(value: Any) -> str:
    """Returns a value as messages show it."""
    return f'"{value}"' if isinstance(value, str) else f"{value!r}"


@functools.cache
def _adapter(hint: Any) -> Any:
    """Returns a strict validator of a type, ignoring functions."""
    try:
        import pydantic
    except ImportError as error:
        raise missing_extra("Settings of a training run", "pydantic", "train") from error
    kinds: Any = [x for x in options(hint) if typing.get_origin(x) is not Callable]
    return pydantic.TypeAdapter(functools.reduce(operator.or_, kinds), config={"strict": True})


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


def _out_of_range(annotated: Any, value: Any) -> str | None:
    """Returns the range of a number if it is outside it."""
    if not isinstance(value, int | float | np.ndarray | np.generic) or isinstance(value, bool):
        return None
    value = np.asarray(value)
    if np.isnan(value).any():
        return "must be a number"
    notes = (note for kind in options(annotated) for note in getattr(kind, "__metadata__", ()))
    ranges = (note for note in notes if isinstance(note, Range))
    return next((each.words for each in ranges if not np.all(each.fits(value))), None)
