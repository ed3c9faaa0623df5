"""The Control Suite. tests/parity compares it with dm_control's."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ParameterError, UnknownParameterError

suite = pytest.importorskip("dm_control.suite")

from dm_control.utils import rewards  # noqa: E402

from jaxenvs.envs.dm_control.rewards import tolerance  # noqa: E402
from jaxenvs.envs.mujoco import rendering  # noqa: E402
from jaxenvs.physics.models import precision  # noqa: E402

PENDULUM = "dm_control/pendulum-swingup"
REACHER = "dm_control/reacher-easy"
ONLY_C = ("dm_control/dog-fetch", "dm_control/point_mass-hard", "dm_control/quadruped-escape")


@pytest.mark.parametrize(
    ("sigmoid", "value", "margin", "bounds"),
    list(
        itertools.product(
            ("gaussian", "linear", "long_tail", "quadratic"),
            (0.1, 0.5),
            (0, 0.7),
            ((0, 0), (-1, 2), (1, np.inf)),
        )
    ),
)
def test_tolerance_is_that_of_the_suite(sigmoid, value, margin, bounds):
    x = np.linspace(-4, 4, 81).astype(np.float32)
    expected = rewards.tolerance(x, bounds, margin, sigmoid, value)
    np.testing.assert_allclose(
        tolerance(jnp.asarray(x), bounds, margin, sigmoid, value), expected, rtol=1e-5, atol=1e-6
    )


def test_a_pool_of_the_suite_has_the_same_interface():
    native = jaxenvs.make_vec(PENDULUM, 2)
    pool = jaxenvs.make_pool(PENDULUM, 2, backend="serial", autoreset_mode="same_step")
    with pool:
        hosted = jaxenvs.HostEnv(pool)
        assert hosted.single_observation_space == native.single_observation_space
        assert hosted.single_action_space == native.single_action_space
        for env in (native, hosted):
            state, timestep = jax.jit(env.reset)(jax.random.key(0))
            turn = np.asarray(timestep.observation["orientation"])
            np.testing.assert_allclose((turn**2).sum(axis=1), 1, rtol=1e-5)
            action = np.zeros((2, 1), np.float32)
            state, timestep = jax.jit(env.step)(state, action, jax.random.key(1))
            assert timestep.observation["orientation"].dtype == np.float32
            assert timestep.reward.shape == (2,)


def test_every_task_of_the_suite_is_native():
    found = {id for id, spec in jaxenvs.registry.items() if spec.family == "dm_control"}
    assert found == {f"dm_control/{domain}-{task}" for domain, task in suite.ALL_TASKS}


# Tasks that only C MuJoCo simulates.


@pytest.mark.parametrize("id", ONLY_C)
def test_mjx_is_refused_where_it_cannot_simulate(id):
    with pytest.raises(ParameterError, match=r"engine='mjx', but MJX .*Pass engine=\"c\""):
        jaxenvs.make(id, engine="mjx")


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["mjx", "warp"])
def test_the_cheetah_settles_in_every_engine_before_it_starts(engine):
    if engine == "warp":
        pytest.importorskip("warp")
    env = jaxenvs.make("dm_control/cheetah-run", engine=engine).unwrapped
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    assert state.kept["qacc_warmstart"].shape == (9,)


@pytest.mark.parametrize(
    ("id", "name", "shape"),
    [
        ("dm_control/point_mass-hard", "wrap_prm", 4),
        ("dm_control/quadruped-escape", "hfield_data", 40_401),
    ],
)
def test_arrays_that_episodes_draw_are_refused(id, name, shape):
    with pytest.raises(ParameterError, match=f"{name}.*each episode draws"):
        jaxenvs.make(id, engine="c", physics={name: np.zeros(shape)})


def test_forces_of_the_point_mass_are_not_parallel():
    env = jaxenvs.make("dm_control/point_mass-hard", engine="c").unwrapped
    state, _ = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), 200))
    directions = np.asarray(state.drawn["wrap_prm"]).reshape(200, 2, 2)
    np.testing.assert_allclose(np.linalg.norm(directions, axis=2), 1, rtol=1e-6)
    cosines = np.abs((directions[:, 0] * directions[:, 1]).sum(axis=1))
    assert cosines.max() < 0.9 < cosines.max() + 0.05


def test_terrain_is_that_of_the_suite():
    from scipy import ndimage

    env = jaxenvs.make("dm_control/quadruped-escape", engine="c").unwrapped
    key = jax.random.key(0)
    bumps = jax.random.uniform(key, (30, 30), jnp.float32, 0.15, 1)
    x = np.linspace(-1, 1, 201)
    bowl = 0.5 - np.cos(2 * np.pi * np.clip(np.sqrt(x**2 + x[:, None] ** 2), 0.04, 1)) / 2
    expected = bowl * ndimage.zoom(bumps.astype(float), 201 / 30)
    with jax.default_matmul_precision("highest"):
        found = env._draw_terrain(key).reshape(201, 201)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_pictures_show_the_terrain():
    env = jaxenvs.make("dm_control/quadruped-escape", engine="c").unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    draw = jax.jit(env.render)
    flat = state.replace(drawn={"hfield_data": 0 * state.drawn["hfield_data"]})
    assert (draw(state) != draw(flat)).any(axis=-1).mean() > 0.3


def test_rays_end_on_the_terrain():
    def height(x, y):
        return 0.3 * jnp.sin(x) - 0.2 * y

    start = np.array([0, 0, 2], np.float32)
    rays = rendering._rays(np.array([0, 0.96, -0.28]), np.array([1, 0, 0]))
    with precision("float32"):
        distance = np.asarray(rendering._terrain(start, rays, height))
    x, y, z = np.moveaxis(start + distance[..., None] * rays, -1, 0)
    is_ground = distance < 50
    assert 0.5 < is_ground.mean() < 0.9  # above is the sky
    assert np.abs(z - height(x, y))[is_ground].max() < 0.05


@pytest.mark.slow
def test_pictures_show_the_dog():
    env = jaxenvs.make("dm_control/dog-stand", engine="c").unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    picture = np.asarray(jax.jit(env.render)(state)).astype(int)
    assert 0.02 < (picture[..., 1] > 2 * picture[..., 0] + 20).mean() < 0.5  # it is green


# Arrays of the model that an episode draws.


def test_pictures_show_the_target():
    env = jaxenvs.make(REACHER).unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    places = np.array(state.drawn["geom_pos"])
    target = env._original.geom("target").id
    draw, pictures = jax.jit(env.render), []
    for place in (0.1, -0.1):
        places[target, :2] = place
        pictures.append(np.asarray(draw(state.replace(drawn={"geom_pos": places.copy()}))))
    here, there = pictures
    changed = (here != there).any(axis=-1)
    assert changed[:240, 240:].any() and changed[240:, :240].any()


def test_undrawn_values_are_those_of_the_physics_parameter():
    usual = jaxenvs.make(REACHER).unwrapped
    places = usual._original.geom_pos + 0.25
    moved = usual.replace(physics={"geom_pos": places})
    state, _ = jax.device_get(jax.jit(moved.reset)(jax.random.key(0)))
    target = usual._original.geom("target").id
    np.testing.assert_allclose(
        np.delete(state.drawn["geom_pos"], target, 0), np.delete(places, target, 0), rtol=1e-6
    )
    assert np.linalg.norm(state.drawn["geom_pos"][target, :2]) < 0.21
    with pytest.raises(ParameterError, match="each episode draws its springs"):
        jaxenvs.make("dm_control/lqr-lqr_2_1", physics={"jnt_stiffness": np.ones(2)})


def test_rewards_depend_on_sizes_of_physics():
    usual = jaxenvs.make(REACHER).unwrapped
    sizes = usual._original.geom_size.copy()
    sizes[usual._original.geom("target").id, 0] = 1

    @jax.jit
    def reward(sizes):
        env, key = usual.replace(physics={"geom_size": sizes}), jax.random.key(0)
        return env.step(env.reset(key)[0], jnp.zeros(2), key)[1].reward

    assert reward(usual._original.geom_size) == 0 and reward(sizes) == 1


def test_a_time_limit_truncates_an_episode():
    env = jaxenvs.make(PENDULUM, time_limit=3)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    for i in range(3):
        state, timestep = step(state, np.zeros(1, np.float32), jax.random.key(i))
        assert bool(timestep.truncated) == (i == 2) and not timestep.terminated


def test_springs_at_rest_end_an_episode():
    env = jaxenvs.make("dm_control/lqr-lqr_2_1")
    reset = jax.jit(env.reset)
    state, again = (jax.device_get(reset(jax.random.key(seed))[0]) for seed in (0, 1))
    springs = state.drawn["jnt_stiffness"], again.drawn["jnt_stiffness"]
    assert not np.allclose(*springs) and all(((x >= 15) & (x < 25)).all() for x in springs)
    np.testing.assert_allclose((state.qpos**2).sum(), 2, rtol=1e-6)
    step = jax.jit(env.step)
    for size, ends in ((1e-4, False), (1e-8, True)):
        still = state.replace(qpos=np.full(2, size, np.float32))
        _, timestep = step(still, np.zeros(1, np.float32), jax.random.key(0))
        assert timestep.terminated == ends and timestep.reward > 0.999


def test_wrong_parameters_are_refused():
    with pytest.raises(ParameterError, match="1 <= n_actuators <= n_bodies"):
        jaxenvs.make("dm_control/lqr-lqr_2_1", n_actuators=3)
    with pytest.raises(ParameterError, match="n_sub_steps"):
        jaxenvs.make(PENDULUM, n_sub_steps=0)
    with pytest.raises(UnknownParameterError, match="move_speed"):
        jaxenvs.make(PENDULUM, move_speed=1.0)
    with pytest.raises(ParameterError, match="no array"):
        jaxenvs.make(PENDULUM, physics={"gravity": 0.0})
