"""The benchmark of bsuite: agents play its experiments, and bsuite's package scores the records.

    records = run_experiment("catch", make_agent, key=jax.random.key(0))
    write_records("runs/mine", records)
    scores("runs/mine")

The settings of an experiment are the ids bsuite/EXPERIMENT/NUMBER. Every setting has its own agent.
All settings whose arrays have the same shapes play in one program.

Source: the logging and the experiments of bsuite; tests/faces/test_bsuite.py compares with it.
"""

import csv
import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar
from unittest import mock

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import prng, struct
from jaxenvs.catalog.bsuite import EXPERIMENTS
from jaxenvs.core import Environment, TimeStep, VectorEnv, Wrapper
from jaxenvs.errors import ParameterError, WrapperError, check_integer, closest, missing_extra
from jaxenvs.factory import make
from jaxenvs.vector.vectorize import vectorize
from jaxenvs.wrappers.vector import OuterVectorEnv

Row = dict[str, float]  # a line of bsuite's records: column -> number
S = TypeVar("S")

_RATIOS = (1, 1.2, 1.4, 1.7, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)  # recorded episodes, times powers of 10
_INTEGERS = ("steps", "episode", "episode_len", "total_bad_episodes", "total_perfect")


class Agent(Protocol[S]):
    """Plays a setting: a pytree such as a training program of `jaxenvs.training.make_train`.

    The state contains the state of the environment.
    """

    def init(self, key: chex.PRNGKey) -> S:
        """Returns the first state: resets the environment, draws weights."""
        ...

    def update(self, state: S) -> tuple[S, Any]:
        """Acts for some steps and learns. Returns the next state, and metrics, which are unused."""
        ...


# What bsuite records of a task: column -> what a step adds to it, with the original reward.
Counts = Mapping[str, Callable[[TimeStep], jax.Array]]

_REGRET: Counts = {"total_regret": lambda t: jnp.where(t.terminated, 1 - t.reward, 0.0)}
_MEMORY: Counts = {"total_perfect": lambda t: t.terminated & (t.reward > 0), **_REGRET}
_RAW: Counts = {"raw_return": lambda t: t.reward}
_DEEP_SEA: Counts = {
    "total_bad_episodes": lambda t: t.terminated & t.info["bad_episode"],
    "denoised_return": lambda t: t.info["denoised_reward"],
}
_COUNTS: dict[str, Counts] = {
    "bandit": _REGRET,
    "cartpole": _RAW,
    "cartpole_swingup": {**_RAW, "total_upright": lambda t: t.info["is_upright"]},
    "catch": _REGRET,
    "deep_sea": _DEEP_SEA,
    "deep_sea_stochastic": _DEEP_SEA,
    "discounting_chain": {},
    "memory_len": _MEMORY,
    "memory_size": _MEMORY,
    "mnist": _REGRET,
    "mountain_car": _RAW,
    "umbrella_distract": _REGRET,
    "umbrella_length": _REGRET,
}


# Recording.


@chex.dataclass(frozen=True)
class Records:
    """The episodes that an agent has finished, as sums of C quantities.

    The quantities are length, return, and those of `Counts`.
    """

    table: jax.Array  # float32[E, C], the episodes in the order in which they ended
    episodes: jax.Array  # int32[], finished so far; those after the first E are not recorded
    running: jax.Array  # float32[N, C], of the current episodes


@chex.dataclass(frozen=True)
class RecordedState:
    """The wrapped state and the records."""

    inner: chex.ArrayTree
    records: Records


@struct.pytree_dataclass
class RecordBsuite(OuterVectorEnv):
    """Records episodes in the state of a batch, for bsuite's scores.

    Wrap a batch: `vectorize(env, 1).wrap(RecordBsuite, "catch")`. The `env` is a setting of the
    experiment. The records are complete after `num_episodes` episodes of all instances together;
    None takes bsuite's number. `records_of` finds them in the state, a `RecordedState`.

    Raises:
        WrapperError: there is no such experiment, or the batch is not one of its settings with
            autoreset mode "same_step".
    """

    env: VectorEnv
    experiment: str = struct.static()
    num_episodes: int | None = struct.static(None)

    def __post_init__(self) -> None:
        check_experiment(self.experiment)
        if not isinstance(self.env, VectorEnv):
            raise WrapperError(
                "RecordBsuite got a single environment, which forgets its episodes when it is"
                " reset.  Wrap a batch: vectorize(env, 1).wrap(RecordBsuite, ...)."
            )
        if self.autoreset_mode != "same_step":
            raise WrapperError(
                f'RecordBsuite got a batch with autoreset_mode="{self.autoreset_mode}"; it takes'
                ' "same_step".'
            )
        if self.num_episodes is None:
            object.__setattr__(self, "num_episodes", EXPERIMENTS[self.experiment].num_episodes)
        check_integer(WrapperError, "RecordBsuite got num_episodes", self.num_episodes)
        count = functools.partial(_count_inside, experiment=self.experiment)
        object.__setattr__(self, "env", self.env.wrap_instances(count))

    def reset(self, key: chex.PRNGKey) -> tuple[RecordedState, TimeStep]:
        inner, timestep = self.env.reset(key)
        sums, timestep = _take_sums(timestep)
        num_episodes: Any = self.num_episodes
        records = Records(
            table=jnp.zeros((recorded_episodes(num_episodes)[-1], sums.shape[1]), jnp.float32),
            episodes=jnp.int32(0),
            running=jnp.zeros_like(sums),
        )
        return RecordedState(inner=inner, records=records), timestep

    def step(
        self, state: RecordedState, action: Any, key: chex.PRNGKey
    ) -> tuple[RecordedState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action, key)
        added, timestep = _take_sums(timestep)
        records, done = state.records, timestep.done
        sums = records.running + added
        # Episodes that end in the same step count in the order of their instances.
        episodes = records.episodes + jnp.cumsum(done, dtype=jnp.int32)
        rows = jnp.where(done, episodes - 1, len(records.table))  # no row
        records = Records(
            table=records.table.at[rows].set(sums, mode="drop"),
            episodes=episodes[-1],
            running=jnp.where(done[:, None], 0.0, sums),
        )
        return RecordedState(inner=inner, records=records), timestep

    def render(self, state: RecordedState, index: int = 0) -> jax.Array:
        return self.env.render(state.inner, index)


class _CountSteps(Wrapper[Any]):
    """Adds what a step contributes to bsuite's columns to `info`, as "bsuite", float32[C - 2]."""

    experiment: str = struct.static()

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, timestep = self.env.reset(key)
        return state, self._counted(timestep)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, timestep = self.env.step(state, action, key)
        return state, self._counted(timestep)

    def _counted(self, timestep: TimeStep) -> TimeStep:
        counts = [count(timestep) for count in _counts_of(self.experiment).values()]
        array = jnp.array([count.astype(jnp.float32) for count in counts], jnp.float32)
        return timestep.replace(info={**timestep.info, "bsuite": array})


def _count_inside(env: Environment, experiment: str) -> Environment:
    """Puts `_CountSteps` inside of all wrappers, where the rewards are the original ones."""
    if isinstance(env, _CountSteps):  # of a batch with other parameters
        return env
    if not isinstance(env, Wrapper):
        return _CountSteps(env, experiment)
    return env.replace(env=_count_inside(env.env, experiment))


def _counts_of(experiment: str) -> Counts:
    return _COUNTS[EXPERIMENTS[experiment].task]


def _take_sums(timestep: TimeStep) -> tuple[jax.Array, TimeStep]:
    """Returns what the step adds to the sums, float32[N, C], and the timestep without counts."""
    reward = timestep.reward.astype(jnp.float32)
    own = jnp.stack([jnp.ones_like(reward), reward], axis=1)
    sums = jnp.concatenate([own, timestep.final_info["bsuite"]], axis=1)
    infos = {
        name: {key: value for key, value in infos.items() if key != "bsuite"}
        for name, infos in (("info", timestep.info), ("final_info", timestep.final_info))
    }
    return sums, timestep.replace(**infos)


@functools.cache
def recorded_episodes(num_episodes: int) -> np.ndarray:
    """Returns the numbers of the episodes that bsuite records, int32[R]: denser at the start."""
    powers = [10**n for n in range(len(f"{num_episodes}"))]
    numbers = {round(power * ratio, 6) for power in powers for ratio in _RATIOS}
    return np.array(sorted(n for n in numbers if n % 1 == 0 and n <= num_episodes), np.int32)


def records_of(state: chex.ArrayTree) -> Records:
    """Returns the records in a state that contains the state of a `RecordBsuite`."""

    def is_records(node: Any) -> bool:
        return isinstance(node, Records)

    found = [node for node in jax.tree.leaves(state, is_leaf=is_records) if is_records(node)]
    if len(found) != 1:
        raise ParameterError(
            f"the state of an agent contains {len(found)} records; expected those of its"
            " environment, which must be a part of the state."
        )
    return found[0]


def to_rows(experiment: str, records: Records) -> list[Row]:
    """Returns the rows of one agent's records, with bsuite's names of columns."""
    ends = recorded_episodes(len(records.table))
    ends = ends[ends <= int(records.episodes)]
    each = np.asarray(records.table, np.float64)
    total = np.cumsum(each, axis=0)
    columns = {
        "steps": total[:, 0],
        "episode": np.arange(1, len(each) + 1),
        "total_return": total[:, 1],
        "episode_len": each[:, 0],
        "episode_return": each[:, 1],
    }
    for i, name in enumerate(_counts_of(experiment), start=2):
        columns[name] = total[:, i]
    if "cartpole" in experiment:
        columns["best_episode"] = np.maximum.accumulate(each[:, 2].clip(0))
    return [
        {name: int(x[i]) if name in _INTEGERS else float(x[i]) for name, x in columns.items()}
        for i in ends - 1
    ]


# Playing.


@struct.pytree_dataclass
class RandomAgent:
    """An agent that acts at random, the baseline of every experiment."""

    env: VectorEnv
    unroll_length: int = struct.static(32)  # steps of each update

    def init(self, key: chex.PRNGKey) -> tuple[Any, chex.PRNGKey, jax.Array]:
        key, reset_key = jax.random.split(key)
        return self.env.reset(reset_key)[0], key, jnp.uint32(0)

    def update(self, state: tuple[Any, chex.PRNGKey, jax.Array]) -> tuple[Any, None]:
        env_state, key, steps = state

        def step(env_state: Any, index: jax.Array) -> tuple[Any, None]:
            step_key = jax.random.fold_in(prng.as_fast_key(key), 2 * index + 1)
            action_key = jax.random.fold_in(prng.as_fast_key(key), 2 * index)
            action = prng.call_with_fast_key(self.env.action_space.sample, action_key)
            return self.env.step(env_state, action, step_key)[0], None

        indices = steps + jnp.arange(self.unroll_length, dtype=jnp.uint32)
        env_state, _ = jax.lax.scan(step, env_state, indices)
        return (env_state, key, steps + jnp.uint32(self.unroll_length)), None


def run_experiment(
    experiment: str,
    make_agent: Callable[[VectorEnv], Agent],
    *,
    key: chex.PRNGKey,
    num_episodes: int | None = None,
    numbers: Sequence[int] | None = None,
    num_envs: int = 1,
) -> dict[str, list[Row]]:
    """Lets agents play the settings of an experiment, one agent each.

    Settings that differ only in numbers, such as a scale of noise, play in one program, on one
    device. Those that differ in shapes, such as the size of deep sea, play one after another.

    Args:
        experiment: one of bsuite's, such as "deep_sea".
        make_agent: returns an agent for an environment. `make_train` makes one:
            `lambda env: make_train(env, PPO(), unroll_length=32, total_steps=10**9)`. The number of
            steps only determines annealed rates, because the experiment ends by episodes.
        key: a random key. Setting i uses child i of it.
        num_episodes: episodes of each setting; None takes bsuite's number, from 1,000 to 10,000.
        numbers: the numbers of the settings to play; None plays all.
        num_envs: instances of each setting that an agent plays at once. bsuite has one; with more,
            episodes count in the order in which they end.

    Returns:
        The rows of bsuite's records for each id, without "bsuite/": {"deep_sea/0": rows, ...}.

    Raises:
        WrapperError: there is no such experiment.
        ParameterError: there is no such setting, or MNIST's images are missing.
    """
    agents = {
        name: make_agent(vectorize(env, num_envs).wrap(RecordBsuite, experiment, num_episodes))
        for name, env in settings(experiment, numbers)
    }
    groups: dict[Any, list[str]] = {}
    for name, agent in agents.items():
        leaves, structure = jax.tree.flatten(agent)
        shapes = tuple((np.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
        groups.setdefault((structure, shapes), []).append(name)
    rows: dict[str, list[Row]] = {}
    for (structure, _), names in groups.items():
        leaves, axes = _stack([jax.tree.leaves(agents[name]) for name in names])
        keys = jax.vmap(jax.random.fold_in, (None, 0))(
            prng.as_typed_key(key), jnp.array([int(name.split("/")[1]) for name in names])
        )
        played = jax.device_get(_play(leaves, keys, structure=structure, axes=axes))
        for i, name in enumerate(names):
            rows[name] = to_rows(experiment, jax.tree.map(lambda x, i=i: x[i], played))
    return {name: rows[name] for name in agents}


def settings(
    experiment: str, numbers: Sequence[int] | None = None
) -> list[tuple[str, Environment]]:
    """Returns the settings of an experiment: ("deep_sea/0", environment), ...

    Bandits hold their rewards as an array, so that all of them share a program.
    """
    check_experiment(experiment)
    count = len(EXPERIMENTS[experiment].settings)
    found = []
    for number in range(count) if numbers is None else numbers:
        if number not in range(count):
            raise ParameterError(
                f"{experiment} got the number {number}; its settings have 0 to {count - 1}."
            )
        env: Any = make(f"bsuite/{experiment}/{number}")
        if EXPERIMENTS[experiment].task == "bandit":
            env = env.replace(rewards=env.unwrapped.mapping, mapping_seed=0)
        found.append((f"{experiment}/{number}", env))
    return found


def check_experiment(name: str) -> None:
    """Raises WrapperError if bsuite has no such experiment."""
    if name not in EXPERIMENTS:
        raise WrapperError(
            f'bsuite has no experiment "{name}".{closest(name, EXPERIMENTS)}'
            f"  It has: {', '.join(EXPERIMENTS)}."
        )


def _stack(rows: list[list[Any]]) -> tuple[list[Any], tuple[int | None, ...]]:
    """Stacks leaves that differ between rows. Returns the leaves and the axes for `vmap`."""
    leaves, axes = [], []
    for column in zip(*rows, strict=True):
        first = column[0]
        is_same = all(each is first or np.array_equal(each, first) for each in column)
        leaves.append(first if is_same else jnp.stack([jnp.asarray(each) for each in column]))
        axes.append(None if is_same else 0)
    return leaves, tuple(axes)


@functools.partial(jax.jit, static_argnames=("structure", "axes"))
def _play(leaves: list[Any], keys: chex.PRNGKey, *, structure: Any, axes: Any) -> Records:
    """Plays until every agent has finished its episodes. Returns the records, [settings, ...]."""

    def init(leaves: list[Any], key: chex.PRNGKey) -> Any:
        return jax.tree.unflatten(structure, leaves).init(key)

    def update(leaves: list[Any], state: Any) -> Any:
        return jax.tree.unflatten(structure, leaves).update(state)[0]

    def is_playing(states: Any) -> jax.Array:
        records = records_of(states)
        return jnp.any(records.episodes < records.table.shape[1])

    over_agents = functools.partial(jax.vmap, in_axes=(list(axes), 0))
    states = over_agents(init)(leaves, keys)
    step = functools.partial(over_agents(update), leaves)
    return records_of(jax.lax.while_loop(is_playing, step, states))


# Files and scores.


def write_records(folder: str | Path, rows: Mapping[str, Sequence[Row]]) -> list[Path]:
    """Writes a CSV file for each id, as bsuite's logger does. Creates the folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, own in rows.items():
        paths.append(records_path(folder, name))
        with paths[-1].open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, own[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(own)
    return paths


def records_path(folder: str | Path, name: str) -> Path:
    """Returns the file of an id such as "deep_sea/0"."""
    return Path(folder, f"bsuite_id_-_{name.replace('/', '-')}.csv")


def scores(folder: str | Path) -> tuple[dict[str, float], dict[str, float]]:
    """Returns bsuite's scores of the records in a folder, from 0 to 1.

    The package of bsuite reads the files and computes the scores. It also has plots of each
    experiment: `bsuite.experiments.deep_sea.analysis.plot_scaling`, for instance.

    Returns:
        The score of each experiment that has records, and the mean score of each tag, such as
        "memory". Tags without an experiment are left out. Some experiments have no score if they
        were cut short: deep_sea_stochastic before 100 episodes, those of mnist before 9,000.

    Raises:
        ParameterError: the folder contains no records.
        MissingExtraError: bsuite is not installed.
    """
    try:
        import matplotlib
        import pandas

        with matplotlib.rc_context():  # bsuite changes the style of all plots when it is imported
            from bsuite.experiments import summary_analysis
            from bsuite.logging import csv_load
    except ImportError as error:
        raise missing_extra("Scoring records", error.name or "bsuite", "bsuite") from error
    if not any(Path(folder).glob("bsuite_id_-_*.csv")):
        raise ParameterError(f'"{folder}" contains no records of bsuite.')
    table: Any = csv_load.load_bsuite(f"{folder}")[0]
    played = table.groupby("bsuite_env")["episode"].transform("max")
    table = table[(table.bsuite_env != "deep_sea_stochastic") | (played >= 100)]
    if table.empty:
        return {}, {}

    def append(series: Any, other: Any) -> Any:
        return pandas.concat([series, other])

    # bsuite 0.3.6 calls `Series.append`, which pandas 2 no longer has.
    with mock.patch.object(pandas.Series, "append", append, create=True):
        scored = summary_analysis.bsuite_score(table)
    tags = summary_analysis.ave_score_by_tag(scored, []).dropna().sort_values("tag")
    scored = scored.dropna(subset="score")
    return (
        {name: float(x) for name, x in zip(scored.bsuite_env, scored.score, strict=True)},
        {name: float(x) for name, x in zip(tags.tag, tags.score, strict=True)},
    )
