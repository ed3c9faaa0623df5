"""The parts of a configuration: their names, and settings as a file has them."""

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import flax.linen as nn
import numpy as np
import pydantic

from jaxenvs import _entry_points, wrappers
from jaxenvs.core import VectorEnv, Wrapper
from jaxenvs.errors import TrainingError, UnknownEnvironmentError, closest
from jaxenvs.training import actors, algorithms, extractors, storages
from jaxenvs.training._validation import options, quoted, validate
from jaxenvs.training.actors import Actor
from jaxenvs.training.algorithms import Algorithm
from jaxenvs.training.ranges import Count
from jaxenvs.training.schemes.scheme import Central, Remote, Scheme, central, remote
from jaxenvs.training.storages import Storage


def _by_name(module: Any, names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names.split()}


ALGORITHMS = _by_name(algorithms, "A2C DQN PPO PQN SAC TD3 VPG")
# A policy sees and acts through the other wrappers, so evaluation keeps them.
_TRAINING_WRAPPERS = _by_name(
    wrappers, "AddRewardNoise ClipReward DelayObservation ScaleReward StickyAction TimeLimit"
)
_OTHER_WRAPPERS = _by_name(
    wrappers,
    "AddRenderObservation ClipAction DiscretizeAction DtypeObservation FilterObservation"
    " FlattenObservation FrameStackObservation GrayscaleObservation RepeatAction RescaleAction"
    " RescaleObservation ResizeObservation TimeAwareObservation",
)
# The parts that have names, and the class of those of your own.
KINDS: dict[str, tuple[dict[str, Any], type]] = {
    "algorithm": (ALGORITHMS, Algorithm),
    "actor": (_by_name(actors, "ActorCritic ActorTwinQ QNetwork"), Actor),
    "storage": (
        _by_name(storages, "DiscountedReturns GAE HindsightReplay PrioritizedReplay Replay VTrace"),
        Storage,
    ),
    "extractor": (_by_name(extractors, "FixupCNN ImpalaCNN MLP NatureCNN SmallCNN"), nn.Module),
    "wrapper": (_TRAINING_WRAPPERS | _OTHER_WRAPPERS, Wrapper),
}
PARTS = ("settings", "actor", "storage", "scheme")  # the tables of a configuration for parts
TABLES = (*PARTS, "env")
_MEMORIES = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}
MEMORY_SIZE = 128  # units
_NUMBERS = float | Sequence[float]


def find_part(kind: str, name: Any) -> Any:
    """Returns the class of a part by its name, in either case, or "module:Class" for your own.

    Raises:
        TrainingError: there is none; the message suggests the closest.
    """
    known, base = KINDS[kind]
    text = name if isinstance(name, str) else ""
    if ":" in text:
        try:
            found = _entry_points.load(text, f'{kind}="{name}"')
        except UnknownEnvironmentError as error:
            raise TrainingError(f"{error}") from error
        if not (isinstance(found, type) and issubclass(found, base)):
            raise TrainingError(
                f'there is no {kind} "{name}": it is {found!r:.60}; expected a subclass of'
                f" {base.__name__}."
            )
        return found
    lowered = {each.lower(): each for each in known}
    if text.lower() not in lowered:
        raise TrainingError(
            f"there is no {kind} {quoted(name)}.{closest(text, known)}  Choose one of"
            f' {", ".join(sorted(known))}; "module:Class" or "file.py:Class" is one of your own.'
        )
    return known[lowered[text.lower()]]


def full_name(kind: str, given: str) -> str:
    """Returns the name of a part in the usual case. Names of your own parts stay as they are."""
    return given if ":" in f"{given}" else find_part(kind, given).__name__


def _is_optional(expected: Any) -> bool:
    """Returns whether a setting may be None, written as false in a file."""
    return types.NoneType in options(expected) and bool not in options(expected)


def _named(kind: str, given: Any) -> tuple[Any, dict[str, Any]]:
    """Returns the class and the checked table of a part, given by its name or a table."""
    table = {"type": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or "type" not in table:
        raise TrainingError(
            f"a configuration got the {kind} {quoted(given)}; it takes a name, or a table with a"
            " type and settings."
        )
    cls = find_part(kind, table["type"])
    settings = checked_settings(cls, table)
    required = {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is field.default_factory is dataclasses.MISSING
    }
    missing = [name for name in settings_of(cls) if name in required and name not in settings]
    if missing:
        raise TrainingError(f"the {kind} {cls.__name__} got no {' and no '.join(missing)}.")
    return cls, settings


def _extractor(given: Any) -> Any:
    """Returns the extractor described by a name or a table, or one per entry of a Dict."""
    if isinstance(given, Mapping) and "type" not in given:
        return {name: _extractor(each) for name, each in given.items()}
    cls, settings = _named("extractor", given)
    return cls(**arguments_of(cls, settings))


def _place(given: Any) -> Central | Remote:
    """Returns where collection or gradients run."""
    if isinstance(given, Mapping) and "workers" in given:
        hints = {"workers": int, "sync": bool, "resources": dict[str, Any]}
        checked = validate("remote", hints, given)
        return remote(checked.pop("workers"), **checked)
    text = given.lower() if isinstance(given, str) else ""
    found = re.fullmatch(r"central|remote:(\d+)(:sync|:async)?", text)
    if found is None:
        raise ValueError(
            'takes "central", "remote:4" or "remote:4:async"; or, for actors of Ray,'
            " { workers = 4, sync = false, resources = { num_cpus = 1 } }"
        )
    return remote(int(found[1]), sync=found[2] != ":async") if found[1] else central()


def _checked_by(make: Callable[[Any], Any]) -> Any:
    """Returns the type of values that `make` does not refuse."""

    def check(value: Any) -> Any:
        make(value)
        return value

    return Annotated[Any, pydantic.AfterValidator(check)]


_EXTRACTOR, _PLACE = _checked_by(_extractor), _checked_by(_place)
# How a file expresses fields of these types.
_AS_WRITTEN: dict[Any, Any] = {
    nn.RNNCellBase: Literal["gru", "lstm"],
    nn.Module: _EXTRACTOR,
    Central: _PLACE,
    np.dtype: str,
    np.ndarray: _NUMBERS,
}
# The fields that are not settings.
_HIDDEN: dict[type, Sequence[str]] = {
    nn.Module: ("parent", "name"),
    Wrapper: ("env",),
    Scheme: ("env", "algorithm", "actor", "storage", "num_envs", "unroll_length"),
}


@functools.cache
def settings_of(cls: type) -> dict[str, Any]:
    """Returns the settings of a part that a file can express, with their types."""
    hidden = {name for base, names in _HIDDEN.items() if issubclass(cls, base) for name in names}
    as_written = _AS_WRITTEN | ({float: _NUMBERS} if issubclass(cls, Wrapper) else {})
    hints = typing.get_type_hints(cls, include_extras=True)
    known: dict[str, Any] = {}
    for kind, (_, base) in KINDS.items():
        if issubclass(cls, base) and kind != "algorithm":
            in_full = pydantic.AfterValidator(functools.partial(full_name, kind))
            known["type"] = Annotated[Any, in_full]
    if issubclass(cls, Wrapper):
        known["batched"] = Sequence[str]
    for name in (field.name for field in dataclasses.fields(cls) if field.name not in hidden):
        hint = hints[name]
        kinds = options(hint)
        written = [as_written[kind] for kind in kinds if kind in as_written]
        if {typing.get_origin(x) for x in kinds if x is not types.NoneType} != {Callable}:
            known[name] = written[0] if written else hint
        if nn.RNNCellBase in kinds:
            known[f"{name}_size"] = Count
    return known


def checked_settings(cls: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the settings of a part. False disables one that may be None.

    Raises:
        TrainingError: there is no such setting, or a value does not fit.
    """
    known, checked = settings_of(cls), {}
    for name, value in settings.items():
        if (value is None or value is False) and _is_optional(known.get(name)):
            if getattr(cls, name, None) is not None:
                checked[name] = False
        elif value is not None:
            checked |= validate(cls.__name__, known, {name: value})
    return checked


def arguments_of(cls: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Converts checked settings to arguments of the class."""
    known, arguments = settings_of(cls), {}
    for name, value in settings.items():
        if name in ("type", "memory_size"):
            continue
        if value is False and _is_optional(known[name]):
            arguments[name] = None
        elif known[name] is _EXTRACTOR:
            arguments[name] = _extractor(value)
        elif known[name] is _PLACE:
            arguments[name] = _place(value)
        elif known[name] == _NUMBERS and isinstance(value, tuple):
            arguments[name] = np.asarray(value, np.float32)
        elif name == "memory":
            arguments[name] = _MEMORIES[settings[name]](settings.get("memory_size", MEMORY_SIZE))
        else:
            arguments[name] = value
    return arguments


def checked_wrapper(given: Any) -> dict[str, Any]:
    """Returns the checked table of a wrapper: `type`, settings, and perhaps `batched`.

    Raises:
        TrainingError: there is no such wrapper, or a setting does not fit.
    """
    cls, settings = _named("wrapper", given)
    for each in settings.get("batched", ()):
        can = [
            name for name, x in settings_of(cls).items() if x == _NUMBERS and _is_for_training(cls)
        ]
        if each not in can or not isinstance(settings.get(each), tuple):
            what = f"a list of numbers as {', '.join(can)}" if can else "no settings"
            raise TrainingError(
                f'the wrapper {cls.__name__} got batched=["{each}"]; {what} can differ between'
                " instances."
            )
    return settings


def wrap(env: Any, table: Mapping[str, Any], *, training: bool, num_envs: int | None) -> Any:
    """Wraps an environment as its checked table says, see `Config.wrapped`."""
    cls: Any = find_part("wrapper", table["type"])
    if not training and _is_for_training(cls):
        return env
    settings = arguments_of(cls, table)
    batched = settings.pop("batched", ())
    if batched and (num_envs is None or isinstance(env, VectorEnv)):
        raise TrainingError(
            f"the wrapper {cls.__name__} got batched={list(batched)} around {env!r:.80},"
            " whose instances cannot differ.  Give all of them the same number."
        )
    for name in batched:  # an equal share of the instances for each number, in order
        values, instances = settings[name], np.arange(num_envs or 0)
        settings[name] = values[instances * len(values) // instances.size]
    return env.wrap(cls, **settings)


def _is_for_training(wrapper: type) -> bool:
    return issubclass(wrapper, (*_TRAINING_WRAPPERS.values(),))
