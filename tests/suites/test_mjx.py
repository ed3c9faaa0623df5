"""Models of MuJoCo as environments, beside MJX itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.errors import RenderError, WrapperError
from jaxenvs.suites import adapt
from jaxenvs.testing import check_env
from jaxenvs.wrappers import TimeLimit

mujoco = pytest.importorskip("mujoco")
mjx = pytest.importorskip("mujoco.mjx")

pytestmark = pytest.mark.interop

SKIP, STEPS = 3, 20
XML = """
<mujoco>
  <option timestep="0.01" integrator="Euler" iterations="2" ls_iterations="4"/>
  <worldbody>
    <light pos="0 0 3"/>
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


@pytest.fixture(scope="module")
def model():
    return mujoco.MjModel.from_xml_string(XML)


@pytest.fixture(scope="module")
def env(model):
    return adapt(
        model,
        frame_skip=SKIP,
        observe=lambda data: jnp.concatenate([data.qpos, data.qvel]),
        reward=lambda data, action, next_data: next_data.qpos[0] - data.qpos[0],
        terminated=lambda data: data.qpos[1] > 2,
        initialize=lambda data, key: data.replace(
            qpos=data.qpos + 0.1 * jax.random.normal(key, data.qpos.shape)
        ),
    )


def test_trajectory_matches_mjx_bit_for_bit(env, model):
    raw, actions = mjx.put_model(model, impl="jax"), np.linspace(-1, 2, STEPS, dtype=np.float32)
    state, first = jax.jit(env.reset)(jax.random.key(0))
    data = mjx.make_data(model, impl="jax").replace(qpos=state.qpos)
    data = jax.jit(mjx.forward)(raw, data)
    step, physics = jax.jit(env.step), jax.jit(mjx.step)
    np.testing.assert_array_equal(first.observation, jnp.concatenate([data.qpos, data.qvel]))
    for action in actions[:, None]:
        before = data.qpos[0]
        state, timestep = step(state, action, jax.random.key(1))
        data = data.replace(ctrl=action)
        for _ in range(SKIP):
            data = physics(raw, data)
        jax.tree.map(np.testing.assert_array_equal, state, data)
        assert timestep.reward == data.qpos[0] - before
        assert timestep.terminated == (data.qpos[1] > 2)
    assert timestep.terminated


def test_mjx_follows_the_contract(env):
    check_env(TimeLimit(env, time_limit=5), num_steps=12, num_envs=4)


def test_controls_have_the_range_of_the_model(env):
    assert env.action_space.shape == (1,)
    np.testing.assert_array_equal(env.action_space.bounds, [[-1], [2]])


def test_the_physics_can_differ_between_instances(env):
    state, _ = env.reset(jax.random.key(0))

    def speed(factor):
        model = env.model.replace(actuator_gear=env.model.actuator_gear * factor)
        changed = env.replace(model=model)
        return changed.step(state, jnp.ones(1), jax.random.key(0))[1].observation[2]

    weak, strong = jax.jit(jax.vmap(speed))(jnp.array([1.0, 3.0]))
    assert strong > weak + 0.1


def test_pictures_show_the_model(env):
    state, _ = env.reset(jax.random.key(0))
    try:
        picture = np.asarray(env.render(state))
    except RenderError as error:
        pytest.skip(str(error))
    assert picture.shape == (240, 320, 3) and (picture[..., 0] > picture[..., 1] + 50).any()  # red
    np.testing.assert_array_equal(jax.jit(env.render)(state), picture)


def test_other_objects_of_mujoco_are_refused(model):
    with pytest.raises(WrapperError, match="expected an environment of mujoco"):
        adapt(mujoco.MjData(model), observe=None, reward=None)
