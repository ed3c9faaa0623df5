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
import numpy as np

from jaxenvs import _entry_points, spaces, struct, wrappers
from jaxenvs.core import VectorEnv
from jaxenvs.errors import TrainingError, closest
from jaxenvs.factory import is_hosted, make, make_vec
from jaxenvs.training._settings import alternatives
from jaxenvs.training.actors import Actor, ActorCritic, ActorTwinQ, QNetwork
from jaxenvs.training.algorithms import A2C, DQN, PPO, SAC, TD3, VPG, Algorithm
from jaxenvs.training.anakin import Train, assemble, make_train
from jaxenvs.training.extractors import MLP, FixupCNN, ImpalaCNN, NatureCNN, SmallCNN
from jaxenvs.training.schemes.scheme import Central, Remote, Scheme, central, remote
from jaxenvs.training.storages import (
    GAE,
    Hindsight,
    PrioritizedReplay,
    Replay,
    Rollout,
    Storage,
    VTrace,
)
from jaxenvs.vector.vectorize import vectorize

ALGORITHMS = {cls.__name__: cls for cls in (A2C, DQN, PPO, SAC, TD3, VPG)}
ACTORS = {cls.__name__: cls for cls in (ActorCritic, ActorTwinQ, QNetwork)}
STORAGES = {
    cls.__name__: cls for cls in (GAE, Hindsight, PrioritizedReplay, Replay, Rollout, VTrace)
}
EXTRACTORS = {cls.__name__: cls for cls in (FixupCNN, ImpalaCNN, MLP, NatureCNN, SmallCNN)}
MEMORIES = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}
# Through these a policy sees and acts: they are there whenever it plays. The others make training
# harder or easier, and are gone afterwards.
_LENSES = {
    cls.__name__: cls
    for cls in (
        wrappers.AddRenderObservation,
        wrappers.ClipAction,
        wrappers.DiscretizeAction,
        wrappers.DtypeObservation,
        wrappers.FilterObservation,
        wrappers.FlattenObservation,
        wrappers.FrameStackObservation,
        wrappers.GrayscaleObservation,
        wrappers.RepeatAction,
        wrappers.RescaleAction,
        wrappers.RescaleObservation,
        wrappers.ResizeObservation,
        wrappers.TimeAwareObservation,
    )
}
WRAPPERS = _LENSES | {
    cls.__name__: cls
    for cls in (
        wrappers.ClipReward,
        wrappers.DelayObservation,
        wrappers.ScaleReward,
        wrappers.StickyAction,
        wrappers.TimeLimit,
    )
}

_MEMORY_SIZE = 128
_ROWS = 200  # of metrics, about, where `report_every` does not say how many
_GENERAL = ("default", "continuous")  # what is tuned for no id in particular
_TABLES = ("settings", "actor", "storage", "scheme")
_COUNTS = (
    *("num_envs", "unroll_length", "total_steps", "report_every"),
    *("save_every", "evaluate_every", "evaluation_episodes"),
)


@dataclasses.dataclass(frozen=True)
class Config:
    """What to learn, with which algorithm, and for how long. Nothing in it is an array.

    Each table may leave out whatever stays at its default. A setting that may be None, such as
    `max_gradient_norm`, is switched off by None or, in a file, by false. `settings` are
    hyper-parameters of the algorithm; `actor` and `storage` are those of the algorithm unless their
    entry `type` names another: `{"type": "PrioritizedReplay", "n_step": 3}`. Of an actor, `memory`
    is "gru" or "lstm", with as many units as `memory_size` says (128), and an extractor is a name,
    "NatureCNN", a table with a `type` and its settings, or a table of these for the entries of a
    Dict.

    `scheme` says where things run, with the fields of `Scheme`: `collection` and `gradients` are
    "central", "remote:4", "remote:4:async", or a table of what `remote` takes, such as
    {"workers": 4, "sync": False, "resources": {"num_cpus": 1}}. Then `num_envs` are those of each
    collector. Left out, all is one program.

    `wrappers` go around each instance, the first one innermost: a name, or a table with a `type`
    and its settings. Wrappers of rewards, StickyAction, DelayObservation and TimeLimit are for
    training alone; those through which a policy sees and acts stay when it plays. The numbers that
    a training wrapper lists under `batched` differ between instances: of a list, each number goes
    to an equal share of them, in order.

    Raises:
        TrainingError: a name is unknown, then the message names the closest; or a value is of
            another type than the setting.
    """

    id: str  # of the environment, as `make_vec` takes it; "module:Class" is one of your own
    algorithm: str  # "PPO", in either case
    num_envs: int  # instances that collect side by side
    unroll_length: int  # steps of each instance between two updates
    total_steps: int  # environment steps in all
    report_every: int | None = None  # updates that a row of metrics sums up; None: about 200 rows
    seed: int = 0  # of the key that everything random comes from
    save_every: int | None = None  # environment steps between checkpoints; None: one at the end
    evaluate_every: int | None = None  # environment steps between evaluations; None: there is none
    evaluation_episodes: int = 20  # of each evaluation, on environments of its own
    imports: Sequence[str] = ()  # modules that register the id
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the algorithm
    actor: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    storage: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scheme: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    wrappers: Sequence[Any] = ()  # around each instance, the first one innermost

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            if field.name not in (*_TABLES, "wrappers"):
                value = _checked("a configuration", field.name, getattr(self, field.name), hints)
                object.__setattr__(self, field.name, value)
        algorithm = _named("algorithm", self.algorithm, ALGORITHMS)
        object.__setattr__(self, "algorithm", algorithm.__name__)
        for name in _COUNTS:
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise TrainingError(
                    f"a configuration got {name}={getattr(self, name)}; it takes a number from 1"
                    " on."
                )
        if not 0 <= self.seed < 2**32:
            raise TrainingError(
                f"a configuration got seed={self.seed}; it takes a number from 0 to {2**32 - 1}."
            )
        for table in _TABLES:
            given = getattr(self, table)
            if not isinstance(given, Mapping):
                raise TrainingError(
                    f"a configuration got {table}={_told(given)}; it takes a table of names"
                    " and values."
                )
            cls, known = self._of_table(table)
            checked = {}
            for name, value in given.items():
                if name == "type" and name in known:
                    checked[name] = cls.__name__
                elif (value is None or value is False) and _may_be_off(known.get(name)):
                    checked |= {name: False} if getattr(cls, name, None) is not None else {}
                elif value is not None:
                    checked[name] = _checked(cls.__name__, name, value, known)
            object.__setattr__(self, table, checked)
        if isinstance(self.wrappers, str | Mapping) or not isinstance(self.wrappers, Sequence):
            raise TrainingError(
                f"a configuration got wrappers={_told(self.wrappers)}; it takes a list of names and"
                " of tables with a type and settings."
            )
        object.__setattr__(self, "wrappers", tuple(_wrapper(each) for each in self.wrappers))

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
            text = Path(path).read_text(encoding="utf-8")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise TrainingError(f'there is no configuration at "{path}".') from error
        except OSError as error:
            raise TrainingError(f'"{path}" cannot be read: {error.strerror}.') from error
        except UnicodeDecodeError as error:
            raise TrainingError(
                f'"{path}" is no TOML: {error}.  Pass a text file in UTF-8.'
            ) from error
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
        path.write_text(self.to_toml(), encoding="utf-8")
        return path

    def to_toml(self) -> str:
        """The configuration as the text of a TOML file. What is None is left out."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        lines = [
            f"{_key(name)} = {_emitted(value)}"
            for name, value in fields.items()
            if name not in (*_TABLES, "wrappers") and value not in (None, ())
        ]
        tables = [(f"[{name}]", fields[name]) for name in _TABLES if fields[name]]
        for header, entries in [*tables, *(("[[wrappers]]", each) for each in self.wrappers)]:
            lines += ["", header]
            lines += [f"{_key(name)} = {_emitted(value)}" for name, value in entries.items()]
        return "\n".join(lines) + "\n"

    def replace(self, **changes: Any) -> Self:
        """A copy with other entries; a table that is given replaces the whole table.

        Raises:
            TrainingError: as by the constructor; or there is no such entry.
        """
        return type(self)._of({**vars(self), **changes})

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """A copy in which single settings differ.

        They are named as "gamma", "actor.hidden_sizes" or "storage.n_step"; None switches one off
        that may be None, and puts others back to their default. With another "storage.type" or
        "actor.type" the rest of that table goes.

        Raises:
            TrainingError: as by the constructor; or there is no such setting, then the message
                says in which table there is one.
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
                    " scheme.NAME, or NAME alone for a hyper-parameter of the algorithm."
                )
            if "." not in dotted:
                self._check_is_own(dotted)
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
        for table in ("settings", "actor", "storage"):
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

    @property
    def is_hosted(self) -> bool:
        """Whether the environments are not JAX; imports what it takes to know.

        Raises:
            UnknownEnvironmentError: a module is not there, or not what is looked for in it.
        """
        for name in self.imports:
            _entry_points.import_module(name, f"imports={list(self.imports)}")
        return is_hosted(self.id)

    def make_algorithm(self) -> Algorithm:
        """The algorithm with its hyper-parameters."""
        return ALGORITHMS[self.algorithm](**self._fields("settings")[1])

    def make_actor(self) -> Actor:
        """The actor, before it is built for an environment."""
        cls, fields = self._fields("actor")
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
        cls, fields = self._fields("storage")
        default = self.make_algorithm().default_storage()
        storage: Any = default if type(default) is cls else cls()
        return dataclasses.replace(storage, **fields)

    def make_env(self, num_envs: int | None = None, *, training: bool = True) -> VectorEnv:
        """The instances inside their wrappers; a hosted environment has to be closed.

        Args:
            num_envs: N; None takes the configuration's.
            training: whether it is to be learned in; else without the wrappers for training alone.

        Raises:
            UnknownEnvironmentError: `id` is not registered.
            TrainingError, WrapperError: a wrapper does not fit; the message says why.
        """
        number = self.num_envs if num_envs is None else num_envs
        if self.is_hosted:
            env = make_vec(self.id, number)
            try:
                return self.wrapped(env, training=training)
            except BaseException:
                env.close()  # pyright: ignore[reportAttributeAccessIssue] it is hosted
                raise
        batched = self._batched() if training else ()
        env = self.wrapped(make(self.id), training=training, num_envs=number)
        return vectorize(env, number, batched=batched)

    def wrapped(self, env: Any, *, training: bool, num_envs: int | None = None) -> Any:
        """An environment, single or vectorized, inside the wrappers, as `make_env` says.

        Args:
            env: what is wrapped.
            training: as in `make_env`.
            num_envs: how many instances `env` will have, where settings differ between them.

        Raises:
            TrainingError: settings differ between instances that nobody can tell apart.
        """
        for each in self.wrappers:
            cls: Any = WRAPPERS[each["type"]]
            if not training and cls.__name__ not in _LENSES:
                continue
            batched = each.get("batched", ())
            if batched and (num_envs is None or isinstance(env, VectorEnv)):
                raise TrainingError(
                    f"the wrapper {cls.__name__} got batched={list(batched)} around {env!r:.80},"
                    " whose instances are not its own to tell apart.  Give all of them the same"
                    " number."
                )
            settings: dict[str, Any] = {
                name: _spread(value, num_envs) if name in batched else _field(cls, name, value)
                for name, value in each.items()
                if name not in ("type", "batched")
            }
            env = env.wrap(cls, **settings)
        return env

    def make_scheme(self) -> Scheme:
        """The training as a scheme, for a `Learner`.

        Raises:
            TrainingError: the choices contradict each other; the message says which.
        """
        is_native, env = not self.is_hosted, self.id
        if self.wrappers or (is_native and (self.imports or ":" in self.id)):
            # What other processes would have to look up is made here.
            is_one = is_native and not self._batched()
            env = self.wrapped(make(self.id), training=True) if is_one else self.make_env
        places: dict[str, Any] = {
            name: _place(name, value) if name in _PLACES else value
            for name, value in self.scheme.items()
        }
        return Scheme(
            env=env,
            algorithm=self.make_algorithm(),
            actor=self.make_actor(),
            storage=self.make_storage(),
            num_envs=self.num_envs,
            unroll_length=self.unroll_length,
            **places,
        )

    def make_train(self, **overrides: Any) -> Train:
        """The training: `make_train`, with whatever it takes in place of what is written here.

        `env` is the environment itself, in place of the id and its wrappers. A scheme is left out.

        Raises:
            TrainingError, UnknownEnvironmentError, WrapperError: as by `make_train` and `make_env`.
        """
        return self._train(make_train, overrides)

    def assemble(self, **overrides: Any) -> Train:
        """As `make_train`, but whatever the sizes are: to read weights for, or to check a scheme.

        Of a scheme, an update learns from what all collectors bring; so what one of them brings
        need not be cut into the minibatches.

        Raises:
            TrainingError, UnknownEnvironmentError, WrapperError: as by `make_train` and `make_env`.
        """
        return self._train(assemble, overrides)

    def _train(self, make: Any, overrides: dict[str, Any]) -> Train:
        num_envs = overrides.get("num_envs", self.num_envs)
        env = overrides.pop("env") if "env" in overrides else self._env(num_envs)
        algorithm = overrides.pop("algorithm", None)
        arguments: dict[str, Any] = {
            "num_envs": self.num_envs,
            "unroll_length": self.unroll_length,
            "total_steps": self.total_steps,
            "report_every": self.rows_every(),
        }
        parts = {"actor": self.make_actor, "storage": self.make_storage}
        for name, make_part in parts.items():
            if name not in overrides:
                arguments[name] = make_part()
        algorithm = self.make_algorithm() if algorithm is None else algorithm
        return make(env, algorithm, **{**arguments, **overrides})

    def rows_every(self) -> int:
        """`report_every`, or what gives about 200 rows of metrics, if possible equal ones."""
        if self.report_every is not None:
            return self.report_every
        collectors = 1
        for name in _PLACES:
            place = _place(name, self.scheme.get(name, "central"))
            if name == "gradients" or place.sync:  # others are learned from one by one
                collectors *= place.n
        num_updates = -(-self.total_steps // (self.num_envs * self.unroll_length * collectors))
        wished = max(1, num_updates // _ROWS)
        near = range(-(-wished // 2), 2 * wished + 1)
        exact = [every for every in near if num_updates % every == 0]
        return min(exact, key=lambda every: abs(every - wished), default=wished)

    def _env(self, num_envs: int) -> Any:
        _ = self.is_hosted  # which imports
        return self.make_env(num_envs) if self.wrappers else self.id

    def _check_is_own(self, name: str) -> None:
        """Raises where a setting is none of the algorithm's, but of another table."""
        if name in self._of_table("settings")[1]:
            return
        others = [f"{table}.{name}" for table in _TABLES[1:] if name in self._of_table(table)[1]]
        if others:
            raise TrainingError(
                f'{self.algorithm} has no setting "{name}".  Write {" or ".join(others)}.'
            )

    def _batched(self) -> tuple[str, ...]:
        """The settings of wrappers that differ between instances."""
        return tuple(name for each in self.wrappers for name in each.get("batched", ()))

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

    def _fields(self, table: str) -> tuple[Any, dict[str, Any]]:
        """What a table describes, and its settings as they are there."""
        cls, known = self._of_table(table)
        given = {name: value for name, value in getattr(self, table).items() if name != "type"}
        return cls, {
            name: None if value is False and _may_be_off(known[name]) else value
            for name, value in given.items()
        }

    def _of_table(self, table: str) -> tuple[type, dict[str, Any]]:
        """What a table describes, and the type of each of its settings."""
        algorithm = ALGORITHMS[self.algorithm]
        if table == "settings":
            return algorithm, _settings_of(algorithm)
        if table == "scheme":
            return Scheme, _SCHEME
        default, known = {
            "actor": (algorithm().default_actor, ACTORS),
            "storage": (algorithm().default_storage, STORAGES),
        }[table]
        given = getattr(self, table).get("type")
        cls = type(default()) if given is None else _named(table, given, known)
        return cls, {"type": str, **_settings_of(cls)}


def config_for(algorithm: str, id: str, imports: Sequence[str] = ()) -> Config:
    """The settings that were tuned for an id, else those of the algorithm for such actions.

    They stand in `tuned.toml`, beside this module, with what they reach. "gymnasium/CartPole-v1"
    is the same task as "CartPole-v1", and learns with its settings, unless these have wrappers that
    differ between instances.

    Args:
        algorithm: "PPO", "A2C", "VPG", "DQN", "SAC" or "TD3", in either case.
        id: as `make_vec` takes it.
        imports: modules that register it.

    Raises:
        TrainingError: there is no such algorithm; the message names the closest.
        UnknownEnvironmentError: a module is not there.

    Example:
        >>> config_for("ppo", "Pendulum-v1").settings["gamma"]
        0.9
    """
    name = _named("algorithm", algorithm, ALGORITHMS).__name__
    for module in imports:
        _entry_points.import_module(module, f"imports={list(imports)}")
    known = _tuned(name)
    entries = known.get(id.removeprefix("gymnasium/"), {})
    if is_hosted(id) and any("batched" in each for each in entries.get("wrappers", ())):
        entries = {}  # its instances cannot be told apart
    entries = entries or _general(name, id)
    return Config(id=id, algorithm=name, imports=tuple(imports), **entries)


def _general(algorithm: str, id: str) -> dict[str, Any]:
    """The settings for ids that have none, after a look at the spaces where these matter."""
    known, cls = _tuned(algorithm), ALGORITHMS[algorithm]
    if "continuous" not in known:
        return known["default"]
    params: Any = {"backend": "serial"} if is_hosted(id) else {}
    try:
        env: Any = make_vec(id, 1, **params)
    except Exception:  # who trains in it is told
        return known["default"]
    seen, acted = env.single_observation_space, env.single_action_space
    if is_hosted(id):
        env.close()
    if not isinstance(acted, spaces.Box):
        return known["default"]
    chosen, usual = vars(cls.for_spaces(seen, acted)), vars(cls())
    settings = {name: value for name, value in chosen.items() if value != usual[name]}
    return {**known["continuous"], "settings": settings}


def tuned() -> list[tuple[str, str]]:
    """The pairs of an algorithm and an id that have settings of their own."""
    return [(name, id) for name in ALGORITHMS for id in _tuned(name) if id not in _GENERAL]


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
        elif not all(_is_callable(each) for each in alternatives(hint)):
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


class _Place:
    """The type of settings that `_place` understands."""


_PLACES = ("collection", "gradients")
_SCHEME: dict[str, Any] = {
    "collection": _Place,
    "gradients": _Place,
    "update": Literal["centralized", "decentralized"],
    "fraction_workers": float,
    "fraction_samples": float,
}


def _place(name: str, given: Any) -> Central | Remote:
    """Where collection or gradients are done."""
    if isinstance(given, str):
        match given.lower().split(":"):
            case ["central"]:
                return central()
            case ["remote", number, *rest] if rest in ([], ["sync"], ["async"]):
                if number.isdecimal():
                    return remote(int(number), sync=rest != ["async"])
    elif isinstance(given, Mapping) and "workers" in given:
        known = {"workers": int, "sync": bool, "resources": Mapping}
        for key, value in given.items():
            if key not in known:
                raise TrainingError(f'{name} has no setting "{key}".{closest(key, known)}')
            if not isinstance(value, known[key]):
                raise TrainingError(f"{name} got {key}={_told(value)}.  {_PLACE_HINT}")
        options = {key: value for key, value in given.items() if key != "workers"}
        return remote(given["workers"], **options)
    raise TrainingError(f"a scheme got {name}={_told(given)}.  {_PLACE_HINT}")


_PLACE_HINT = (
    'Write "central", "remote:4" or "remote:4:async"; or, for actors of Ray,'
    " { workers = 4, sync = false, resources = { num_cpus = 1 } }."
)


def _wrapper(given: Any) -> dict[str, Any]:
    """The table of a wrapper, checked: `type`, settings, and `batched` if there are any."""
    table = {"type": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or "type" not in table:
        raise TrainingError(
            f"a configuration got the wrapper {_told(given)}; it takes a name, or a table with a"
            " type and settings."
        )
    cls = _named("wrapper", table["type"], WRAPPERS)
    name, known = cls.__name__, _wrapper_settings(cls)
    known = {**known, "batched": Sequence[str]}
    checked = {"type": name}
    checked |= {key: _checked(name, key, x, known) for key, x in table.items() if key != "type"}
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.name in known
        and field.name not in checked
        and field.default is dataclasses.MISSING
    ]
    if missing:
        raise TrainingError(f"the wrapper {name} got no {' and no '.join(missing)}.")
    for each in checked.get("batched", ()):
        can = [key for key, hint in known.items() if hint == _NUMBERS and name not in _LENSES]
        if each not in can or not isinstance(checked.get(each), tuple):
            told = f"a list of numbers as {', '.join(can)}" if can else "no settings"
            raise TrainingError(
                f'the wrapper {name} got batched=["{each}"]; {told} can differ between instances.'
            )
    return checked


_NUMBERS = float | Sequence[float]


@functools.cache
def _wrapper_settings(cls: type) -> dict[str, Any]:
    """The type of each setting of a wrapper that a file can say."""
    hints = typing.get_type_hints(cls)
    known: dict[str, Any] = {}
    for field in dataclasses.fields(cls):
        is_array = np.ndarray in alternatives(hints[field.name])
        if field.name == "dtype":
            known["dtype"] = str
        elif field.name != "env":
            known[field.name] = _NUMBERS if is_array else hints[field.name]
    return known


def _field(cls: type, name: str, value: Any) -> Any:
    """A setting as the wrapper has it: several numbers are an array, unless they are static."""
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)
    is_array = isinstance(value, tuple) and not struct.is_static(field)
    return np.asarray(value, np.float32) if is_array else value


def _spread(values: Sequence[float], num_envs: Any) -> np.ndarray:
    """float32[N]: of K numbers, the first for the first N/K instances, and so on."""
    return np.asarray(values, np.float32)[np.arange(num_envs) * len(values) // num_envs]


def _checked(owner: str, name: str, value: Any, known: Mapping[str, Any]) -> Any:
    """`value` as the setting has it: lists become tuples, whole numbers floats."""
    if name not in known:
        raise TrainingError(f'{owner} has no setting "{name}".{closest(name, known)}')
    hint = known[name]
    if hint is _Extractor:
        _extractor(value)  # raises
        return value
    if hint is _Place:
        _place(name, value)  # raises
        return value.lower() if isinstance(value, str) else value
    for expected in alternatives(hint):
        fits, converted = _fit(value, expected)
        if fits:
            return converted
    kinds = " or ".join(_kind(each) for each in alternatives(hint) if not _is_callable(each))
    kinds += " or false" if _may_be_off(hint) else ""
    raise TrainingError(f"{owner} got {name}={_told(value)}; it takes {kinds}.")


def _may_be_off(hint: Any) -> bool:
    """Whether a setting may be None, which a file writes as false."""
    options = alternatives(hint)
    return types.NoneType in options and bool not in options


def _fit(value: Any, expected: Any) -> tuple[bool, Any]:
    if typing.get_origin(expected) is Literal:
        options = typing.get_args(expected)
        lowered = value.lower() if isinstance(value, str) else value
        return lowered in options, lowered
    if _is_sequence(expected):
        items = alternatives(typing.get_args(expected)[0])
        if isinstance(value, str) or not isinstance(value, Sequence):
            return False, None
        tried = [[_fit(item, each) for each in items] for item in value]
        fitted = [next((fit for fit in fits if fit[0]), (False, None)) for fits in tried]
        return all(fits for fits, _ in fitted), tuple(item for _, item in fitted)
    if expected is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number, float(value) if is_number else None
    if expected is int:
        if isinstance(value, float) and value.is_integer():  # 1e6
            return True, int(value)
        return isinstance(value, int) and not isinstance(value, bool), value
    if expected in (bool, str, types.NoneType):
        return isinstance(value, expected), value
    return False, None


def _is_sequence(hint: Any) -> bool:
    return typing.get_origin(hint) in (tuple, list, collections.abc.Sequence)


def _is_callable(hint: Any) -> bool:
    return typing.get_origin(hint) is collections.abc.Callable or hint is types.NoneType


def _kind(hint: Any) -> str:
    if typing.get_origin(hint) is Literal:
        return " or ".join(f'"{each}"' for each in typing.get_args(hint))
    if _is_sequence(hint):
        items = {int: "whole numbers", float: "numbers", str: "texts"}
        kinds = alternatives(typing.get_args(hint)[0])
        return f"a list of {' or '.join(items[each] for each in kinds)}"
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
