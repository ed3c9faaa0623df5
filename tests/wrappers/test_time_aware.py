import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv, check_env
from jaxenvs.wrappers import TimeAwareObservation, TimeLimit
from tests.ids import every_nth
from tests.wrappers._batches import MODES
from tests.wrappers._observations import assert_as_in_gymnasium, record_batch

LIMIT = 3


def limited(layout="array"):
    return TimeLimit(CountingEnv(lengths=(2, 5), layout=layout), time_limit=LIMIT)


@pytest.mark.parametrize(
    ("layout", "options"),
    every_nth(
        2,
        [
            ("array", {}),
            ("array", {"normalize_time": True, "flatten": False}),
            ("dict", {"flatten": False, "dict_time_key": "steps"}),
            ("tuple", {"flatten": False}),
            ("tuple", {"normalize_time": True}),
        ],
    ),
)
def test_observations_match_gymnasium(layout, options):
    assert_as_in_gymnasium(
        lambda env: TimeAwareObservation(env, **options),
        lambda env: gymnasium.wrappers.TimeAwareObservation(
            gymnasium.wrappers.TimeLimit(env, LIMIT), **options
        ),
        limited(layout),
    )


@pytest.mark.parametrize("mode", every_nth(3, MODES, first=2))
def test_time_restarts_with_every_episode(mode):
    timesteps = record_batch(
        lambda env: env.wrap(TimeAwareObservation, default_time_limit=LIMIT), limited(), mode
    )
    for observation in (timesteps.observation, timesteps.final_observation):
        count, time = np.asarray(observation)[..., 0], np.asarray(observation)[..., 2]
        np.testing.assert_array_equal(time, count)
    assert bool(timesteps.truncated.any()) and bool(timesteps.terminated.any())


@pytest.mark.parametrize("layout", every_nth(2, ["array", "dict"], first=1))
def test_time_aware_observation_passes_check_env(layout):
    env = TimeAwareObservation(limited(layout), flatten=False, normalize_time=layout == "dict")
    check_env(env, num_steps=16, num_envs=4)


def test_limits_can_differ_between_instances():
    limits = jnp.array([2, 4], jnp.int32)
    env = TimeAwareObservation(TimeLimit(CountingEnv(lengths=(9,)), time_limit=limits), False, True)
    vector_env = jaxenvs.vectorize(env, 2, batched=("time_limit",))
    key = jax.random.key(0)
    state, _ = jax.jit(vector_env.reset)(key)
    timestep = jax.jit(vector_env.step)(state, np.zeros(2, np.int32), key)[1]
    np.testing.assert_array_equal(timestep.observation["time"], [[0.5], [0.25]])


def test_replacing_the_limit_changes_the_space():
    env = TimeAwareObservation(jaxenvs.make("CartPole-v1"), flatten=False)
    assert env.observation_space["time"] == spaces.Box(0, 500, (1,), jnp.int32)
    env = env.replace(time_limit=20, gravity=3.7)
    assert env.observation_space["time"] == spaces.Box(0, 20, (1,), jnp.int32)


def test_missing_limit_is_reported():
    with pytest.raises(WrapperError, match="Wrap it in TimeLimit"):
        TimeAwareObservation(CountingEnv())


def test_existing_key_is_reported():
    with pytest.raises(WrapperError, match='dict_time_key="draw"'):
        TimeAwareObservation(limited("dict"), dict_time_key="draw")
