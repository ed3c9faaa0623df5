"""Observations, rewards, and flags of every physics task, read from the data of C MuJoCo.

Nothing is simulated in MJX, which would take long to compile; the certificates compare whole steps.
Each task of the Control Suite is compared where it pays, too.
"""

import jax
import numpy as np
import pytest

import jaxenvs
from benchmarks.oracles import oracle_for
from tests.ids import physics_ids

pytest.importorskip("mujoco.mjx")
suite = pytest.importorskip("dm_control.suite")

from jaxenvs.envs.mujoco._mjx import conventions, mjx  # noqa: E402

NUM_STEPS = 4
# Random play takes long to reach a reward in these tasks.
PAYING_STATES = {
    "dm_control/cartpole-swingup": {"qpos": [0, 0]},
    "dm_control/cartpole-swingup_sparse": {"qpos": [0, 0]},
    "dm_control/finger-spin": {"qvel": [0, 0, -20]},
}


def ids(family):
    return [id for id in physics_ids() if jaxenvs.registry[id].family == family]


def assert_equal(found, expected, dtype="float32"):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert np.asarray(ours).dtype in (dtype, bool)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("id", ids("mujoco"))
def test_observations_and_rewards_match_gymnasium(id):
    env = jaxenvs.make(id).unwrapped
    oracle = oracle_for(env)(env, 0)
    oracle.reset()
    duration = env.frame_skip * env._original.opt.timestep

    @jax.jit
    def see(data, before, action):
        found = env._judge(data, action, (env._place(data) - before) / duration)
        return env._observe_data(data), env._describe(data), found

    for _ in range(NUM_STEPS):
        before, action = oracle.get_state(), oracle.sample_action()
        observation, reward, terminated = oracle.step(action)
        with conventions("float32"):
            data = mjx.put_data(env._original, oracle.reference.data, impl="jax")
            seen, info, found = see(data, before.place.astype(np.float32), action)
        assert_equal(seen, observation)
        assert_equal({**info, **found[2]}, oracle.info)
        np.testing.assert_allclose(found[0], reward, rtol=1e-3, atol=1e-3)
        assert found[1] == terminated


@pytest.fixture(scope="module", params=ids("dm_control"))
def suite_task(request):
    """An environment of the Control Suite and its oracle, which take a while to make."""
    env = jaxenvs.make(request.param)
    return request.param, env, oracle_for(env.unwrapped)(env.unwrapped, 0)


def test_spaces_and_control_steps_are_those_of_the_suite(suite_task):
    id, env, _ = suite_task
    theirs = suite.load(*id.partition("/")[2].split("-"))
    shown = {name: each.shape for name, each in theirs.observation_spec().items()}
    assert {name: box.shape for name, box in env.observation_space.spaces.items()} == shown
    spec = theirs.action_spec()
    np.testing.assert_array_equal(env.action_space.low, np.float32(spec.minimum))
    np.testing.assert_array_equal(env.action_space.high, np.float32(spec.maximum))
    assert env.unwrapped.n_sub_steps == theirs._n_sub_steps
    expected = None if id.startswith("dm_control/lqr") else 1000
    assert env.time_limit == expected and theirs._step_limit == (expected or np.inf)


def test_observations_and_rewards_match_the_control_suite(suite_task):
    id, env, oracle = suite_task
    env = env.unwrapped

    @jax.jit
    def see(data, state, action):
        model = env._model_of(state)
        return env._see(model, data), env._judge(model, data, action), env._has_ended(data)

    def step_and_compare(least=-np.inf):
        """Compares a step, unless it pays less."""
        action = oracle.sample_action()
        observation, reward, terminated = oracle.step(action)
        if reward < least:
            return False
        with conventions("float32"):
            data = mjx.put_data(env._original, oracle.reference.physics.data.ptr, impl="jax")
            seen, paid, ended = see(data, oracle.get_state(), action)
        assert_equal(seen, observation)
        np.testing.assert_allclose(paid, reward, atol=1e-4)
        assert ended == terminated
        return True

    oracle.reset()
    for _ in range(NUM_STEPS):
        step_and_compare()
    oracle.reset()
    for path, value in PAYING_STATES.get(id, {}).items():
        state = oracle.get_state()
        getattr(state, path)[:] = value
        oracle.set_state(state)
    for _ in range(10_000):  # until a step pays
        if step_and_compare(1e-3):
            return
        oracle.reset()
    raise AssertionError("no step paid")
