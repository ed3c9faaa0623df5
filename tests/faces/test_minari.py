"""Rollouts as Minari data sets, read by Minari's own reader and by ours."""

import chex
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ParameterError
from jaxenvs.rollouts import Trajectory
from jaxenvs.wrappers import AddRenderObservation, ResizeObservation

minari = pytest.importorskip("minari")

from jaxenvs.faces.minari import from_minari, to_minari  # noqa: E402

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("ignore:.* is set to None:UserWarning", "ignore:env_spec is None"),
]

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def play(envs, num_steps, key=KEY):
    return jaxenvs.rollout(envs, None, num_steps, key).trajectory


@chex.dataclass(frozen=True)
class SampledState:
    key: chex.PRNGKey


class Sampled(Environment[SampledState]):
    """Observations, infos, and ends are random, whatever the actions are."""

    observation_space: spaces.Space = jaxenvs.struct.static()
    action_space: spaces.Space = jaxenvs.struct.static()

    def reset(self, key):
        return SampledState(key=key), self.draw(key)

    def step(self, state, action, key):
        return SampledState(key=key), self.draw(key)

    def draw(self, key):
        end = jax.random.randint(key, (), 0, 6)
        return TimeStep(
            observation=self.observation_space.sample(key),
            reward=jax.random.normal(key),
            terminated=end == 0,
            truncated=end == 1,
            info={"end": end, "row": jnp.stack([end, end])},
        )


BOX = spaces.Box(-1.0, 1.0, (2, 3))
IMAGE = spaces.Box(0, 255, (84, 84, 3), np.uint8)
SPACES = {
    "scalar": spaces.Box(-np.inf, np.inf, ()),
    "bounds": spaces.Box([-1.0, -np.inf], [1.0, np.inf]),
    "bytes": spaces.Box(0, 255, (4,), np.uint8),
    "booleans": spaces.Box(False, True, (3,), bool),
    "image": IMAGE,
    "channels": spaces.Box(0, 255, (84, 84, 4), np.uint8),
    "discrete": spaces.Discrete(5, start=-2),
    "multi_discrete": spaces.MultiDiscrete([[3, 2], [9, 4]], start=[[-1, 0], [0, 7]]),
    "multi_binary": spaces.MultiBinary((2, 3)),
    "dict": spaces.Dict({"z": BOX, "a": spaces.Dict({"n": spaces.Discrete(3)}), "image": IMAGE}),
    "tuple": spaces.Tuple((spaces.Discrete(32), BOX, spaces.Tuple((spaces.Discrete(2),)))),
}


def per_instance(trajectory):
    """The rows as the data set has them: those of instance 0, then those of instance 1, ..."""
    return jax.tree.map(lambda x: x.swapaxes(0, 1).reshape(-1, *x.shape[2:]), trajectory)


def with_a_cut_tail(trajectory):
    last = trajectory.truncated[-1] | ~trajectory.terminated[-1]
    return trajectory.replace(truncated=trajectory.truncated.at[-1].set(last))


@pytest.mark.parametrize("kind", SPACES)
def test_round_trip_of_a_space_is_exact(kind):
    envs = jaxenvs.vectorize(Sampled(SPACES[kind], SPACES[kind]), 2)
    trajectory = play(envs, 11)
    expected = per_instance(with_a_cut_tail(trajectory))
    for data_format in ("hdf5", "parquet"):
        to_minari(trajectory, envs, f"{data_format}-v0", infos=True, data_format=data_format)
        back = from_minari(f"{data_format}-v0", infos=True)
        chex.assert_trees_all_equal(back, expected)
        chex.assert_trees_all_equal_dtypes(back, trajectory)


def test_nested_infos_come_back():
    envs = jaxenvs.vectorize(Sampled(BOX, BOX), 2)
    trajectory = play(envs, 11)
    trajectory = trajectory.replace(info={"deep": {"first": trajectory.info}})
    to_minari(trajectory, envs, "deep-v0", infos=True)
    chex.assert_trees_all_equal(
        from_minari("deep-v0", infos=True).info, per_instance(trajectory.info)
    )


DETERMINISTIC = {  # they begin in one state, so actions alone decide what happens
    "FrozenLake-v1": {"is_slippery": False, "max_episode_steps": 7},
    "CliffWalking-v1": {"max_episode_steps": 9},
    "MiniGrid-Empty-5x5-v0": {"max_episode_steps": 6},
}


def collected(id, actions, **options):
    """The episodes that Minari's collector records of Gymnasium's interface, one instance after
    the other.
    """
    env = gymnasium.make(f"jaxenvs/{id}", **options)
    collector = minari.DataCollector(env, record_infos=True, jpeg_encoding=False)
    for row in actions.T:
        collector.reset(seed=0)
        for action in row:
            _, _, terminated, truncated, _ = collector.step(np.int64(action))
            if terminated or truncated:
                collector.reset(seed=0)
    return collector.create_dataset("collected-v0")


def native(id, num_envs, **options):
    limit = options.pop("max_episode_steps", "default")
    autoreset_mode = options.pop("autoreset_mode", "same_step")
    env = jaxenvs.make(id, time_limit=limit, **options)
    return jaxenvs.vectorize(env, num_envs, autoreset_mode=autoreset_mode)


@pytest.mark.parametrize("id", DETERMINISTIC)
def test_episodes_equal_those_of_minaris_collector(id):
    options = DETERMINISTIC[id]
    envs = native(id, 3, **options)
    trajectory = play(envs, 25)
    ours = to_minari(trajectory, envs, "ours-v0", infos=True, env=f"jaxenvs/{id}")
    theirs = collected(id, np.asarray(trajectory.action), **options)
    assert ours.total_episodes == theirs.total_episodes >= 9
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    ends = set()
    for mine, other in zip(ours, theirs, strict=True):
        chex.assert_trees_all_equal(mine.observations, other.observations)
        chex.assert_trees_all_equal_dtypes(mine.observations, other.observations)
        for name in ("actions", "terminations", "truncations", "rewards"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(other, name))
        infos, others = (
            jax.tree.map(lambda x: np.asarray(x)[1:], each.infos) for each in (mine, other)
        )
        chex.assert_trees_all_equal(infos, others)
        ends.add((bool(mine.terminations[-1]), bool(mine.truncations[-1])))
    assert ends == ({(True, False), (False, True)} if id == "FrozenLake-v1" else {(False, True)})


@pytest.mark.parametrize("mode", ["next_step", "disabled"])
def test_rows_of_resets_are_not_steps(mode):
    options = DETERMINISTIC["FrozenLake-v1"]
    envs = native("FrozenLake-v1", 3, autoreset_mode=mode, **options)
    trajectory = play(envs, 25)
    done = np.asarray(trajectory.terminated | trajectory.truncated)
    dataset = to_minari(trajectory, envs, "ours-v0")
    assert 0 < dataset.total_steps < done.size
    assert dataset.total_episodes == (3 if mode == "disabled" else dataset.total_episodes)
    for episode in dataset:
        actions = np.asarray(episode.actions)[:, None]
        (again, *_) = collected("FrozenLake-v1", actions, **options)
        np.testing.assert_array_equal(episode.observations, again.observations)
        np.testing.assert_array_equal(episode.truncations, again.truncations)
        minari.delete_dataset("collected-v0")


def test_unfinished_episodes_are_cut_or_left_out():
    envs = jaxenvs.make_vec("CartPole-v1", 4)
    trajectory = play(envs, 50)
    cut = to_minari(trajectory, envs, "cut-v0")
    whole = to_minari(trajectory, envs, "whole-v0", unfinished="drop")
    assert cut.total_steps == 200 and cut.total_episodes == whole.total_episodes + 4
    assert sum(bool(episode.truncations[-1]) for episode in cut) == 4
    assert all(episode.terminations[-1] for episode in whole)
    assert not any(episode.truncations[-1] for episode in whole)


def test_first_episodes_of_a_staggered_start_are_partial():
    envs = jaxenvs.make_vec("Pendulum-v1", 8, stagger=True)
    trajectory = play(envs, 450)
    lengths = [len(each) for each in to_minari(trajectory, envs, "all-v0")]
    assert sum(lengths) == 8 * 450 and len(set(lengths)) > 2
    whole = to_minari(trajectory, envs, "whole-v0", unfinished="drop")
    assert {len(each) for each in whole} == {200} and len(whole) >= 8


def test_metadata_find_the_episode_in_its_rollout():
    envs = jaxenvs.make_vec("CartPole-v1", 3)
    dataset = to_minari(play(envs, 60, jax.random.key(7)), envs, "random-v0", rollout_seed=7)
    again = play(envs, 60, jax.random.key(7))
    metadata = [*dataset.storage.get_episode_metadata(range(len(dataset)))]
    assert {entry["instance"] for entry in metadata} == {0, 1, 2}
    for entry, episode in zip(metadata, dataset, strict=True):
        assert entry["rollout_seed"] == 7 and "seed" not in entry
        first = again.observation[entry["first_step"], entry["instance"]]
        np.testing.assert_array_equal(episode.observations[0], first)


def test_minari_recovers_the_environment():
    envs = jaxenvs.make_vec("CartPole-v1", 2, gravity=3.0)
    env = jaxenvs.make_gym("CartPole-v1", gravity=3.0)
    to_minari(play(envs, 20), envs, "moon-v0", env=env, algorithm_name="random")
    recovered = minari.load_dataset("moon-v0").recover_environment()
    assert recovered.get_wrapper_attr("gravity") == 3.0
    assert recovered.observation_space == env.observation_space
    chex.assert_trees_all_equal(recovered.reset(seed=3)[0], env.reset(seed=3)[0])


def test_drawn_images_are_stored_without_loss():
    env = ResizeObservation(AddRenderObservation(jaxenvs.make("CartPole-v1")), (84, 84))
    envs = jaxenvs.vectorize(env, 2)
    trajectory = play(envs, 4)
    (first, *_) = to_minari(trajectory, envs, "pixels-v0")
    assert len(np.unique(first.observations)) > 2
    np.testing.assert_array_equal(first.observations[:4], trajectory.observation[:, 0])


@pytest.mark.parametrize("data_format", ["hdf5", "parquet"])
def test_missions_are_stored_as_text_and_read_as_words(data_format):
    level = jaxenvs.make("BabyAI-GoToLocal-v0")
    envs = jaxenvs.vectorize(level, 4)
    trajectory = play(envs, 70)
    dataset = to_minari(
        trajectory,
        envs,
        "missions-v0",
        decode={"mission": level.decode_mission},
        data_format=data_format,
    )
    texts = {text for episode in dataset for text in episode.observations["mission"]}
    assert len(texts) >= 4 and all(text.startswith("go to ") for text in texts)
    assert all(dataset.observation_space["mission"].contains(text) for text in texts)
    back = from_minari(dataset, encode={"mission": lambda text: level.encode_mission(text=text)})
    chex.assert_trees_all_equal(back, per_instance(with_a_cut_tail(trajectory)).replace(info={}))
    with pytest.raises(ParameterError, match=r'encode=."mission"'):
        from_minari(dataset)


def test_data_of_minigrid_itself_are_read():
    pytest.importorskip("minigrid")
    level = jaxenvs.make("MiniGrid-GoToDoor-5x5-v0")
    env = gymnasium.make("MiniGrid-GoToDoor-5x5-v0", max_steps=5)
    text = gymnasium.spaces.Text(50, charset="abcdefghijklmnopqrstuvwxyz ")
    space = gymnasium.spaces.Dict({**env.observation_space.spaces, "mission": text})
    collector = minari.DataCollector(env, observation_space=space)
    for seed in (1, 2):
        observations = [collector.reset(seed=seed)[0]]
        for _ in range(5):
            observations.append(collector.step(1)[0])
    dataset = collector.create_dataset("theirs-v0")
    back = from_minari(dataset, encode={"mission": lambda text: level.encode_mission(text=text)})
    assert (
        level.decode_mission(back.final_observation["mission"][-1]) == observations[-1]["mission"]
    )
    np.testing.assert_array_equal(back.final_observation["image"][-1], observations[-1]["image"])
    np.testing.assert_array_equal(back.truncated, [False, False, False, False, True] * 2)


def test_an_episode_without_a_flag_ends_truncated():
    lines = np.arange(8, dtype=np.float64)[:, None]
    buffers = [
        minari.data_collector.EpisodeBuffer(
            observations=lines[: size + 1] + first,
            actions=np.zeros(size, np.int64),
            rewards=np.ones(size),
            terminations=np.zeros(size, bool),
            truncations=np.zeros(size, bool),
        )
        for first, size in [(0, 2), (10, 1)]
    ]
    options = {
        "observation_space": gymnasium.spaces.Box(-np.inf, np.inf, (1,), np.float32),
        "action_space": gymnasium.spaces.Discrete(2),
    }
    dataset = minari.create_dataset_from_buffers("plain-v0", buffers, **options)
    back = from_minari(dataset)
    assert isinstance(back, Trajectory) and back.observation.dtype == jnp.float32
    assert back.observation.ravel().tolist() == [0, 1, 10]
    assert back.final_observation.ravel().tolist() == [1, 2, 11]
    assert back.truncated.tolist() == [False, True, True] and not back.terminated.any()
    assert from_minari(dataset.filter_episodes(lambda each: len(each) == 1)).reward.shape == (1,)
    with pytest.raises(ParameterError, match="no episodes"):
        from_minari(dataset.filter_episodes(lambda each: False))


def test_episodes_with_too_many_observations_are_refused():
    buffer = minari.data_collector.EpisodeBuffer(
        observations=np.zeros((4, 1), np.float32),
        actions=np.zeros(2, np.int64),
        rewards=np.ones(2),
        terminations=np.zeros(2, bool),
        truncations=np.ones(2, bool),
    )
    dataset = minari.create_dataset_from_buffers(
        "wrong-v0",
        [buffer],
        observation_space=gymnasium.spaces.Box(-1, 1, (1,), np.float32),
        action_space=gymnasium.spaces.Discrete(2),
    )
    with pytest.raises(ParameterError, match=r"got 4 observations in episode 0.*expected 3"):
        from_minari(dataset)


def test_wrong_arguments_are_refused_before_anything_is_written(tmp_path):
    envs, others = jaxenvs.make_vec("CartPole-v1", 2), jaxenvs.make_vec("Pendulum-v1", 2)
    result = jaxenvs.rollout(envs, None, 3, KEY)
    trajectory = result.trajectory
    for arguments, options, words in [
        ((result, envs), {}, "rollout.*trajectory"),
        ((trajectory, envs.env), {}, "expected a trajectory and the batch"),
        ((trajectory, others), {}, "observation is float32.*expected float32"),
        ((trajectory.replace(action=trajectory.reward[..., None]), envs), {}, "action is float32"),
        ((trajectory, envs), {"unfinished": "cut"}, "unfinished=\"cut\"|unfinished='cut'"),
        ((trajectory, envs), {"unfinished": "drop"}, "contain no episode"),
        ((trajectory, envs), {"decode": {"mission": str}}, 'decode for "mission"'),
        ((per_instance(trajectory), envs), {}, "observation is float32.6, 4."),
    ]:
        with pytest.raises(ParameterError, match=words):
            to_minari(*arguments, "wrong-v0", **options)
    assert not [*tmp_path.iterdir()]
