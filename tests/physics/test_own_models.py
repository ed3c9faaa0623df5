"""Models of the user as environments, on any engine."""

import functools

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxenvs import spaces
from jaxenvs.errors import ParameterError, WrapperError
from jaxenvs.suites import adapt
from jaxenvs.testing import check_env
from jaxenvs.wrappers import TimeLimit

SKIP = 3
XML = """
<mujoco>
  <option timestep="0.01" integrator="Euler" iterations="2" ls_iterations="4"/>
  <worldbody>
    <body>
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom size="0.1" mass="1"/>
      <body>
        <joint type="hinge" axis="0 1 0"/>
        <geom type="capsule" size="0.03" fromto="0 0 0 0 0 1" rgba="1 0 0 1"/>
      </body>
    </body>
  </worldbody>
  <actuator> <motor joint="slide" gear="10" ctrllimited="true" ctrlrange="-1 2"/> </actuator>
</mujoco>
"""
ENGINES = ["c", pytest.param("mjx", marks=pytest.mark.slow)]


@functools.cache
def model():
    return mujoco.MjModel.from_xml_string(XML)


@functools.cache
def env(engine):
    return adapt(
        model(),
        engine=engine,
        frame_skip=SKIP,
        observe=lambda data: {"joints": (data.qpos, data.qvel), "tip": data.xpos[2]},
        reward=lambda data, action, next_data: next_data.xpos[1, 0] - data.xpos[1, 0],
        terminated=lambda data: data.qpos[1] > 1.5,
        initialize=lambda start, key: start.replace(
            qpos=start.qpos + 0.1 * jax.random.normal(key, start.qpos.shape)
        ),
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_episode_equals_that_of_a_loop(engine):
    state, timestep = jax.jit(env(engine).reset)(jax.random.key(0))
    data = mujoco.MjData(model())
    data.qpos[:] = state.qpos
    mujoco.mj_forward(model(), data)
    step = jax.jit(env(engine).step)
    for control in np.linspace(-1, 2, 20, dtype=np.float32):
        before = data.xpos[1, 0]
        data.ctrl[:] = control
        mujoco.mj_step(model(), data, SKIP)
        state, timestep = step(state, control[None], jax.random.key(1))
        expected = {"joints": (data.qpos, data.qvel), "tip": data.xpos[2]}
        close = functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
        jax.tree.map(close, timestep.observation, expected)
        close(timestep.reward, data.xpos[1, 0] - before)
        assert timestep.terminated == (data.qpos[1] > 1.5)
        if timestep.terminated:
            return
    raise AssertionError("the pole did not fall")


@pytest.mark.parametrize("engine", ENGINES)
def test_own_model_follows_the_contract(engine):
    check_env(TimeLimit(env(engine), time_limit=5), num_steps=12, num_envs=4)


def test_spaces_follow_from_the_functions():
    observation = env("c").observation_space
    assert isinstance(observation["joints"], spaces.Tuple) and observation["tip"].shape == (3,)
    np.testing.assert_array_equal(env("c").action_space.bounds, [[-1], [2]])


def test_the_physics_can_differ_between_instances():
    def speed(factor):
        changed = env("c").replace(physics={"actuator_gear": model().actuator_gear * factor})
        state, _ = changed.reset(jax.random.key(0))
        return changed.step(state, jnp.ones(1), jax.random.key(0))[1].observation["joints"][1][0]

    weak, strong = jax.jit(jax.vmap(speed))(jnp.array([1.0, 3.0]))
    assert strong > weak + 0.1


def test_pictures_show_the_model():
    state, _ = env("c").reset(jax.random.key(0))
    picture = np.asarray(jax.jit(env("c").render)(state))
    assert (picture[..., 0] > picture[..., 1] + 50).any()  # red


def test_other_objects_and_options_are_refused():
    with pytest.raises(WrapperError, match="expected an environment of mujoco"):
        adapt(mujoco.MjData(model()), observe=None, reward=None)
    with pytest.raises(ParameterError, match=r'no array "mass".*Close: .*body_mass'):
        env("c").replace(physics={"mass": 1})
    with pytest.raises(AttributeError, match="no attribute 'qposs'"):
        env("c").replace(observe=lambda data: data.qposs).observation_space  # noqa: B018
