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
from typing import Annotated, Any, Literal, Self

import flax.linen as nn
import numpy as np
import pydantic

from jaxenvs import _entry_points, spaces, wrappers
from jaxenvs.core import Environment, VectorEnv, Wrapper
from jaxenvs.errors import TrainingError, UnknownEnvironmentError, closest, missing_extra
from jaxenvs.factory import is_hosted, make, make_vec
from jaxenvs.training import actors, algorithms, extractors, storages
from jaxenvs.training._validation import options, quoted, validate
from jaxenvs.training.actors import Actor
from jaxenvs.training.algorithms import Algorithm
from jaxenvs.training.ranges import Count, Range
from jaxenvs.training.schemes.scheme import Central, Remote, Scheme, central, remote
from jaxenvs.training.storages import OnPolicyStorage, Storage
from jaxenvs.training.train_program import Train, assemble, make_train
from jaxenvs.vector.vectorize import vectorize


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
_KINDS: dict[str, tuple[dict[str, Any], type]] = {
    "algorithm": (ALGORITHMS, Algorithm),
    "actor": (_by_name(actors, "ActorCritic ActorTwinQ QNetwork"), Actor),
    "storage": (
        _by_name(storages, "DiscountedReturns GAE HindsightReplay PrioritizedReplay Replay VTrace"),
        Storage,
    ),
    "extractor": (_by_name(extractors, "FixupCNN ImpalaCNN MLP NatureCNN SmallCNN"), nn.Module),
    "wrapper": (_TRAINING_WRAPPERS | _OTHER_WRAPPERS, Wrapper),
}
_MEMORIES = {"gru": nn.GRUCell, "lstm": nn.OptimizedLSTMCell}
_MEMORY_SIZE = 128
_EXPRESSIBLE = int | float | str | tuple | list  # values that a file can express
_ROWS = 200  # approximate number of rows of metrics if `report_every` is None
_PARTS = ("settings", "actor", "storage", "scheme")
_TABLES = (*_PARTS, "env")
_NUMBERS = float | Sequence[float]
_Seed = Annotated[
    int, Range(f"takes a number from 0 to {2**32 - 1}", lambda value: 0 <= value < 2**32)
]


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
    num_envs: Count  # instances that collect in parallel
    unroll_length: Count  # steps of each instance between two updates
    total_steps: Count  # total environment steps
    report_every: Count | None = None  # updates per row of metrics; None: about 200 rows
    seed: _Seed = 0  # of the key from which everything random is derived
    save_every: Count | None = None  # environment steps between checkpoints; None: one at the end
    evaluate_every: Count | None = None  # environment steps between evaluations; None: none
    evaluation_episodes: Count = 20  # of each evaluation, in separate environments
    imports: Sequence[str] = ()  # modules that register the id
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of the algorithm
    actor: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    storage: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    scheme: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    env: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # its parameters
    wrappers: Sequence[Any] = ()  # around each instance, the innermost first

    def __post_init__(self) -> None:
        checked = validate("a configuration", _settings_of(type(self)), vars(self))
        vars(self).update({name: x for name, x in checked.items() if name not in _TABLES})
        vars(self).update(algorithm=_full_name("algorithm", self.algorithm), env=dict(self.env))
        for table in _PARTS:
            vars(self)[table] = _checked(self._class_of(table), getattr(self, table))
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
        except OSError as error:
            raise TrainingError(
                f'there is no configuration at "{path}" that can be read: {error.strerror}.'
            ) from error
        except ValueError as error:  # of tomllib or the encoding
            raise TrainingError(f'"{path}" is not TOML in UTF-8: {error}.') from error
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
            own = [each for each in _PARTS if names[0] in _settings_of(self._class_of(each))]
            if "." not in dotted and own and "settings" not in own:
                others = " or ".join(f"{each}.{dotted}" for each in own)
                raise TrainingError(f'{self.algorithm} has no setting "{dotted}".  Write {others}.')
            at = tables[table]
            for name in names[:-1]:
                below = at.get(name, {})
                at[name] = dict(below) if isinstance(below, Mapping) else {"type": below}
                at = at[name]
            at[names[-1]] = value
        return self.replace(**tables)

    def complete(self) -> Self:
        """Returns a copy with every setting explicit, including defaults.

        A file of it describes the same training run even if a default changes. Defaults of your own
        parts that no file can express, such as functions, remain those of the part.
        """
        tables = {}
        for table in ("settings", "actor", "storage"):
            part, given = self._make(table), getattr(self, table)
            known = {name: x for name, x in vars(part).items() if isinstance(x, _EXPRESSIBLE)}
            known |= given
            if table != "settings" and type(part) in _KINDS[table][0].values():
                known["type"] = type(part).__name__  # the default of your own algorithm has none
            if "memory" in given:
                known.setdefault("memory_size", _MEMORY_SIZE)
            names = [name for name in _settings_of(type(part)) if name in known]
            tables[table] = {name: known[name] for name in names}
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
        return self._make("settings")

    def make_actor(self) -> Actor:
        """Returns the actor, before it is built for an environment."""
        return self._make("actor")

    def make_storage(self) -> Storage:
        """Returns the storage."""
        return self._make("storage")

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
                env.close()
                raise
        batched = self._batched if training else ()
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
            if not training and issubclass(cls, (*_TRAINING_WRAPPERS.values(),)):
                continue
            settings = _arguments(cls, each)
            batched = settings.pop("batched", ())
            if batched and (num_envs is None or isinstance(env, VectorEnv)):
                raise TrainingError(
                    f"the wrapper {cls.__name__} got batched={list(batched)} around {env!r:.80},"
                    " whose instances cannot differ.  Give all of them the same number."
                )
            for name in batched:  # an equal share of the instances for each number, in order
                values, instances = settings[name], np.arange(num_envs or 0)
                settings[name] = values[instances * len(values) // instances.size]
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
            is_one = is_native and not self._batched
            env = self.wrapped(self.make_instance(), training=True) if is_one else self.make_env
        return Scheme(
            env=env,
            algorithm=self.make_algorithm(),
            actor=self.make_actor(),
            storage=self.make_storage(),
            num_envs=self.num_envs,
            unroll_length=self.unroll_length,
            **_arguments(Scheme, self.scheme),
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

    def _train(self, function: Any, overrides: dict[str, Any]) -> Train:
        def make_env() -> Any:
            _ = self.is_hosted  # imports modules
            is_plain = not (self.wrappers or self.env)
            return self.id if is_plain else self.make_env(overrides.get("num_envs"))

        parts: dict[str, Callable[[], Any]] = {
            "env": make_env,
            "algorithm": self.make_algorithm,
            "actor": self.make_actor,
            "storage": self.make_storage,
        }
        arguments = {name: make() for name, make in parts.items() if name not in overrides}
        for name in ("num_envs", "unroll_length", "total_steps"):
            arguments[name] = getattr(self, name)
        return function(**{**arguments, "report_every": self.rows_every(), **overrides})

    def rows_every(self) -> int:
        """Returns `report_every`, or updates per row for about 200 rows, equal if possible."""
        if self.report_every is not None:
            return self.report_every
        places = _arguments(Scheme, self.scheme)
        collection, gradients = (places.get(x, central()) for x in ("collection", "gradients"))
        # Asynchronous collectors are used one by one.
        collectors = gradients.n * (collection.n if collection.sync else 1)
        num_updates = -(-self.total_steps // (self.num_envs * self.unroll_length * collectors))
        wished = max(1, num_updates // _ROWS)
        near = range(-(-wished // 2), 2 * wished + 1)
        exact = [every for every in near if num_updates % every == 0]
        return min(exact, key=lambda every: abs(every - wished), default=wished)

    @property
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

    def _class_of(self, table: str) -> type:
        return Scheme if table == "scheme" else type(self._default(table))

    def _default(self, table: str) -> Any:
        """Returns the part that a table describes, with defaults."""
        algorithm: Any = _find("algorithm", self.algorithm)
        if table == "settings":
            return algorithm()
        default, given = getattr(self.make_algorithm(), f"default_{table}")(), getattr(self, table)
        cls = type(default) if given.get("type") is None else _find(table, given["type"])
        return default if type(default) is cls else cls()

    def _make(self, table: str) -> Any:
        """Returns the part that a table describes."""
        default = self._default(table)
        return dataclasses.replace(default, **_arguments(type(default), getattr(self, table)))


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
        if id not in ("default", "continuous", "bsuite") and not id.endswith("*")
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


def _full_name(kind: str, given: str) -> str:
    """Returns the name of a part in the usual case. Own parts keep theirs."""
    return given if ":" in f"{given}" else _find(kind, given).__name__


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
    cls = _find(kind, table["type"])
    settings = _checked(cls, table)
    missing = [
        field.name
        for field in dataclasses.fields(cls)
        if field.name in _settings_of(cls)
        and field.name not in settings
        and field.default is field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise TrainingError(f"the {kind} {cls.__name__} got no {' and no '.join(missing)}.")
    return cls, settings


def _extractor(given: Any) -> Any:
    """Returns the extractor described by a name or a table, or one per entry of a Dict."""
    if isinstance(given, Mapping) and "type" not in given:
        return {name: _extractor(each) for name, each in given.items()}
    cls, settings = _named("extractor", given)
    return cls(**_arguments(cls, settings))


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
    nn.RNNCellBase: Literal[tuple(_MEMORIES)],  # pyright: ignore[reportInvalidTypeForm]
    nn.Module: _EXTRACTOR,
    Central: _PLACE,
    np.dtype: str,
    np.ndarray: _NUMBERS,
}
# The fields that are not settings.
_HIDDEN: dict[type, Sequence[str]] = {
    nn.Module: ("parent", "name"),
    Wrapper: ("env",),
    Scheme: [field.name for field in dataclasses.fields(Config)],
}


@functools.cache
def _settings_of(cls: type) -> dict[str, Any]:
    """Returns the type of each setting of a part that a file can express."""
    hidden = {name for base, names in _HIDDEN.items() if issubclass(cls, base) for name in names}
    as_written = _AS_WRITTEN | ({float: _NUMBERS} if issubclass(cls, Wrapper) else {})
    hints = typing.get_type_hints(cls, include_extras=True)
    known: dict[str, Any] = {}
    for kind, (_, base) in _KINDS.items():
        if issubclass(cls, base) and kind != "algorithm":
            in_full = pydantic.AfterValidator(functools.partial(_full_name, kind))
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


def _checked(cls: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the checked settings of a part. False disables an optional one."""
    known, checked = _settings_of(cls), {}
    for name, value in settings.items():
        if (value is None or value is False) and _is_optional(known.get(name)):
            if getattr(cls, name, None) is not None:
                checked[name] = False
        elif value is not None:
            checked |= validate(cls.__name__, known, {name: value})
    return checked


def _arguments(cls: type, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns checked settings as the class takes them."""
    known, arguments = _settings_of(cls), {}
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
            arguments[name] = _MEMORIES[settings[name]](settings.get("memory_size", _MEMORY_SIZE))
        else:
            arguments[name] = value
    return arguments


def _checked_wrapper(given: Any) -> dict[str, Any]:
    """Returns the table of a wrapper, checked: `type`, settings, and perhaps `batched`."""
    cls, settings = _named("wrapper", given)
    for each in settings.get("batched", ()):
        is_training = issubclass(cls, (*_TRAINING_WRAPPERS.values(),))
        can = [name for name, x in _settings_of(cls).items() if x == _NUMBERS and is_training]
        if each not in can or not isinstance(settings.get(each), tuple):
            what = f"a list of numbers as {', '.join(can)}" if can else "no settings"
            raise TrainingError(
                f'the wrapper {cls.__name__} got batched=["{each}"]; {what} can differ between'
                " instances."
            )
    return settings
