"""Tasks with MuJoCo, by what random play and the certificates do not show."""

import jax
import numpy as np
import pytest

import jaxenvs
from benchmarks import certify
from benchmarks.oracles import oracle_for
from tests.ids import one_mujoco_id_per_class, physics_ids

suite = pytest.importorskip("dm_control.suite")

# Random play takes long to reach a reward in these tasks.
PAYING_STATES = {
    "dm_control/cartpole-swingup": {"qpos": [0, 0]},
    "dm_control/cartpole-swingup_sparse": {"qpos": [0, 0]},
    "dm_control/finger-spin": {"qvel": [0, 0, -20]},
}
SUITE = [id for id in physics_ids() if jaxenvs.registry[id].family == "dm_control"]
DRAWN = "dm_control/point_mass-hard"  # whose episodes draw the directions of forces
QUICK = {*one_mujoco_id_per_class(), *PAYING_STATES, DRAWN}
each_id = pytest.mark.parametrize(
    "id", [id if id in QUICK else pytest.param(id, marks=pytest.mark.slow) for id in SUITE]
)


@each_id
def test_spaces_and_control_steps_are_those_of_the_suite(id):
    env = jaxenvs.make(id)
    theirs = suite.load(*id.partition("/")[2].split("-"))
    shown = {name: each.shape for name, each in theirs.observation_spec().items()}
    assert {name: box.shape for name, box in env.observation_space.spaces.items()} == shown
    spec = theirs.action_spec()
    np.testing.assert_array_equal(env.action_space.low, np.float32(spec.minimum))
    np.testing.assert_array_equal(env.action_space.high, np.float32(spec.maximum))
    assert env.unwrapped.n_sub_steps == theirs._n_sub_steps
    expected = None if id.startswith("dm_control/lqr") else 1000
    assert env.time_limit == expected and theirs._step_limit == (expected or np.inf)


@each_id
def test_a_step_that_pays_equals_that_of_the_suite(id):
    with certify.precision({"dtype": "float64"}):
        env = jaxenvs.make(id, dtype="float64", engine="c").unwrapped
        oracle = oracle_for(env)(env, 0)
        for _ in range(10_000):
            oracle.reset()
            before = oracle.get_state()
            for name, value in PAYING_STATES.get(id, {}).items():
                getattr(before, name)[:] = value
                oracle.set_state(before)
            before, action = oracle.get_state(), oracle.sample_action()
            observation, reward, terminated = oracle.step(action)
            if reward > 1e-3:
                break
        assert reward > 1e-3
        state, timestep = jax.jit(env.step)(before, action, jax.random.key(0))
        np.testing.assert_array_equal(state.kept, oracle.get_state().kept)
        np.testing.assert_allclose(timestep.reward, reward, atol=1e-14)
        assert timestep.terminated == terminated
        for name, expected in observation.items():
            np.testing.assert_allclose(timestep.observation[name], expected, rtol=0, atol=1e-14)
