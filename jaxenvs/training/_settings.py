"""What the fields of parts may be: refused where parts are assembled, not where they are used."""

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

from jaxenvs import struct
from jaxenvs.errors import TrainingError

# What numbers of a name are, besides numbers: where they are not, which words say so.
_COUNTS = {
    *("epochs", "minibatches", "batch_size", "policy_delay", "exploration_steps"),
    *("target_update_every", "capacity", "n_step", "time_limit", "beta_steps"),
}
_SHARES = {
    *("gamma", "gae_lambda", "tau", "decay", "initial_epsilon", "final_epsilon"),
    *("target_entropy_ratio", "beta", "final_beta"),
}
_POSITIVE = {
    *("clip", "target_kl", "max_gradient_norm", "adam_epsilon", "rms_epsilon"),
    *(
        "initial_temperature",
        "observation_clip",
        "reward_clip",
        "clip_rho",
        "clip_c",
        "clip_pg_rho",
    ),
}
_NOT_NEGATIVE = {
    *("learning_rate", "critic_learning_rate", "temperature_learning_rate", "learning_starts"),
    *("exploration_noise", "target_noise", "target_noise_clip", "alpha", "epsilon"),
}
_RANGES: tuple[tuple[set[str], Callable[[Any], Any], str], ...] = (
    (_COUNTS, lambda value: value >= 1, "must be at least 1"),
    (_SHARES, lambda value: (value >= 0) & (value <= 1), "is between 0 and 1"),
    (_POSITIVE, lambda value: value > 0, "must be above 0"),
    ({"replay_ratio"}, lambda value: (value >= 1e-4) & (value < np.inf), "is 1e-4 or more"),
    (_NOT_NEGATIVE, lambda value: value >= 0, "must not be below 0"),
)


def check_settings(part: Any) -> None:
    """Refuses an algorithm or a storage with a value that its field does not take.

    Arrays, traced ones too, are numbers here: hyper-parameters may be mapped over.

    Raises:
        TrainingError: naming the field, the value, and what it takes.
    """
    try:
        hints = typing.get_type_hints(type(part))
    except NameError:  # somebody's own part, whose annotations are known where it was written
        return
    for field in dataclasses.fields(part):
        name, value = field.name, getattr(part, field.name)
        wanted = _wanted(name, hints[name], value, is_static=struct.is_static(field))
        if wanted is not None:
            raise TrainingError(f"{type(part).__name__} got {name}={value!r:.60}; it {wanted}.")


def whole(name: str, value: Any, least: int = 1) -> int:
    """`value`, a whole number from `least` on.

    Raises:
        TrainingError: it is none; `name` says of what.
    """
    if not _is_whole(value):
        raise TrainingError(f"{name}={value!r:.60}; it takes a whole number.")
    if value < least:
        raise TrainingError(f"{name}={value}; it must be at least {least}.")
    return value


def check_hidden_sizes(actor: Any) -> None:
    """Refuses `hidden_sizes` that are no widths of layers.

    Raises:
        TrainingError: saying what they are.
    """
    sizes = actor.hidden_sizes
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise TrainingError(
            f"{type(actor).__name__} got hidden_sizes={sizes!r:.60}; it takes the width of each"
            " layer, such as (64, 64)."
        )
    for size in sizes:
        whole(f"{type(actor).__name__} got a layer of hidden_sizes", size)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The types that a union is of; else the one that it is."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _wanted(name: str, hint: Any, value: Any, *, is_static: bool) -> str | None:
    """What the field takes, if it does not take this."""
    if value is None and types.NoneType in alternatives(hint):
        return None
    kind = next((each for each in alternatives(hint) if each is not types.NoneType), None)
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        is_choice = isinstance(value, str) and value in choices
        return None if is_choice else f"takes {' or '.join(map(repr, choices))}"
    if kind is bool:
        return None if isinstance(value, bool | np.bool_) else "takes True or False"
    if is_static and kind is int:
        return _range(name, value) if _is_whole(value) else "takes a whole number"
    if kind not in (float, int) or (isinstance(value, jax.Array) and not is_static):
        return None
    takes = "takes a number"
    if any(typing.get_origin(each) is Callable for each in alternatives(hint)):
        if callable(value):
            return None
        takes += ", or a schedule: a function of the gradient steps so far"
    return _range(name, value) if _is_number(value) else takes


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    is_one = isinstance(value, int | float | np.generic | np.ndarray)
    return is_one and np.issubdtype(np.asarray(value).dtype, np.number)  # which bool is not


def _range(name: str, value: Any) -> str | None:
    """What numbers of this name are, if these are not."""
    value = np.asarray(value)
    if np.isnan(value).any():
        return "takes a number"
    return next(
        (words for names, fits, words in _RANGES if name in names and not np.all(fits(value))), None
    )
