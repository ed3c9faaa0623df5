"""The ids of jaxenvs in Gymnasium's registry."""

import functools
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import jaxenvs
from jaxenvs.errors import ParameterError, UnknownParameterError
from jaxenvs.faces import GymEnv, GymVectorEnv
from jaxenvs.registry import LIMITED
from jaxenvs.testing import CountingEnv
from jaxenvs.wrappers import ScaleReward, TimeLimit

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture
def register():
    """`jaxenvs.register`, undone after the test, in both registries."""
    tables = [(table, dict(table)) for table in (jaxenvs.registry, gymnasium.registry)]
    yield jaxenvs.register
    for table, before in tables:
        table.clear()
        table.update(before)


@pytest.mark.parametrize("order", ["jaxenvs, gymnasium", "gymnasium, jaxenvs"])
def test_import_registers_every_id_without_importing_jax(order):
    code = (
        f"import sys, {order}\n"
        "missing = [id for id in jaxenvs.registry"
        " if f'jaxenvs/{id.replace(chr(47), chr(45))}' not in gymnasium.registry]\n"
        "print(missing, len(jaxenvs.registry) > 0, 'jax' in sys.modules)"
    )
    assert python(code) == "[] True False"


def test_an_id_that_names_the_module_needs_no_import():
    code = (
        "import gymnasium\n"
        "print(type(gymnasium.make('jaxenvs:jaxenvs/CartPole-v1').unwrapped).__name__)\n"
        "envs = gymnasium.make_vec('jaxenvs:jaxenvs/CartPole-v1', num_envs=3)\n"
        "print(type(envs).__name__, envs.reset(seed=0)[0].shape)"
    )
    assert python(code) == "GymEnv\nGymVectorEnv (3, 4)"


def python(code):
    """Returns what `code` prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_gymnasium_knows_every_id_with_its_limit_and_threshold():
    for id, spec in jaxenvs.registry.items():
        entry = gymnasium.spec(f"jaxenvs/{id.replace('/', '-')}")
        limit = None if spec.family in LIMITED else spec.time_limit  # those keep their own
        assert entry.max_episode_steps == limit
        assert entry.reward_threshold == spec.reward_threshold
    assert gymnasium.spec("jaxenvs/CartPole-v1").reward_threshold == 475.0


def test_the_time_limit_is_applied_once():
    env = gymnasium.make("jaxenvs/Pendulum-v1", max_episode_steps=3)
    assert isinstance(env, gymnasium.wrappers.TimeLimit) and isinstance(env.unwrapped, GymEnv)
    assert not isinstance(env.unwrapped.env.env, TimeLimit)
    assert lengths_of_episodes(env, 2) == [3, 3]

    env = gymnasium.make("jaxenvs/CartPole-v1", max_episode_steps=-1)
    assert not isinstance(env, gymnasium.wrappers.TimeLimit)
    assert not isinstance(env.unwrapped.env.env, TimeLimit)

    envs = gymnasium.make_vec("jaxenvs/Pendulum-v1", num_envs=2, max_episode_steps=3)
    assert isinstance(envs, GymVectorEnv) and int(envs.env.env.time_limit) == 3
    envs = gymnasium.make_vec("jaxenvs/Pendulum-v1", num_envs=2, max_episode_steps=-1)
    assert not isinstance(envs.env.env, TimeLimit)
    assert int(gymnasium.make_vec("jaxenvs/Pendulum-v1").env.env.time_limit) == 200


def lengths_of_episodes(env, episodes):
    lengths = []
    for episode in range(episodes):
        env.reset(seed=episode)
        truncated, length = False, 0
        while not truncated:
            truncated, length = env.step(env.action_space.sample())[3], length + 1
        lengths.append(length)
    return lengths


@pytest.mark.parametrize("num_envs", [None, 3])
def test_gymnasium_makes_what_make_gym_makes(num_envs):
    env = jaxenvs.make_gym("CartPole-v1", num_envs)
    id = "jaxenvs/CartPole-v1"
    made = gymnasium.make(id) if num_envs is None else gymnasium.make_vec(id, num_envs)
    assert (made.observation_space, made.action_space) == (env.observation_space, env.action_space)
    np.testing.assert_array_equal(made.reset(seed=5)[0], env.reset(seed=5)[0])
    env.action_space.seed(0)
    for _ in range(8):  # no pole falls that early
        action = env.action_space.sample()
        np.testing.assert_equal(made.step(action), env.step(action))


def test_options_of_make_gym_and_parameters_are_passed_on():
    env = gymnasium.make("jaxenvs/Pendulum-v1", g=3.7, render_mode="rgb_array")
    assert env.get_wrapper_attr("g") == 3.7
    env.reset()
    assert env.render().dtype == np.uint8
    envs = gymnasium.make_vec(
        "jaxenvs/Pendulum-v1",
        num_envs=2,
        g=3.7,
        autoreset_mode="same_step",
        native_wrappers=[functools.partial(ScaleReward, scale=0.5)],
    )
    assert envs.get_attr("g") == (3.7, 3.7)
    assert envs.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    assert isinstance(envs.env.env, ScaleReward)


def test_sync_vectorization_uses_single_environments():
    envs = gymnasium.make_vec("jaxenvs/CartPole-v1", num_envs=3, vectorization_mode="sync")
    assert isinstance(envs, gymnasium.vector.SyncVectorEnv)
    assert envs.reset(seed=0)[0].shape == (3, 4)


@pytest.mark.parametrize("id", ["jaxenvs/CartPol-v1", "jaxenvs/CartPole-v7", "jaxenv/CartPole-v1"])
def test_an_unknown_id_raises_gymnasium_s_error_with_a_hint(id):
    for make in (gymnasium.make, gymnasium.make_vec, gymnasium.spec):
        with pytest.raises(gymnasium.error.UnregisteredEnv, match=r"CartPole|\[v0, v1\]|jaxenvs"):
            make(id)


def test_unknown_options_are_named_in_the_error():
    for make in (gymnasium.make, gymnasium.make_vec):
        with pytest.raises(UnknownParameterError, match='"gravity"'):
            make("jaxenvs/CartPole-v1", gravitty=3.7)
        with pytest.raises(ParameterError, match="rgb_array"):
            make("jaxenvs/CartPole-v1", render_mode="rgb")
    with pytest.raises(UnknownParameterError, match="argument 'time_limt'"):  # for TorchRL
        gymnasium.make("jaxenvs/CartPole-v1", time_limt=3)


def test_ids_that_are_registered_later_appear(register):
    assert "jaxenvs/LateCount-v0" not in gymnasium.registry
    register("LateCount-v0", CountingEnv, time_limit=4, reward_threshold=2.0)
    assert isinstance(gymnasium.make("jaxenvs/LateCount-v0").unwrapped.env.env, CountingEnv)
    assert gymnasium.spec("jaxenvs/LateCount-v0").reward_threshold == 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register("LateCount-v0", CountingEnv, time_limit=9, overwrite=True)
    assert gymnasium.spec("jaxenvs/LateCount-v0").max_episode_steps == 9


def test_slashes_become_hyphens_and_unparsable_ids_are_skipped(register):
    register("tests/sub/Count-v0", CountingEnv)
    assert gymnasium.make_vec("jaxenvs/tests-sub-Count-v0", 2).reset(seed=0)[0].shape == (2, 2)
    register("Count to five!", CountingEnv)
    assert isinstance(jaxenvs.make("Count to five!"), CountingEnv)
    assert not [id for id in gymnasium.registry if "five" in id]


@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"g": 3.7, "time_limit": 7, "seed": 3},
        {"render_mode": "rgb_array", "autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP},
        {"device": jax.devices("cpu")[1], "validate": False, "time_limit": None},
    ],
    ids=str,
)
def test_a_spec_makes_an_equal_environment(num_envs, options):
    env = jaxenvs.make_gym("Pendulum-v1", num_envs, **options)
    observations, _ = env.reset(seed=1)
    copies = (env.spec, pickle.loads(pickle.dumps(env.spec)), EnvSpec.from_json(env.spec.to_json()))
    for spec in copies:
        again = gymnasium.make(spec) if num_envs is None else gymnasium.make_vec(spec)
        assert type(again.unwrapped) is type(env)
        assert again.spec.id == "jaxenvs/Pendulum-v1"
        assert again.spec.max_episode_steps == options.get("time_limit", 200)
        assert repr(again.unwrapped.env.env.unwrapped) == repr(env.env.env.unwrapped)
        assert again.unwrapped.env.autoreset_mode == env.env.autoreset_mode
        assert env.spec.kwargs.items() <= again.spec.kwargs.items()
        np.testing.assert_array_equal(again.reset(seed=1)[0], observations)


@pytest.mark.parametrize("num_envs", [None, 3])
def test_a_spec_keeps_native_wrappers(num_envs):
    wrappers = [functools.partial(ScaleReward, scale=0.5)]
    env = jaxenvs.make_gym("CartPole-v1", num_envs, wrappers=wrappers)
    again = gymnasium.make(env.spec) if num_envs is None else gymnasium.make_vec(env.spec)
    again.reset(seed=0)
    assert np.all(again.step(again.action_space.sample())[1] == 0.5)
