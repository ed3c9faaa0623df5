"""Settings, records and scores are those of the package bsuite."""

import csv
import functools
import io
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bsuite import bsuite, sweep
from bsuite.utils import wrappers

import jaxenvs
from benchmarks.oracles import oracle_for
from benchmarks.oracles.bsuite import mnist
from jaxenvs import struct
from jaxenvs.catalog.bsuite import EXPERIMENTS
from jaxenvs.core import VectorEnv
from jaxenvs.errors import ParameterError, UnknownEnvironmentError, WrapperError
from jaxenvs.faces.bsuite import (
    RandomAgent,
    RecordBsuite,
    _counts_of,
    _play,
    recorded_episodes,
    records_of,
    run_experiment,
    scores,
    settings,
    to_rows,
    write_records,
)
from jaxenvs.wrappers import AddRewardNoise

# pandas, called by bsuite
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

KEY = jax.random.key(0)
# Drawn with the reference's own generator when it is made or reset.
DRAWN = ("_ball_x", "_context", "_correct_label", "_has_umbrella", "_need_umbrella", "_query")


@pytest.fixture(scope="module", autouse=True)
def _few_digits():
    """Lets bsuite read the same images as ours instead of downloading."""
    with (
        mock.patch.object(
            mnist.datasets,
            "load_mnist",
            functools.partial(mnist.datasets.load_mnist, directory="tests/mnist"),
        ),
        mock.patch.object(bsuite.termcolor, "cprint"),
    ):
        yield


def test_ids_and_numbers_of_episodes_are_bsuites():
    ids = [f"{name}/{i}" for name, each in EXPERIMENTS.items() for i in range(len(each.settings))]
    assert ids == list(sweep.SWEEP)
    for id in ids:
        assert EXPERIMENTS[id.split("/")[0]].num_episodes == sweep.EPISODES[id]


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_settings_make_the_environments_of_bsuite(experiment):
    for number in range(len(EXPERIMENTS[experiment].settings)):
        env = jaxenvs.make(f"bsuite/{experiment}/{number}")
        theirs = bsuite.load_from_id(f"{experiment}/{number}")
        scales = vars(theirs)
        if experiment.endswith("_noise"):
            assert env.parameters["noise_scale"] == scales["_noise_scale"]
            assert isinstance(env, AddRewardNoise)
        if experiment.endswith("_scale"):
            assert env.parameters["scale"] == scales["_reward_scale"]
        theirs = getattr(theirs, "raw_env", theirs)
        oracle = oracle_for(env.unwrapped)(env.unwrapped, 0)
        assert type(theirs) is type(oracle.reference)
        ours, theirs = _numbers(oracle.reference), _numbers(theirs)
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            np.testing.assert_array_equal(ours[name], value, name)


def _numbers(reference):
    """Returns the attributes of a reference that its arguments decide."""
    kinds = (int, float, bool, np.ndarray)
    return {
        name: value
        for name, value in vars(reference).items()
        if isinstance(value, kinds) and name not in DRAWN
    }


def test_an_unknown_setting_names_the_closest():
    with pytest.raises(UnknownEnvironmentError, match='"bsuite/deep_sea/9"'):
        jaxenvs.make("bsuite/deep_sea/99")
    assert "bsuite/deep_sea/3" not in jaxenvs.registry


def test_a_setting_takes_parameters_and_is_vectorized():
    env = jaxenvs.make_vec("bsuite/catch_noise/4", 2, rows=4)
    assert env.observation_space.shape == (2, 4, 5) and env.parameters["noise_scale"] == 0.3


def test_the_recorded_episodes_are_bsuites():
    theirs = [n for n in range(1, 10_001) if wrappers._logarithmic_logging(n)]
    np.testing.assert_array_equal(recorded_episodes(10_000), theirs)
    np.testing.assert_array_equal(recorded_episodes(45), [n for n in theirs if n <= 45])


@struct.pytree_dataclass
class Scripted:
    """An agent whose action in step t of its life is `actions[t]`."""

    env: VectorEnv
    actions: jax.Array

    def init(self, key):
        return self.env.reset(key)[0], jnp.int32(0)

    def update(self, state):
        env_state, t = state
        action = jnp.full(self.env.num_envs, self.actions[t])
        return (self.env.step(env_state, action, jax.random.fold_in(KEY, t))[0], t + 1), None


@pytest.mark.parametrize("id", ["bandit/7", "deep_sea/0", "discounting_chain/3"])
def test_files_equal_those_of_bsuites_logger(tmp_path, id):
    experiment, number = id.split("/")
    steps = {"bandit": 14, "deep_sea": 140, "discounting_chain": 1400}[experiment]
    env = jaxenvs.make(f"bsuite/{id}")
    # Runs of equal actions, so that the diver of deep sea gets far from the wall.
    actions = np.random.default_rng(0).integers(0, env.action_space.n, steps).repeat(3)[:steps]
    agent = functools.partial(Scripted, actions=jnp.asarray(actions, jnp.int32))
    rows = run_experiment(experiment, agent, key=KEY, num_episodes=14, numbers=[int(number)])
    (path,) = write_records(tmp_path / "ours", rows)

    theirs = bsuite.load_and_record_to_csv(id, str(tmp_path / "theirs"))
    actions = iter(actions)
    for _ in range(14):
        timestep = theirs.reset()
        while not timestep.last():
            timestep = theirs.step(next(actions))
    ours, theirs = (
        list(csv.DictReader(io.StringIO((tmp_path / each / path.name).read_text())))
        for each in ("ours", "theirs")
    )
    assert [list(row) for row in ours] == [list(row) for row in theirs]
    for row, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            *([float(x) for x in each.values()] for each in (row, other)), rtol=1e-6
        )


SHORT = {"cartpole": {"max_time": 0.2}, "cartpole_swingup": {"max_time": 0.2}}
SHORT |= {"mountain_car": {"max_steps": 10}, "memory_len": {"memory_length": 3}}
CHANCE = ("umbrella_length", "deep_sea_stochastic")  # rewards differ, because the noise does


@pytest.mark.parametrize(
    "experiment",
    [
        *("cartpole", "cartpole_swingup", "catch_scale", "deep_sea_stochastic", "memory_len"),
        *("mnist_noise", "mountain_car", "umbrella_length"),
    ],
)
def test_records_of_steps_copied_to_bsuite_are_equal(experiment):
    (_, env), *_ = settings(experiment, [5])
    env = env.replace(**SHORT.get(experiment, {}))
    batch = jaxenvs.vectorize(env, 1).wrap(RecordBsuite, experiment, 20)

    @jax.jit
    def play(key):
        def step(state, key):
            action = batch.action_space.sample(key)
            after, timestep = batch.step(state, action, key)
            return after, (getattr(state.inner, "inner", state.inner), action, timestep)

        return jax.lax.scan(step, batch.reset(key)[0], jax.random.split(key, 260))

    state, steps = jax.device_get(play(KEY))
    rows = to_rows(experiment, records_of(state))
    assert len(rows) > 8

    oracle = oracle_for(env.unwrapped)(env.unwrapped, 0)
    logger = mock.Mock()
    oracle.reference.bsuite_num_episodes = 10**9
    logged = wrappers.Logging(oracle.reference, logger)
    logged.reset()
    for t in range(260):
        before, action, timestep = jax.tree.map(lambda x, t=t: x[t, 0], steps)
        oracle.set_state(before)
        oracle.reference._reset_next_step = False
        assert logged.step(int(action)).last() == timestep.done
        if timestep.done:
            logged.reset()
    theirs = [call.args[0] for call in logger.write.call_args_list][: len(rows)]
    is_changed = experiment in CHANCE or "_" in experiment.removeprefix(
        EXPERIMENTS[experiment].task
    )
    skipped = ("total_return", "episode_return") if is_changed else ()
    for row, other in zip(rows, theirs, strict=True):
        assert row.keys() == other.keys()
        kept = [name for name in row if name not in skipped]
        np.testing.assert_allclose(
            [row[name] for name in kept],
            [other[name] for name in kept],
            rtol=1e-5,
            err_msg=f"{row}",
        )


def test_episodes_of_several_instances_count_in_ending_order():
    (_, env), *_ = settings("cartpole", [0])
    batch = jaxenvs.vectorize(env.replace(max_time=0.2), 3).wrap(RecordBsuite, "cartpole", 14)

    @jax.jit
    def play(key):
        def step(state, key):
            state, timestep = batch.step(state, batch.action_space.sample(key), key)
            return state, (timestep.done, timestep.reward)

        return jax.lax.scan(step, batch.reset(key)[0], jax.random.split(key, 200))

    state, (done, reward) = jax.device_get(play(KEY))
    records = records_of(state)
    assert records.episodes == done.sum() > 14
    running, ended = np.zeros((3, 2)), []
    for is_last, each in zip(done, reward, strict=True):
        running += np.stack([np.ones(3), each], axis=1)
        ended += [tuple(running[i]) for i in np.flatnonzero(is_last)]
        running[is_last] = 0
    for row in to_rows("cartpole", records):
        total = np.sum(ended[: row["episode"]], axis=0)
        assert (row["steps"], row["total_return"]) == tuple(total)
        assert (row["episode_len"], row["episode_return"]) == ended[row["episode"] - 1]
        assert row["best_episode"] == max(each for _, each in ended[: row["episode"]])


def test_a_recorded_batch_takes_other_parameters():
    batch = jaxenvs.make_vec("bsuite/catch/0", 2).wrap(RecordBsuite, "catch", 3)
    changed = batch.replace(rows=4)
    assert changed.parameters["rows"] == 4 and changed.num_episodes == 3
    assert repr(changed).count("_CountSteps") == repr(batch).count("_CountSteps") == 1


def test_all_settings_play_in_one_program_as_they_would_alone():
    with mock.patch("jaxenvs.faces.bsuite._play", wraps=_play) as play:
        together = run_experiment("bandit_noise", RandomAgent, key=KEY, num_episodes=12)
    assert play.call_count == 1 and list(together) == [f"bandit_noise/{i}" for i in range(20)]
    alone = run_experiment("bandit_noise", RandomAgent, key=KEY, num_episodes=12, numbers=[13])
    for row, other in zip(alone["bandit_noise/13"], together["bandit_noise/13"], strict=True):
        np.testing.assert_allclose(list(row.values()), list(other.values()), rtol=1e-6)
    assert len({rows[-1]["total_return"] for rows in together.values()}) == 20
    with mock.patch("jaxenvs.faces.bsuite._play", wraps=_play) as play:
        run_experiment("deep_sea", RandomAgent, key=KEY, num_episodes=1, numbers=[0, 1])
    assert play.call_count == 2  # sizes are shapes


@struct.pytree_dataclass
class Catcher:
    """An agent that catches every ball."""

    env: VectorEnv

    def init(self, key):
        state, timestep = self.env.reset(key)
        return state, timestep.observation

    def update(self, state):
        env_state, board = state
        ball, paddle = (jnp.argmax(rows, axis=1) for rows in (board[:, :-1].max(1), board[:, -1]))
        action = jnp.sign(ball - paddle).astype(jnp.int32) + 1
        env_state, timestep = self.env.step(env_state, action, KEY)
        return (env_state, timestep.observation), None


def test_bsuite_scores_our_records(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "bad"
    for folder, agent in ((good, Catcher), (bad, RandomAgent)):
        rows = run_experiment("catch", agent, key=KEY, num_episodes=20, numbers=[0, 1])
        write_records(folder, rows)
        regret = np.mean([own[-1]["total_regret"] for own in rows.values()]) / 20
        by_experiment, by_tag = scores(folder)
        assert by_experiment == {"catch": pytest.approx(np.clip(1 - regret / 1.6, 0, 1))}
        assert by_tag == dict.fromkeys(["basic", "credit_assignment"], by_experiment["catch"])
    assert scores(good)[0]["catch"] == 1 and scores(bad)[0]["catch"] < 0.3


@pytest.mark.parametrize("is_good", [True, False])
def test_every_experiment_is_scored(tmp_path, is_good):
    """Records of a perfect and of a useless agent, because playing everything takes minutes."""
    for name, experiment in EXPERIMENTS.items():
        per_episode = dict.fromkeys(_counts_of(name), 0.0 if is_good else 2.0)
        if "raw_return" in per_episode:
            good, bad = (-90, -1000) if "mountain" in name else (1001, 0)
            per_episode["raw_return"] = good if is_good else bad
        if "total_perfect" in per_episode:
            per_episode["total_perfect"] = float(is_good)
        per_episode["total_return"] = is_good * (700 if "swingup" in name else 1.1)
        rows = []
        for n in recorded_episodes(experiment.num_episodes).tolist():
            row = {"steps": n, "episode": n, "episode_len": 1, "episode_return": 1.0}
            row |= {column: each * n for column, each in per_episode.items()}
            rows.append(row | ({"best_episode": 1001.0 * is_good} if "cartpole" in name else {}))
        write_records(tmp_path, {f"{name}/{i}": rows for i in range(len(experiment.settings))})
    by_experiment, by_tag = scores(tmp_path)
    assert by_experiment.keys() == EXPERIMENTS.keys() and len(by_tag) == 7
    # The worst car still has a tenth: bsuite compares with a return of -100.
    found = [*by_experiment.values(), *by_tag.values()]
    assert min(found) > 0.9 if is_good else max(found) < 0.11


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: settings("deep_see"), WrapperError, 'Close: "deep_sea"'),
        (lambda: settings("catch", [20]), ParameterError, "have 0 to 19"),
        (lambda: RecordBsuite(jaxenvs.make("bsuite/catch-v0"), "catch"), WrapperError, "a batch"),
        (
            lambda: jaxenvs.make_vec("bsuite/catch/0", 1, autoreset_mode="next_step").wrap(
                RecordBsuite, "catch"
            ),
            WrapperError,
            "same_step",
        ),
        (lambda: records_of({"a": jnp.zeros(3)}), ParameterError, "0 records"),
        (lambda: scores("nowhere"), ParameterError, "no records"),
    ],
)
def test_invalid_arguments_raise_named_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
