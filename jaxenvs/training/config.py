"""Training configurations, read from and written to TOML.

config = config_for("ppo", "CartPole-v1")  # the settings of tuned.toml
result = jax.jit(config.make_train())(jax.random.key(config.seed))
"""

import dataclasses
import functools
import importlib.resources
import re
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import flax.linen as nn
import numpy as np

from jaxenvs import _entry_points, spaces, struct, wrappers
from jaxenvs.core import Environment, VectorEnv, Wrapper
from jaxenvs.errors import (
    TrainingError,
    UnknownEnvironmentError,
    check_integer,
    closest,
    missing_extra,
)
from jaxenvs.factory import is_hosted, make, make_vec
from jaxenvs.training._validation import options, quoted, validate
from jaxenvs.training.actors import Actor, ActorCritic, ActorTwinQ, QNetwork
from jaxenvs.training.algorithms import A2C, DQN, PPO, PQN, SAC, TD3, VPG, Algorithm
from jaxenvs.training.extractors import MLP, FixupCNN, ImpalaCNN, NatureCNN, SmallCNN
from jaxenvs.training.schemes.scheme import Central, Remote, Scheme, central, remote
from jaxenvs.training.storages import (
    GAE,
    DiscountedReturns,
    HindsightReplay,
    OnPolicyStorage,
    PrioritizedReplay,
    Replay,
    Storage,
    VTrace,
)
from jaxenvs.training.train_program import Train, assemble, make_train
from jaxenvs.vector.vectorize import vectorize


def _by_name(*classes: type) -> dict[str, Any]:
    return {cls.__name__: cls for cls in classes}


ALGORITHMS = _by_name(A2C, DQN, PPO, PQN, SAC, TD3, VPG)
ACTORS = _by_name(ActorCritic, ActorTwinQ, QNetwork)
STORAGES = _by_name(GAE, HindsightReplay, PrioritizedReplay, Replay, DiscountedReturns, VTrace)
EXTRACTORS = _by_name(FixupCNN, ImpalaCNN, MLP, NatureCNN, SmallCNN)
MEMORIES = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}
# A policy sees and acts through the other wrappers, so evaluation keeps them.
_TRAINING_WRAPPERS: tuple[type, ...] = (
    wrappers.AddRewardNoise,
    wrappers.ClipReward,
    wrappers.DelayObservation,
    wrappers.ScaleReward,
    wrappers.StickyAction,
    wrappers.TimeLimit,
)
WRAPPERS = _by_name(
    *_TRAINING_WRAPPERS,
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

# The parts that have names, and the class of those of your own.
_KINDS: dict[str, tuple[dict[str, Any], type]] = {
    "algorithm": (ALGORITHMS, Algorithm),
    "actor": (ACTORS, Actor),
    "storage": (STORAGES, Storage),
    "extractor": (EXTRACTORS, nn.Module),
    "wrapper": (WRAPPERS, Wrapper),
}
_MEMORY_SIZE = 128
_ROWS = 200  # approximate number of rows of metrics if `report_every` is None
_GENERAL = ("default", "continuous", "bsuite")  # tables of tuned.toml that are not for one id
_PARTS = ("settings", "actor", "storage", "scheme")
_TABLES = (*_PARTS, "env")
_COUNTS = (
    *("num_envs", "unroll_length", "total_steps", "report_every"),
    *("save_every", "evaluate_every", "evaluation_episodes"),
)
_NUMBERS = float | Sequence[float]


@dataclasses.dataclass(frozen=True)
class Config:
    """The configuration of a training run: the task, the algorithm, and the number of steps.

    Settings that a table omits have their defaults. To disable a setting that may be None, such as
    `max_gradient_norm`, set it to None, or to false in a file. `settings` holds the algorithm's
    hyperparameters. `actor` and `storage` default to those of the algorithm; the entry `type`
    selects another: `{"type": "PrioritizedReplay", "n_step": 3}`. The `memory` of an actor is "gru"
    or "lstm", with `memory_size` units (128). An extractor is a name such as "NatureCNN", a table
    with a `type` and its settings, or a table of these for the entries of a Dict.

    Instead of a name, `algorithm` and every `type` can be "module:Class" or "file.py:Class", for a
    part of your own.

    `env` holds parameters of the environment, which `make` takes, or `make_vec` if it is hosted.

    `scheme` has the fields of `Scheme`. `collection` and `gradients` are "central", "remote:4",
    "remote:4:async", or a table of the arguments of `remote`, such as
    {"workers": 4, "sync": False, "resources": {"num_cpus": 1}}. `num_envs` is then the number per
    collector. Without a scheme, everything is one program.

    `wrappers` are applied to each instance, the innermost first: a name, or a table with a `type`
    and its settings. Reward wrappers, StickyAction, DelayObservation, and TimeLimit apply to
    training only, and so do classes that extend one of these. Evaluation keeps the others, because
    the policy sees and acts through them. A training wrapper can list settings under `batched`;
    these differ between instances, and each number of the list applies to an equal share of them,
    in order.

    Raises:
        TrainingError: a name is unknown (the message suggests the closest), or a value has the
            wrong type.
    """

    id: str  # of the environment, as `make_vec` takes it; "module:Class" is one of your own
    algorithm: str  # "PPO", in either case; "module:Class" is one of your own
    num_envs: int  # instances that collect in parallel
    unroll_length: int  # steps of each instance between two updates
    total_steps: int  # total environment steps
    report_every: int | None = None  # updates per row of metrics; None: about 200 rows
    seed: int = 0  # of the key from which everything random is derived
    save_every: int | None = None  # environment steps between checkpoints; None: one at the end
    evaluate_every: int | None = None  # environment steps between evaluations; None: no evaluation
    evaluation_episodes: int = 20  # of each evaluation, in separate environments
    imports: Sequence[str] = ()  # modules that register the id
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the algorithm
    actor: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    storage: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scheme: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    env: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # its parameters
    wrappers: Sequence[Any] = ()  # around each instance, the innermost first

    def __post_init__(self) -> None:
        given = vars(self).copy()
        fields = {name: hint for name, hint in _hints(type(self)).items() if name not in _TABLES}
        scalars = {name: given[name] for name in fields if name != "wrappers"}
        checked = validate("a configuration", fields, scalars)
        algorithm = _find("algorithm", checked["algorithm"])
        vars(self).update(checked, algorithm=_name_of(algorithm, checked["algorithm"]))
        for name in _COUNTS:
            if checked[name] is not None:
                check_integer(TrainingError, f"a configuration got {name}", checked[name])
        if not 0 <= self.seed < 2**32:
            raise TrainingError(
                f"a configuration got seed={self.seed}; it takes a number from 0 to {2**32 - 1}."
            )
        for table in _TABLES:
            if not isinstance(given[table], Mapping):
                raise TrainingError(
                    f"a configuration got {table}={quoted(given[table])}; it takes a table of names"
                    " and values."
                )
            vars(self)[table] = dict(given[table]) if table == "env" else self._checked_table(table)
        if isinstance(self.wrappers, str | Mapping) or not isinstance(self.wrappers, Sequence):
            raise TrainingError(
                f"a configuration got wrappers={quoted(self.wrappers)}; it takes a list of names"
                " and of tables with a type and settings."
            )
        vars(self)["wrappers"] = tuple(_checked_wrapper(each) for each in self.wrappers)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads a TOML file, written by `write` or by hand.

        `id` and `algorithm` are required. Missing sizes have the general values of the algorithm,
        and missing settings have their defaults. Settings tuned for the id are not added.

        Raises:
            TrainingError: the file cannot be read, is not TOML, or a value is wrong.
        """
        try:
            entries = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
            raise TrainingError(f'there is no configuration at "{path}".') from error
        except OSError as error:
            raise TrainingError(f'"{path}" cannot be read: {error.strerror}.') from error
        except UnicodeDecodeError as error:
            raise TrainingError(
                f'"{path}" is not TOML: {error}.  Pass a text file in UTF-8.'
            ) from error
        except tomllib.TOMLDecodeError as error:
            raise TrainingError(f'"{path}" is not TOML: {error}.') from error
        try:
            missing = [name for name in ("id", "algorithm") if name not in entries]
            if missing:
                raise TrainingError(
                    f'a configuration got no {" and no ".join(missing)}.  Write algorithm = "PPO"'
                    ' and id = "CartPole-v1", for instance.'
                )
            default = _tuned(_find("algorithm", entries["algorithm"]))
            sizes = {name: x for name, x in default["default"].items() if name not in _TABLES}
            return cls._of({**sizes, **entries})
        except TrainingError as error:
            raise TrainingError(f'in "{path}": {error}') from error

    def write(self, path: str | Path) -> Path:
        """Writes the configuration as TOML, for `read`. Creates missing folders."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_toml(), encoding="utf-8")
        return path

    def to_toml(self) -> str:
        """Returns the configuration as TOML, without entries that are None or empty."""
        try:
            import tomli_w
        except ImportError as error:
            raise missing_extra("Writing a configuration", "tomli_w", "train") from error
        entries = {name: x for name, x in vars(self).items() if x not in (None, (), {})}
        return tomli_w.dumps(entries)

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with some entries changed.

        A table replaces the whole old table; `with_settings` changes single settings.

        Raises:
            TrainingError: there is no such entry, or the constructor refuses its value.
        """
        return type(self)._of({**vars(self), **changes})

    def with_settings(self, changes: Mapping[str, Any]) -> Self:
        """Returns a copy with single settings changed.

        Names are like "gamma", "actor.hidden_sizes", or "storage.n_step". None disables a setting
        that may be None, and resets others to their defaults. A new "storage.type" or "actor.type"
        drops the other entries of that table.

        Raises:
            TrainingError: there is no such setting (the message names the table that has it), or
                the constructor refuses its value.
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
                    " scheme.NAME, env.NAME, or NAME alone for a hyperparameter of the algorithm."
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
        """Returns a copy with every setting explicit, including defaults.

        A file of it describes the same training run even if a default changes.
        """
        tables = {}
        parts: dict[str, Callable[[], Any]] = {
            "settings": self.make_algorithm,
            "actor": self.make_actor,
            "storage": self.make_storage,
        }
        for table, make_part in parts.items():
            given, (cls, known), part = getattr(self, table), self._of_table(table), make_part()
            tables[table] = {name: given[name] for name in ("type",) if name in given}
            if table != "settings" and cls in _KINDS[table][0].values():
                tables[table]["type"] = cls.__name__  # the default of your own algorithm has none
            for name in known:
                value = given[name] if name in given else getattr(part, name, None)
                if name != "type" and value is not None:
                    tables[table][name] = value
            if "memory" in given:
                tables[table].setdefault("memory_size", _MEMORY_SIZE)
        return self.replace(**tables, report_every=self.rows_every())

    @property
    def is_hosted(self) -> bool:
        """Whether the environments are not JAX; imports the modules that register them.

        Raises:
            UnknownEnvironmentError: a module, or a name in it, does not exist.
        """
        for name in self.imports:
            _entry_points.import_module(name, f"imports={list(self.imports)}")
        return is_hosted(self.id)

    def make_algorithm(self) -> Algorithm:
        """Returns the algorithm with its hyperparameters."""
        return _find("algorithm", self.algorithm)(**self._fields("settings")[1])

    def make_actor(self) -> Actor:
        """Returns the actor, before it is built for an environment."""
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
        """Returns the storage."""
        cls, fields = self._fields("storage")
        default = self.make_algorithm().default_storage()
        storage: Any = default if type(default) is cls else cls()
        return dataclasses.replace(storage, **fields)

    def make_env(self, num_envs: int | None = None, *, training: bool = True) -> VectorEnv:
        """Returns the instances inside their wrappers. Close a hosted environment after use.

        Args:
            num_envs: N; None takes that of the configuration.
            training: whether to include the wrappers that apply to training only.

        Raises:
            UnknownEnvironmentError: `id` is not registered.
            TrainingError, WrapperError: a wrapper does not fit; the message says why.
        """
        number = self.num_envs if num_envs is None else num_envs
        if self.is_hosted:
            env = make_vec(self.id, number, **self.env_parameters())
            try:
                return self.wrapped(env, training=training)
            except BaseException:
                env.close()  # pyright: ignore[reportAttributeAccessIssue] it is hosted
                raise
        batched = self._batched() if training else ()
        env = self.wrapped(self.make_instance(), training=training, num_envs=number)
        return vectorize(env, number, batched=batched)

    def make_instance(self) -> Environment:
        """Returns one native environment, without its wrappers."""
        return make(self.id, **self.env_parameters())

    def env_parameters(self) -> dict[str, Any]:
        """Returns the parameters of the environment, with tuples for the lists of a file."""
        return {name: tuple(x) if isinstance(x, list) else x for name, x in self.env.items()}

    def wrapped(self, env: Any, *, training: bool, num_envs: int | None = None) -> Any:
        """Wraps an environment, single or vectorized, see `make_env`.

        Args:
            env: the environment.
            training: as in `make_env`.
            num_envs: the number of instances that `env` will have, if settings are batched.

        Raises:
            TrainingError: settings are batched, but the instances cannot differ.
        """
        for each in self.wrappers:
            cls: Any = _find("wrapper", each["type"])
            if not training and issubclass(cls, _TRAINING_WRAPPERS):
                continue
            batched = each.get("batched", ())
            if batched and (num_envs is None or isinstance(env, VectorEnv)):
                raise TrainingError(
                    f"the wrapper {cls.__name__} got batched={list(batched)} around {env!r:.80},"
                    " whose instances cannot differ.  Give all of them the same number."
                )
            settings: dict[str, Any] = {
                name: _spread(value, num_envs) if name in batched else _field(cls, name, value)
                for name, value in each.items()
                if name not in ("type", "batched")
            }
            env = env.wrap(cls, **settings)
        return env

    def make_scheme(self) -> Scheme:
        """Returns a scheme for a `Learner`.

        Raises:
            TrainingError: the entries of the scheme contradict each other.
        """
        is_native, env = not self.is_hosted, self.id
        if self.wrappers or self.env or (is_native and (self.imports or ":" in self.id)):
            # Made here, since other processes might not find it.
            is_one = is_native and not self._batched()
            env = self.wrapped(self.make_instance(), training=True) if is_one else self.make_env
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
        """Calls `make_train` with this configuration; `overrides` are arguments of `make_train`.

        `env` replaces the id and its wrappers. The scheme is ignored.

        Raises:
            TrainingError, UnknownEnvironmentError, WrapperError: as by `make_train` and `make_env`.
        """
        return self._train(make_train, overrides)

    def assemble(self, **overrides: Any) -> Train:
        """Like `make_train`, without the checks of sizes; for reading weights or checking a scheme.

        Under a scheme, an update uses the data of all collectors, so one collector's share need not
        divide into minibatches.

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
        """Returns `report_every`, or updates per row for about 200 rows, equal if possible."""
        if self.report_every is not None:
            return self.report_every
        collectors = 1
        for name in _PLACES:
            place = _place(name, self.scheme.get(name, "central"))
            if name == "gradients" or place.sync:  # asynchronous ones are used one by one
                collectors *= place.n
        num_updates = -(-self.total_steps // (self.num_envs * self.unroll_length * collectors))
        wished = max(1, num_updates // _ROWS)
        near = range(-(-wished // 2), 2 * wished + 1)
        exact = [every for every in near if num_updates % every == 0]
        return min(exact, key=lambda every: abs(every - wished), default=wished)

    def _env(self, num_envs: int) -> Any:
        _ = self.is_hosted  # imports modules
        return self.make_env(num_envs) if self.wrappers or self.env else self.id

    def _check_is_own(self, name: str) -> None:
        """Raises an error if a setting belongs to another table."""
        if name in self._of_table("settings")[1]:
            return
        others = [f"{table}.{name}" for table in _PARTS[1:] if name in self._of_table(table)[1]]
        if others:
            raise TrainingError(
                f'{self.algorithm} has no setting "{name}".  Write {" or ".join(others)}.'
            )

    def _batched(self) -> tuple[str, ...]:
        """Returns the names of the wrapper settings that differ between instances."""
        return tuple(name for each in self.wrappers for name in each.get("batched", ()))

    @classmethod
    def _of(cls, entries: Mapping[str, Any]) -> Self:
        names = [field.name for field in dataclasses.fields(cls)]
        for name in entries:
            if name not in names:
                raise TrainingError(
                    f'a configuration has no entry "{name}".{closest(name, names)}'
                    "  Hyperparameters of the algorithm belong into the table [settings]."
                )
        return cls(**entries)

    def _checked_table(self, table: str) -> dict[str, Any]:
        """Returns a table with checked values. False disables an optional setting."""
        cls, known = self._of_table(table)
        given, checked, switched_off = getattr(self, table), {}, {}
        for name, value in given.items():
            if (value is None or value is False) and _is_optional(known.get(name)):
                if getattr(cls, name, None) is not None:
                    switched_off[name] = False
            elif value is not None:
                checked[name] = value
        checked = validate(cls.__name__, known, checked)
        if "type" in checked:
            checked["type"] = _name_of(cls, checked["type"])
        both = checked | switched_off
        return {name: both[name] for name in given if name in both}

    def _fields(self, table: str) -> tuple[Any, dict[str, Any]]:
        """Returns the class that a table describes, and its fields."""
        cls, known = self._of_table(table)
        fields = {name: value for name, value in getattr(self, table).items() if name != "type"}
        for name, value in fields.items():
            if value is False and _is_optional(known[name]):
                fields[name] = None
        return cls, fields

    def _of_table(self, table: str) -> tuple[type, dict[str, Any]]:
        """Returns the class that a table describes, and the type of each of its settings."""
        algorithm = _find("algorithm", self.algorithm)
        if table == "settings":
            return algorithm, _settings_of(algorithm)
        if table == "scheme":
            return Scheme, _SCHEME
        given = getattr(self, table).get("type")
        if given is None:
            cls = type(getattr(algorithm(), f"default_{table}")())
        else:
            cls = _find(table, given)
        return cls, {"type": str, **_settings_of(cls)}


def config_for(algorithm: str, id: str, imports: Sequence[str] = ()) -> Config:
    """Returns the settings tuned for an id, or the general settings of the algorithm.

    `tuned.toml`, next to this module, has them with the returns that they reach. A version without
    a table uses that of another version: "CartPole-v0" those of "CartPole-v1". What an id's table
    omits comes from that of its family, such as "MiniGrid-*". "gymnasium/CartPole-v1" uses the same
    tables without parameters of the environment, unless they have wrappers with batched settings.

    Args:
        algorithm: "PPO", "A2C", "VPG", "DQN", "PQN", "SAC" or "TD3", in either case; or
            "module:Class", which has the sizes of the algorithm that it extends, and those settings
            whose defaults are the same.
        id: as `make_vec` takes it.
        imports: modules that register it.

    Raises:
        TrainingError: there is no such algorithm; the message names the closest.
        UnknownEnvironmentError: a module does not exist.

    Example:
        >>> config_for("ppo", "Pendulum-v1").settings["gamma"]
        0.9
    """
    cls = _find("algorithm", algorithm)
    for module in imports:
        _entry_points.import_module(module, f"imports={list(imports)}")
    entries = _of_id(_tuned(cls), id.removeprefix("gymnasium/"))
    if is_hosted(id):
        entries.pop("env", None)
        if any("batched" in each for each in entries.get("wrappers", ())):
            entries = {}  # its instances cannot differ
    entries = entries or _general(cls, id)
    return Config(id=id, algorithm=algorithm, imports=tuple(imports), **entries)


def _of_id(known: Mapping[str, dict[str, Any]], id: str) -> dict[str, Any]:
    """Returns the settings of an id or another version of it, over those of its families."""
    task = _without_version(id)
    same = (entries for other, entries in known.items() if _without_version(other) == task)
    own = known.get(id, next(same, {}))
    families = [name for name in known if name.endswith("*") and id.startswith(name[:-1])]
    entries: dict[str, Any] = {}
    for more in (*(known[name] for name in sorted(families, key=len)), own):
        tables = [table for table in _TABLES if table in entries and table in more]
        entries |= more | {table: {**entries[table], **more[table]} for table in tables}
    return entries


def _without_version(id: str) -> str:
    return re.sub(r"-v\d+$", "", id)


def _general(cls: type[Algorithm], id: str) -> dict[str, Any]:
    """Returns settings for an id without tuned ones. Some depend on the spaces."""
    known = _tuned(cls)
    if "continuous" not in known:
        return known["default"]
    params: Any = {"backend": "serial"} if is_hosted(id) else {}
    try:
        env: Any = make_vec(id, 1, **params)
    except Exception:  # training will report it
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
    """Returns the pairs of an algorithm and an id with tuned settings."""
    return [
        (name, id)
        for name, cls in ALGORITHMS.items()
        for id in _tuned(cls)
        if id not in _GENERAL and not id.endswith("*")
    ]


@functools.cache
def _tuned(algorithm: type[Algorithm]) -> dict[str, dict[str, Any]]:
    """Returns the tables of an algorithm. Of your own one, those of the algorithm it extends.

    These have the settings whose defaults are the same. If it extends none, only sizes remain.
    """
    file = importlib.resources.files("jaxenvs.training") / "tuned.toml"
    known: Any = tomllib.loads(file.read_text())
    base = next((each for each in algorithm.__mro__ if each in ALGORITHMS.values()), None)
    if base is algorithm:
        return known[algorithm.__name__]
    if base is None:
        is_on_policy = issubclass(algorithm.storage_type, OnPolicyStorage)
        sizes = known["PPO" if is_on_policy else "DQN"]["default"]
        return {"default": {name: x for name, x in sizes.items() if name not in _TABLES}}
    mine, its = vars(algorithm()), vars(base())
    for entries in known[base.__name__].values():
        settings = entries.get("settings", {})
        entries["settings"] = {x: settings[x] for x in settings if mine.get(x) == its[x]}
    return known[base.__name__]


def _find(kind: str, name: Any) -> Any:
    """Returns the part with a name, ignoring case, or your own, "module:Class"."""
    known, base = _KINDS[kind]
    if isinstance(name, str) and ":" in name:
        try:
            found = _entry_points.load(name, f'{kind}="{name}"')
        except UnknownEnvironmentError as error:
            raise TrainingError(f"{error}") from error
        if not (isinstance(found, type) and issubclass(found, base)):
            raise TrainingError(
                f'there is no {kind} "{name}": it is {found!r:.60}; expected a subclass of'
                f" {base.__name__}."
            )
        return found
    lowered = {each.lower(): each for each in known}
    if not isinstance(name, str) or name.lower() not in lowered:
        near = closest(name, known) if isinstance(name, str) else ""
        raise TrainingError(
            f"there is no {kind} {quoted(name)}.{near}  Choose one of {', '.join(sorted(known))};"
            ' "module:Class" or "file.py:Class" is one of your own.'
        )
    return known[lowered[name.lower()]]


def _name_of(part: type, given: str) -> str:
    """Returns the name of a part that was found by the name `given`."""
    return given if ":" in given else part.__name__


def _is_optional(expected: Any) -> bool:
    """Returns whether a setting may be None, written as false in a file."""
    return types.NoneType in options(expected) and bool not in options(expected)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


@functools.cache
def _settings_of(cls: type) -> dict[str, Any]:
    """Returns the type of each setting of a part that a file can express."""
    known = {}
    for name, hint in _hints(cls).items():
        if issubclass(cls, nn.Module) and name in ("parent", "name"):
            continue  # flax's own
        if name == "memory":
            known |= {"memory": Literal[tuple(MEMORIES)], "memory_size": int}  # pyright: ignore[reportInvalidTypeForm]
        elif name in ("extractor", "critic_extractor"):
            known[name] = _extractor
        elif any(
            typing.get_origin(x) is not Callable for x in options(hint) if x is not types.NoneType
        ):
            known[name] = hint
    return known


def _extractor(given: Any) -> Any:
    """Returns the extractor described by a name or a table, or one per entry of a Dict."""
    if isinstance(given, str):
        return _find("extractor", given)()
    if not isinstance(given, Mapping):
        raise TrainingError(
            f"an actor got extractor={quoted(given)}; it takes a name, or a table with a type and"
            " settings."
        )
    if "type" not in given:
        return {name: _extractor(each) for name, each in given.items()}
    cls = _find("extractor", given["type"])
    fields = {name: value for name, value in given.items() if name != "type"}
    return cls(**validate(cls.__name__, _settings_of(cls), fields))


def _place(name: str, given: Any) -> Central | Remote:
    """Parses where collection or gradients run."""
    if isinstance(given, str):
        match given.lower().split(":"):
            case ["central"]:
                return central()
            case ["remote", number, *rest] if rest in ([], ["sync"], ["async"]):
                if number.isdecimal():
                    return remote(int(number), sync=rest != ["async"])
    elif isinstance(given, Mapping) and "workers" in given:
        fields = {"workers": int, "sync": bool, "resources": dict[str, Any]}
        checked = validate(name, fields, given)
        return remote(checked.pop("workers"), **checked)
    raise TrainingError(
        f'a scheme got {name}={quoted(given)}.  Write "central", "remote:4" or "remote:4:async";'
        " or, for actors of Ray, { workers = 4, sync = false, resources = { num_cpus = 1 } }."
    )


_PLACES = ("collection", "gradients")
_SCHEME: dict[str, Any] = {
    "collection": lambda given: _place("collection", given),
    "gradients": lambda given: _place("gradients", given),
    "update": Literal["centralized", "decentralized"],
    "fraction_workers": float,
    "fraction_samples": float,
}


def _checked_wrapper(given: Any) -> dict[str, Any]:
    """Returns the table of a wrapper, checked: `type`, settings, and perhaps `batched`."""
    table = {"type": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or "type" not in table:
        raise TrainingError(
            f"a configuration got the wrapper {quoted(given)}; it takes a name, or a table with a"
            " type and settings."
        )
    cls = _find("wrapper", table["type"])
    name, known = cls.__name__, _wrapper_settings(cls)
    settings = {key: value for key, value in table.items() if key != "type"}
    checked = validate(name, {**known, "batched": Sequence[str]}, settings)
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
        is_training = issubclass(cls, _TRAINING_WRAPPERS)
        can = [key for key, hint in known.items() if hint == _NUMBERS and is_training]
        if each not in can or not isinstance(checked.get(each), tuple):
            what = f"a list of numbers as {', '.join(can)}" if can else "no settings"
            raise TrainingError(
                f'the wrapper {name} got batched=["{each}"]; {what} can differ between instances.'
            )
    return {"type": _name_of(cls, table["type"]), **checked}


@functools.cache
def _wrapper_settings(cls: type) -> dict[str, Any]:
    """Returns the type of each setting of a wrapper that a file can express."""
    known: dict[str, Any] = {}
    for name, hint in _hints(cls).items():
        if name == "dtype":
            known["dtype"] = str
        elif name != "env":
            known[name] = _NUMBERS if {float, np.ndarray} & {*options(hint)} else hint
    return known


def _field(cls: type, name: str, value: Any) -> Any:
    """Returns a setting as the wrapper takes it: several numbers are an array unless static."""
    (field,) = (field for field in dataclasses.fields(cls) if field.name == name)
    is_array = isinstance(value, tuple) and not struct.is_static(field)
    return np.asarray(value, np.float32) if is_array else value


def _spread(values: Sequence[float], num_envs: Any) -> np.ndarray:
    """Returns float32[N]: of K numbers, the first for the first N/K instances, and so on."""
    return np.asarray(values, np.float32)[np.arange(num_envs) * len(values) // num_envs]
