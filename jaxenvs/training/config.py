"""A training as data: names, numbers and tables, read from TOML and written to it.

config = config_for("ppo", "CartPole-v1")  # the settings of tuned.toml
result = jax.jit(config.make_train())(jax.random.key(config.seed))
"""

import collections.abc
import dataclasses
import functools
import importlib.resources
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import flax.linen as nn

from jaxenvs.errors import TrainingError, closest
from jaxenvs.training.actors import Actor, ActorCritic, ActorTwinQ, QNetwork
from jaxenvs.training.algorithms import A2C, DQN, PPO, SAC, TD3, VPG, Algorithm
from jaxenvs.training.anakin import Train, make_train
from jaxenvs.training.extractors import MLP, FixupCNN, ImpalaCNN, NatureCNN, SmallCNN
from jaxenvs.training.storages import (
    GAE,
    Hindsight,
    PrioritisedReplay,
    Replay,
    Rollout,
    Storage,
    VTrace,
)

ALGORITHMS = {cls.__name__: cls for cls in (A2C, DQN, PPO, SAC, TD3, VPG)}
ACTORS = {cls.__name__: cls for cls in (ActorCritic, ActorTwinQ, QNetwork)}
STORAGES = {
    cls.__name__: cls for cls in (GAE, Hindsight, PrioritisedReplay, Replay, Rollout, VTrace)
}
EXTRACTORS = {cls.__name__: cls for cls in (FixupCNN, ImpalaCNN, MLP, NatureCNN, SmallCNN)}
MEMORIES = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}

_MEMORY_SIZE = 128
_ROWS = 200  # of metrics, about, where `report_every` does not say how many
_TABLES = ("settings", "actor", "storage")


@dataclasses.dataclass(frozen=True)
class Config:
    """What to learn, with which algorithm, and for how long. Nothing in it is an array.

    Each table may leave out whatever stays at its default. `settings` are hyper-parameters of the
    algorithm; `actor` and `storage` are those of the algorithm unless their entry `type` names
    another: `{"type": "PrioritisedReplay", "n_step": 3}`. Of an actor, `memory` is "gru" or "lstm",
    with as many units as `memory_size` says (128), and an extractor is a name, "NatureCNN", a
    table with a `type` and its settings, or a table of these for the entries of a Dict.

    Raises:
        TrainingError: a name is unknown, then the message names the closest; or a value is of
            another type than the setting.
    """

    id: str  # of the environment, as `make_vec` takes it
    algorithm: str  # "PPO", in either case
    num_envs: int  # instances that collect side by side
    unroll_length: int  # steps of each instance between two updates
    total_steps: int  # environment steps in all
    report_every: int | None = None  # updates that a row of metrics sums up; None: about 200 rows
    seed: int = 0  # of the key that everything random comes from
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the algorithm
    actor: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    storage: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            if field.name not in _TABLES:
                value = _checked("a configuration", field.name, getattr(self, field.name), hints)
                object.__setattr__(self, field.name, value)
        algorithm = _named("algorithm", self.algorithm, ALGORITHMS)
        object.__setattr__(self, "algorithm", algorithm.__name__)
        for name in ("num_envs", "unroll_length", "total_steps", "report_every"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise TrainingError(
                    f"a configuration got {name}={getattr(self, name)}; it takes a number from 1"
                    " on."
                )
        for table in _TABLES:
            given = getattr(self, table)
            if not isinstance(given, Mapping):
                raise TrainingError(
                    f"a configuration got {table}={_told(given)}; it takes a table of names"
                    " and values."
                )
            cls, known = self._of_table(table)
            checked = {
                name: cls.__name__ if name == "type" else _checked(cls.__name__, name, value, known)
                for name, value in given.items()
                if value is not None
            }
            object.__setattr__(self, table, checked)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads a TOML file that `write` left, or one written by hand.

        `id` and `algorithm` have to be there. Other numbers that are left out are those of the
        algorithm in general, and settings that are left out have their defaults: what is tuned
        for the id does not come in.

        Raises:
            TrainingError: there is no such file, it is no TOML, or it says what cannot be.
        """
        try:
            text = Path(path).read_text()
        except (FileNotFoundError, IsADirectoryError) as error:
            raise TrainingError(f'there is no configuration at "{path}".') from error
        try:
            entries = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise TrainingError(f'"{path}" is no TOML: {error}.') from error
        try:
            missing = [name for name in ("id", "algorithm") if name not in entries]
            if missing:
                raise TrainingError(
                    f'a configuration got no {" and no ".join(missing)}.  Write algorithm = "PPO"'
                    ' and id = "CartPole-v1", for instance.'
                )
            hints = typing.get_type_hints(cls)
            name = _checked("a configuration", "algorithm", entries["algorithm"], hints)
            default = _tuned(_named("algorithm", name, ALGORITHMS).__name__)["default"]
            sizes = {name: value for name, value in default.items() if name not in _TABLES}
            return cls._of({**sizes, **entries})
        except TrainingError as error:
            raise TrainingError(f'in "{path}": {error}') from error

    def write(self, path: str | Path) -> Path:
        """Writes the configuration as TOML, for `read`; folders on the way are made."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_toml())
        return path

    def to_toml(self) -> str:
        """The configuration as the text of a TOML file. What is None is left out."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        lines = [
            f"{_key(name)} = {_emitted(value)}"
            for name, value in fields.items()
            if name not in _TABLES and value is not None
        ]
        for table in _TABLES:
            if fields[table]:
                lines += ["", f"[{table}]"]
                lines += [f"{_key(name)} = {_emitted(x)}" for name, x in fields[table].items()]
        return "\n".join(lines) + "\n"

    def replace(self, **changes: Any) -> Self:
        """A copy with other entries; a table that is given replaces the whole table.

        Raises:
            TrainingError: as by the constructor; or there is no such entry.
        """
        return type(self)._of({**vars(self), **changes})

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """A copy in which single settings differ.

        They are named as "gamma", "actor.hidden_sizes" or "storage.n_step"; None puts one back to
        its default. With another "storage.type" or "actor.type" the rest of that table goes.
        """
        tables: dict[str, Any] = {
            table: {} if f"{table}.type" in changes else dict(getattr(self, table))
            for table in _TABLES
        }
        for dotted, value in changes.items():
            table, *names = dotted.split(".") if "." in dotted else ("settings", dotted)
            if table not in _TABLES:
                raise TrainingError(
                    f'a configuration got the setting "{dotted}".  Write actor.NAME, storage.NAME,'
                    " or NAME alone for a hyper-parameter of the algorithm."
                )
            at = tables[table]
            for name in names[:-1]:
                below = at.get(name, {})
                at[name] = dict(below) if isinstance(below, Mapping) else {"type": below}
                at = at[name]
            at[names[-1]] = value
        return self.replace(**tables)

    def complete(self) -> Self:
        """A copy in which every table says everything, defaults included.

        What is written so stays the same training when a default changes.
        """
        tables = {}
        for table in _TABLES:
            given, (cls, known) = getattr(self, table), self._of_table(table)
            part = getattr(self, f"make_{'algorithm' if table == 'settings' else table}")()
            tables[table] = {} if table == "settings" else {"type": cls.__name__}
            for name in known:
                value = given[name] if name in given else getattr(part, name, None)
                if name != "type" and value is not None:
                    tables[table][name] = value
            if "memory" in given:
                tables[table].setdefault("memory_size", _MEMORY_SIZE)
        return self.replace(**tables, report_every=self.rows_every())

    def make_algorithm(self) -> Algorithm:
        """The algorithm with its hyper-parameters."""
        return ALGORITHMS[self.algorithm](**self.settings)

    def make_actor(self) -> Actor:
        """The actor, before it is built for an environment."""
        cls, _ = self._of_table("actor")
        fields = {name: value for name, value in self.actor.items() if name != "type"}
        for name in ("extractor", "critic_extractor"):
            if name in fields:
                fields[name] = _extractor(fields[name])
        size = fields.pop("memory_size", _MEMORY_SIZE)
        if "memory" in fields:
            fields["memory"] = MEMORIES[fields["memory"]](size)
        default = self.make_algorithm().default_actor()
        actor: Any = default if type(default) is cls else cls()
        return dataclasses.replace(actor, **fields)

    def make_storage(self) -> Storage:
        """The storage."""
        cls, _ = self._of_table("storage")
        fields = {name: value for name, value in self.storage.items() if name != "type"}
        default = self.make_algorithm().default_storage()
        storage: Any = default if type(default) is cls else cls()
        return dataclasses.replace(storage, **fields)

    def make_train(self, **overrides: Any) -> Train:
        """The training: `make_train`, with whatever it takes in place of what is written here.

        `env` is the environment itself, in place of the id.

        Raises:
            TrainingError, UnknownEnvironmentError: as by `make_train`.
        """
        env = overrides.pop("env", self.id)
        algorithm = overrides.pop("algorithm", None)
        arguments: dict[str, Any] = {
            "num_envs": self.num_envs,
            "unroll_length": self.unroll_length,
            "total_steps": self.total_steps,
            "report_every": self.rows_every(),
        }
        parts = {"actor": self.make_actor, "storage": self.make_storage}
        for name, make in parts.items():
            if name not in overrides:
                arguments[name] = make()
        algorithm = self.make_algorithm() if algorithm is None else algorithm
        return make_train(env, algorithm, **{**arguments, **overrides})

    def rows_every(self) -> int:
        """`report_every`, or what gives about 200 rows of metrics, if possible equal ones."""
        if self.report_every is not None:
            return self.report_every
        num_updates = -(-self.total_steps // (self.num_envs * self.unroll_length))
        wished = max(1, num_updates // _ROWS)
        near = range(-(-wished // 2), 2 * wished + 1)
        exact = [every for every in near if num_updates % every == 0]
        return min(exact, key=lambda every: abs(every - wished), default=wished)

    @classmethod
    def _of(cls, entries: Mapping[str, Any]) -> Self:
        names = [field.name for field in dataclasses.fields(cls)]
        for name in entries:
            if name not in names:
                raise TrainingError(
                    f'a configuration has no entry "{name}".{closest(name, names)}'
                    "  Hyper-parameters of the algorithm stand in the table [settings]."
                )
        return cls(**entries)

    def _of_table(self, table: str) -> tuple[type, dict[str, Any]]:
        """What a table describes, and the type of each of its settings."""
        algorithm = ALGORITHMS[self.algorithm]
        if table == "settings":
            return algorithm, _settings_of(algorithm)
        default, known = {
            "actor": (algorithm().default_actor, ACTORS),
            "storage": (algorithm().default_storage, STORAGES),
        }[table]
        given = getattr(self, table).get("type")
        cls = type(default()) if given is None else _named(table, given, known)
        return cls, {"type": str, **_settings_of(cls)}


def config_for(algorithm: str, id: str) -> Config:
    """The settings that were tuned for an id, else those of the algorithm in general.

    They stand in `tuned.toml`, beside this module, with what they reach. "gymnasium/CartPole-v1"
    is the same task as "CartPole-v1", and learns with its settings.

    Args:
        algorithm: "PPO", "A2C", "VPG", "DQN", "SAC" or "TD3", in either case.
        id: as `make_vec` takes it.

    Raises:
        TrainingError: there is no such algorithm; the message names the closest.

    Example:
        >>> config_for("ppo", "Pendulum-v1").settings["gamma"]
        0.9
    """
    name = _named("algorithm", algorithm, ALGORITHMS).__name__
    known = _tuned(name)
    entries = known.get(id.removeprefix("gymnasium/"), known["default"])
    return Config(id=id, algorithm=name, **entries)


def tuned() -> list[tuple[str, str]]:
    """The pairs of an algorithm and an id that have settings of their own."""
    return [(name, id) for name in ALGORITHMS for id in _tuned(name) if id != "default"]


@functools.cache
def _tuned(algorithm: str) -> dict[str, dict[str, Any]]:
    file = importlib.resources.files("jaxenvs.training") / "tuned.toml"
    return tomllib.loads(file.read_text())[algorithm]


def _named(kind: str, name: Any, known: Mapping[str, Any]) -> Any:
    """What is known under a name, in either case."""
    lowered = {each.lower(): each for each in known}
    if not isinstance(name, str) or name.lower() not in lowered:
        near = closest(name, known) if isinstance(name, str) else ""
        raise TrainingError(
            f"there is no {kind} {_told(name)}.{near}  Choose one of {', '.join(sorted(known))}."
        )
    return known[lowered[name.lower()]]


@functools.cache
def _settings_of(cls: type) -> dict[str, Any]:
    """The type of each setting of a part that a file can say."""
    hints = typing.get_type_hints(cls)
    known = {}
    for field in dataclasses.fields(cls):
        hint = hints[field.name]
        if issubclass(cls, nn.Module) and field.name in ("parent", "name"):
            continue  # flax's own
        if field.name == "memory":
            known |= {"memory": Literal[tuple(MEMORIES)], "memory_size": int}  # pyright: ignore[reportInvalidTypeForm]
        elif field.name in ("extractor", "critic_extractor"):
            known[field.name] = _Extractor
        elif not all(_is_callable(each) for each in _alternatives(hint)):
            known[field.name] = hint
    return known


class _Extractor:
    """The type of settings that `_extractor` understands."""


def _extractor(given: Any) -> Any:
    if isinstance(given, str):
        return _named("extractor", given, EXTRACTORS)()
    if not isinstance(given, Mapping):
        raise TrainingError(
            f"an actor got extractor={_told(given)}; it takes a name, or a table with a type and"
            " settings."
        )
    if "type" not in given:
        return {name: _extractor(each) for name, each in given.items()}
    cls = _named("extractor", given["type"], EXTRACTORS)
    known = _settings_of(cls)
    fields = {name: value for name, value in given.items() if name != "type"}
    return cls(**{name: _checked(cls.__name__, name, x, known) for name, x in fields.items()})


def _checked(owner: str, name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """`value` as the setting has it: lists become tuples, whole numbers floats."""
    if name not in known:
        raise TrainingError(f'{owner} has no setting "{name}".{closest(name, known)}')
    hint = known[name]
    if hint is _Extractor:
        _extractor(value)  # raises
        return value
    for expected in _alternatives(hint):
        fits, converted = _fit(value, expected)
        if fits:
            return converted
    kinds = " or ".join(_kind(each) for each in _alternatives(hint) if not _is_callable(each))
    raise TrainingError(f"{owner} got {name}={_told(value)}; it takes {kinds}.")


def _fit(value: Any, expected: Any) -> tuple[bool, Any]:
    if typing.get_origin(expected) is Literal:
        options = typing.get_args(expected)
        lowered = value.lower() if isinstance(value, str) else value
        return lowered in options, lowered
    if _is_sequence(expected):
        items = typing.get_args(expected)[0]
        if isinstance(value, str) or not isinstance(value, Sequence):
            return False, None
        fitted = [_fit(item, items) for item in value]
        return all(fits for fits, _ in fitted), tuple(item for _, item in fitted)
    if expected is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number, float(value) if is_number else None
    if expected is int:
        return isinstance(value, int) and not isinstance(value, bool), value
    if expected in (bool, str, types.NoneType):
        return isinstance(value, expected), value
    return False, None


def _alternatives(hint: Any) -> tuple[Any, ...]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _is_sequence(hint: Any) -> bool:
    return typing.get_origin(hint) in (tuple, list, collections.abc.Sequence)


def _is_callable(hint: Any) -> bool:
    return typing.get_origin(hint) is collections.abc.Callable or hint is types.NoneType


def _kind(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(f'"{each}"' for each in typing.get_args(hint))
    if _is_sequence(hint):
        items = {int: "whole numbers", float: "numbers", str: "texts"}
        return f"a list of {items[typing.get_args(hint)[0]]}"
    return {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}[hint]


def _told(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value!r}"


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _emitted(name)


def _emitted(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:_}" if abs(value) >= 10_000 else f"{value}"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f"{value}"
    if isinstance(value, str):  # escapes of JSON are escapes of TOML, which wants one more
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        entries = ", ".join(f"{_key(name)} = {_emitted(x)}" for name, x in value.items())
        return f"{{ {entries} }}" if entries else "{}"
    return f"[{', '.join(_emitted(item) for item in value)}]"
