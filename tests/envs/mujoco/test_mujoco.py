"""Gymnasium's MuJoCo tasks. tests/parity compares them with Gymnasium's."""

import inspect

import gymnasium
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.mujoco import InvertedPendulum
from jaxenvs.errors import ActionError, ParameterError
from jaxenvs.faces._third_party import make_batch_for, make_env_for
from jaxenvs.faces.gym_env import innermost
from jaxenvs.physics import models
from jaxenvs.testing import check_env
from tests.ids import physics_ids

IDS = [id for id in physics_ids() if jaxenvs.registry[id].family == "mujoco"]
SMALL = "InvertedPendulum-v5"


@pytest.mark.parametrize("id", IDS)
def test_spaces_are_gymnasiums_for_all_ways_to_observe(id):
    ways = [{}]
    for name in jaxenvs.make(id).parameters:
        if name.startswith(("include_", "exclude_")):
            ways += [{name: False}, {**ways[-1], name: False}]
    for way in ways:
        ours, theirs = jaxenvs.make(id, **way), gymnasium.make(id, **way)
        assert ours.observation_space.shape == theirs.observation_space.shape
        assert ours.action_space == jaxenvs.spaces.from_gymnasium(theirs.action_space)


@pytest.mark.parametrize("id", IDS)
def test_every_option_of_gymnasium_has_its_default(id):
    made = gymnasium.make(id).unwrapped
    options = dict(made._ezpickle_kwargs)
    parameters = inspect.signature(type(made).__init__).parameters
    defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
    defaults |= options
    del defaults["default_camera_config"]
    ours = jaxenvs.make(id).parameters
    for name, value in defaults.items():
        assert ours[name] == value, name


def test_changed_physics_change_the_motion_of_each_instance():
    gravity = np.array([[0.0, 0.0, -9.81], [0.0, 0.0, 0.0], [0.0, 0.0, 9.81]])
    env = jaxenvs.make_vec(
        SMALL,
        3,
        batched=["physics"],
        physics={"opt.gravity": gravity},
        reset_noise_scale=0.0,
    )
    key = jax.random.key(0)
    state, _ = jax.device_get(jax.jit(env.reset)(key))
    state = state.replace(inner=state.inner.replace(qpos=np.float32([[0, 0.1]] * 3)))
    own = jax.tree.map(lambda leaf: leaf[2], state.inner)
    step = jax.jit(env.step)
    for _ in range(5):
        state, timestep = step(state, np.zeros((3, 1), np.float32), key)
    angle = np.asarray(timestep.observation)[:, 1]
    assert angle[0] > 0.101 and abs(angle[1] - 0.1) < 1e-6 and angle[2] < 0.099
    alone = jaxenvs.make(SMALL, physics={"opt.gravity": (0.0, 0.0, 9.81)}).unwrapped
    step = jax.jit(alone.step)
    for _ in range(5):
        own, timestep = step(own, np.zeros(1, np.float32), key)
    np.testing.assert_allclose(timestep.observation[1], angle[2], rtol=1e-5)


@pytest.mark.slow
def test_step_can_be_differentiated_forward():
    env = jaxenvs.make(SMALL, engine="mjx").unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))

    def angle(action):
        return env.step(state, action[None], jax.random.key(0))[0].qpos[1]

    @jax.jit
    def with_slopes(actions):
        return jax.lax.map(lambda x: jax.jvp(angle, (x,), (jnp.float32(1),)), actions)

    (low, _, high), (_, slope, _) = jax.device_get(with_slopes(np.float32([-0.5, 0.5, 1.5])))
    difference = (high - low) / 2
    np.testing.assert_allclose(slope, difference, rtol=1e-2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"xml_file": "anty.xml"}, "no file .*anty.xml.*Close: .*ant.xml"),
        ({"xml_file": "./none.xml"}, "no file none.xml"),
        ({"frame_skip": 0}, "frame_skip"),
        ({"dtype": "float16"}, 'dtype=.*expected "float32" or "float64"'),
        ({"dtype": "float64"}, "jax_enable_x64"),
        ({"physics": {"gravity": (0, 0, 0)}}, 'no array "gravity".*opt.gravity'),
        ({"physics": {"opt.gravity": 1.0}}, r"shape \[\]; expected \[3\]"),
        ({"physics": {"opt.gravity": np.zeros((2, 2, 3))}}, r"shape \[2, 2, 3\]"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        jaxenvs.make("Ant-v5", **options)


def test_own_model_file_is_loaded(tmp_path):
    path = tmp_path / "heavy.xml"
    path.write_text((models._assets() / "ant.xml").read_text().replace("5.0", "50.0"))
    assert models.load(str(path)).body_mass[1] == pytest.approx(
        10 * models.load("ant.xml").body_mass[1]
    )
    assert jaxenvs.make("Ant-v5", xml_file=str(path)).observation_space.shape == (105,)


def test_actuators_with_a_state_need_c(tmp_path):
    path = tmp_path / "slow.xml"
    text = (models._assets() / "inverted_pendulum.xml").read_text()
    path.write_text(text.replace("<motor", '<general dyntype="filter" dynprm="1"'))
    with pytest.raises(ParameterError, match=r'engine="mjx": it does not integrate.*engine="c"'):
        jaxenvs.make(SMALL, xml_file=str(path), engine="mjx")
    env = jaxenvs.make(SMALL, xml_file=str(path)).unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    data = mujoco.MjData(env._original)
    data.qpos[:], data.qvel[:] = state.qpos, state.qvel
    mujoco.mj_forward(env._original, data)
    for _ in range(3):
        state, timestep = jax.jit(env.step)(state, np.ones(1, np.float32), jax.random.key(0))
        data.ctrl[:] = 1
        mujoco.mj_step(env._original, data, 2)
    expected = np.concatenate([data.qpos, data.qvel]).astype(np.float32)
    np.testing.assert_array_equal(timestep.observation, expected)


def test_actions_are_not_broadcast():
    env = jaxenvs.make("Reacher-v5")
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    with pytest.raises(ActionError, match=r"action is float32\[1\], expected float32\[2\]"):
        jax.eval_shape(env.step, state, np.zeros(1, np.float32), jax.random.key(0))


def test_pictures_follow_the_body():
    env = jaxenvs.make("Ant-v5").unwrapped
    state, _ = jax.device_get(jax.jit(env.reset)(jax.random.key(0)))
    far, crooked = np.arange(15) < 2, np.arange(15) >= 7
    draw = jax.jit(env.render)
    here = np.asarray(draw(state))
    there = np.asarray(draw(state.replace(qpos=state.qpos + np.float32(10 * far))))
    bent = np.asarray(draw(state.replace(qpos=state.qpos + np.float32(0.5 * crooked))))
    assert here.shape == (480, 480, 3) and here.dtype == np.uint8
    assert len(np.unique(here.reshape(-1, 3), axis=0)) > 100
    middle = (slice(180, 300), slice(180, 300))
    assert np.abs(here[middle].astype(float) - there[middle]).mean() < 0.1
    assert np.abs(here[middle].astype(float) - bent[middle]).mean() > 1


# Interfaces.


INTERFACES = {
    "make_vec": lambda **params: jaxenvs.make_vec(SMALL, 2, **params),
    "make_gym": lambda **params: jaxenvs.make_gym(SMALL, **params).env,
    "make_gym, batch": lambda **params: jaxenvs.make_gym(SMALL, 2, **params).env,
    "make_dm": lambda **params: jaxenvs.make_dm(SMALL, **params).env,
    "make_dm, batch": lambda **params: jaxenvs.make_dm(SMALL, 2, **params).env,
    "gymnasium": lambda **params: gymnasium.make(f"jaxenvs/{SMALL}", **params).unwrapped.env,
    "gymnasium, batch": lambda **params: gymnasium.make_vec(f"jaxenvs/{SMALL}", 2, **params).env,
    "JaxVecEnv": lambda **params: make_batch_for("JaxVecEnv", "next_step", SMALL, 2, params).env,
    "make_stoa": lambda **params: make_env_for("make_stoa", SMALL, "default", params),
}


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_interface_passes_the_engine_to_the_task(interface):
    make = INTERFACES[interface]
    assert isinstance(innermost(make()), InvertedPendulum)
    assert innermost(make(engine="mjx")).engine == "mjx"


@pytest.mark.parametrize("id", [SMALL, f"gymnasium/{SMALL}"])
def test_pools_host_gymnasiums_own_task(id):
    expected, _ = gymnasium.make(SMALL).reset(seed=3)
    with jaxenvs.make_pool(id, 1, backend="serial") as pool:
        np.testing.assert_array_equal(pool.reset(seed=3)[0][0], expected)


def play(env, steps=12):
    """Returns observations, rewards, and flags of an environment without noise at the start."""
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    step, shown = jax.jit(env.step), [timestep]
    actions = np.random.default_rng(0).uniform(
        env.action_space.low, env.action_space.high, (steps, *env.action_space.shape)
    )
    for i, action in enumerate(actions.astype(np.float32)):
        state, timestep = step(state, action, jax.random.key(i))
        shown.append(timestep)
    return [
        (t.observation, t.final_observation, t.reward, t.terminated, t.truncated) for t in shown
    ]


@pytest.mark.parametrize(
    ("id", "mode"),
    [
        (SMALL, "same_step"),
        ("Swimmer-v5", "same_step"),  # its reward is a velocity
        ("Hopper-v5", "next_step"),
        ("Ant-v5", "same_step"),
    ],
)
def test_batches_agree_with_those_of_gymnasiums_own_task(id, mode):
    how = {"autoreset_mode": mode, "reset_noise_scale": 0.0}
    native = jaxenvs.make_vec(id, 2, **how)
    hosted = jaxenvs.make_vec(f"gymnasium/{id}", 2, num_workers=1, **how)
    try:
        assert native.single_observation_space == hosted.single_observation_space
        assert native.single_action_space == hosted.single_action_space
        for ours, theirs in zip(play(native), play(hosted), strict=True):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)
    finally:
        hosted.close()


@pytest.mark.slow
def test_hopper_passes_check_env():
    check_env(jaxenvs.make("Hopper-v5"))
