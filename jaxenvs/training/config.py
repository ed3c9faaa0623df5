"""Training configurations, read from and written to TOML.

config = config_for("ppo", "CartPole-v1")  # the settings of tuned.toml
result = jax.jit(config.make_train())(jax.random.key(config.seed))
"""

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from jaxenvs import _entry_points
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError, closest, missing_extra
from jaxenvs.factory import is_hosted, make, make_vec
from jaxenvs.training._validation import validate
from jaxenvs.training.actors import Actor
from jaxenvs.training.algorithms import Algorithm
from jaxenvs.training.assembly import make_train
from jaxenvs.training.parts import (
    KINDS,
    MEMORY_SIZE,
    PARTS,
    TABLES,
    arguments_of,
    checked_settings,
    checked_wrapper,
    find_part,
    full_name,
    settings_of,
    wrap,
)
from jaxenvs.training.ranges import Count, Range
from jaxenvs.training.schemes.scheme import Scheme, central
from jaxenvs.training.storages import Storage
from jaxenvs.training.train_program import Train
from jaxenvs.training.tuned import settings_for, tuned_tables
from jaxenvs.vector.vectorize import vectorize

_EXPRESSIBLE = int | float | str | tuple | list  # values that a file can express
_ROWS = 200  # approximate number of rows of metrics if `report_every` is None
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
        checked = validate("a configuration", settings_of(type(self)), vars(self))
        vars(self).update({name: x for name, x in checked.items() if name not in TABLES})
        vars(self)["algorithm"] = full_name("algorithm", self.algorithm)
        vars(self)["env"] = {x: tuple(y) if isinstance(y, list) else y for x, y in self.env.items()}
        for table in PARTS:
            vars(self)[table] = checked_settings(self._class_of(table), getattr(self, table))
        vars(self)["wrappers"] = tuple(checked_wrapper(each) for each in self.wrappers)

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
            default = tuned_tables(find_part("algorithm", entries["algorithm"]))
            sizes = {name: x for name, x in default["default"].items() if name not in TABLES}
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
            for table in TABLES
        }
        for dotted, value in changes.items():
            table, *names = dotted.split(".") if "." in dotted else ("settings", dotted)
            if table not in TABLES:
                raise TrainingError(
                    f'a configuration got the setting "{dotted}".  Write actor.NAME, storage.NAME,'
                    " scheme.NAME, env.NAME, or NAME alone for a hyperparameter of the algorithm."
                )
            own = [each for each in PARTS if names[0] in settings_of(self._class_of(each))]
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
            if table != "settings" and type(part) in KINDS[table][0].values():
                known["type"] = type(part).__name__  # the default of your own algorithm has none
            if "memory" in given:
                known.setdefault("memory_size", MEMORY_SIZE)
            names = [name for name in settings_of(type(part)) if name in known]
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
            env = make_vec(self.id, number, **self.env)
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
        return make(self.id, **self.env)

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
            env = wrap(env, each, training=training, num_envs=num_envs)
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
            **arguments_of(Scheme, self.scheme),
        )

    def make_train(self, **overrides: Any) -> Train:
        """Calls `make_train` with this configuration; `overrides` are arguments of `make_train`.

        `env` replaces the id and its wrappers. The scheme is ignored.

        Raises:
            TrainingError, UnknownEnvironmentError, WrapperError: as by `make_train` and `make_env`.
        """
        arguments = {
            "algorithm": self.make_algorithm(),
            "actor": self.make_actor(),
            "storage": self.make_storage(),
            "num_envs": self.num_envs,
            "unroll_length": self.unroll_length,
            "total_steps": self.total_steps,
            "report_every": self.rows_every(),
            **overrides,
        }
        if "env" not in overrides:
            _ = self.is_hosted  # imports modules
            is_plain = not (self.wrappers or self.env)
            arguments["env"] = self.id if is_plain else self.make_env(arguments["num_envs"])
        return make_train(**arguments)

    def rows_every(self) -> int:
        """Returns `report_every`, or updates per row for about 200 rows, equal if possible."""
        if self.report_every is not None:
            return self.report_every
        places = arguments_of(Scheme, self.scheme)
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
        algorithm: Any = find_part("algorithm", self.algorithm)
        if table == "settings":
            return algorithm()
        default, given = getattr(self.make_algorithm(), f"default_{table}")(), getattr(self, table)
        cls = type(default) if given.get("type") is None else find_part(table, given["type"])
        return default if type(default) is cls else cls()

    def _make(self, table: str) -> Any:
        """Returns the part that a table describes."""
        default = self._default(table)
        return dataclasses.replace(default, **arguments_of(type(default), getattr(self, table)))


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
    cls = find_part("algorithm", algorithm)
    for module in imports:
        _entry_points.import_module(module, f"imports={list(imports)}")
    return Config(id=id, algorithm=algorithm, imports=tuple(imports), **settings_for(cls, id))
