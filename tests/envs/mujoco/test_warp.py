"""MuJoCo tasks in Warp, compared with C MuJoCo.

Kernels are compiled once per machine: all here take ten minutes the first time, then a minute.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.mujoco.base import MujocoState
from jaxenvs.errors import ParameterError
from tests.ids import physics_ids

pytest.importorskip("warp")

from jaxenvs.physics import warp
from jaxenvs.physics.models import Plan

IDS = [id for id in physics_ids() if jaxenvs.registry[id].family == "mujoco"]
SMALL = "InvertedPendulum-v5"
FIELDS = "geom_xmat", "geom_xpos"
NUM_ENVS = 64
NUM_PLAYED = 40


def played(id):
    """Returns states of C MuJoCo after some random play, actions, and keys."""
    env = jaxenvs.make(id, engine="c").unwrapped
    keys = jax.random.split(jax.random.key(0), NUM_ENVS)
    space, step = env.action_space, jax.vmap(env.step)
    shape = NUM_PLAYED, NUM_ENVS, *space.shape
    low, high = (jnp.broadcast_to(bound, shape) for bound in (space.low, space.high))
    actions = jax.random.uniform(jax.random.key(1), shape, minval=low, maxval=high)
    state, _ = jax.vmap(env.reset)(keys)
    state, _ = jax.lax.scan(lambda each, a: (step(each, a, keys)[0], None), state, actions)
    return state, actions[-1], keys


def without_warm_start(env, state):
    """Returns states of the engine for states of C MuJoCo."""
    kept = {
        "qacc_warmstart": jnp.zeros((NUM_ENVS, env._original.nv)),
        "act": jnp.zeros((NUM_ENVS, 0)),
    }
    return state.replace(kept=kept)


def errors(found, expected):
    """Returns the largest difference in each instance, relative to the largest value."""
    found, expected = (np.asarray(each).reshape(NUM_ENVS, -1) for each in (found, expected))
    return np.abs(found - expected).max(axis=1) / max(np.abs(expected).max(), 1e-9)


@pytest.mark.parametrize(
    "id", [pytest.param(id, marks=[pytest.mark.slow] * (id != SMALL)) for id in IDS]
)
def test_a_physics_step_in_warp_is_that_of_c(id):
    state, action, keys = jax.jit(played, static_argnums=0)(id)
    ours, theirs = (
        jaxenvs.make(id, engine=engine, frame_skip=1).unwrapped for engine in ("warp", "c")
    )
    expected, seen = jax.jit(jax.vmap(theirs.step))(state, action, keys)
    found, shown = jax.jit(jax.vmap(ours.step))(without_warm_start(ours, state), action, keys)
    assert not shown.info["diverged"].any()
    assert errors(found.qpos, expected.qpos).max() < 1e-5
    assert errors(found.qvel, expected.qvel).max() < 1e-5
    assert errors(shown.observation, seen.observation).max() < 1e-4
    assert errors(shown.reward, seen.reward).max() < 1e-4
    np.testing.assert_array_equal(shown.terminated, seen.terminated)


@pytest.mark.slow
def test_a_batch_of_batches_in_warp_is_one_batch():
    env = jaxenvs.make(SMALL, engine="warp").unwrapped
    keys = jax.random.split(jax.random.key(0), 6)
    state, _ = jax.jit(jax.vmap(env.reset))(keys)
    actions = jnp.linspace(-1, 1, 6)[:, None]
    flat = state, actions, keys
    deep = jax.tree.map(lambda x: x.reshape(3, 2, *x.shape[1:]), flat)
    expected, _ = jax.jit(jax.vmap(env.step))(*flat)
    found, _ = jax.jit(jax.vmap(jax.vmap(env.step)))(*deep)
    np.testing.assert_array_equal(found.qvel.reshape(6, -1), expected.qvel)


@pytest.mark.slow
def test_too_many_contacts_in_warp_truncate_the_episode(monkeypatch):
    monkeypatch.setattr(warp, "_largest", lambda _: (8, 1, 3))
    warp._example.cache_clear()
    env = jaxenvs.make("HalfCheetah-v5", engine="warp").unwrapped
    kept = {"qacc_warmstart": jnp.zeros(9), "act": jnp.zeros(0)}
    for height, is_lost in ((-0.2, True), (3.0, False)):
        start = env._qpos0.at[1].set(height)
        state = MujocoState(qpos=start, qvel=jnp.zeros(9), kept=kept, place=jnp.zeros((2, 1)))
        after, timestep = jax.jit(env.step)(state, jnp.zeros(6), jax.random.key(0))
        assert timestep.truncated == timestep.info["diverged"] == is_lost
        assert (np.asarray(after.qpos) == start).all() == is_lost
    warp._example.cache_clear()


@pytest.mark.slow
def test_geoms_that_stand_still_are_where_the_instance_has_them():
    original = jaxenvs.make("Reacher-v5").unwrapped._original
    turns = np.roll(original.geom_quat, 1, axis=1) * 0.6 + original.geom_quat * 0.8
    physics = {"geom_pos": original.geom_pos + 0.3, "geom_quat": turns}
    seen = []
    for engine in ("warp", "c"):
        env = jaxenvs.make("Reacher-v5", engine=engine, physics=physics).unwrapped
        data = jax.jit(lambda env=env: env._placed(FIELDS, {}, env._qpos0).arrays)()
        # C takes the others to be where their bodies are.
        seen.append([np.asarray(data[name])[original.geom_sameframe == 0] for name in FIELDS])
    for found, expected in zip(*seen, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.slow
def test_air_slows_in_warp_as_in_c_where_the_model_has_none():
    air = {"opt.density": 500.0, "opt.viscosity": 1.0}
    seen = []
    for engine, physics in (("warp", air), ("c", air), ("c", None)):
        env = jaxenvs.make(SMALL, engine=engine, physics=physics).unwrapped
        place = jnp.zeros((2, 1))
        kept = jax.eval_shape(env.reset, jax.random.key(0))[0].kept
        kept = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), kept)
        state = MujocoState(qpos=jnp.zeros(2), qvel=jnp.ones(2), kept=kept, place=place)
        seen.append(jax.jit(env.step)(state, jnp.zeros(1), jax.random.key(0))[0].qvel)
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-5)
    assert np.abs(seen[1] - seen[2]).max() > 1e-3


def test_warp_says_what_it_cannot_do():
    only_single = r'expected "float32".*engine="c" or engine="mjx"'
    with jax.enable_x64(True), pytest.raises(ParameterError, match=only_single):
        jaxenvs.make(SMALL, engine="warp", dtype="float64")
    with pytest.raises(ParameterError, match=r'no array "opt.gravty".*Close: "opt.gravity"'):
        jaxenvs.make(SMALL, engine="warp", physics={"opt.gravty": np.zeros(3)})
    env = jaxenvs.make(SMALL, engine="warp").unwrapped
    state = jax.eval_shape(env.reset, jax.random.key(0))[0]
    state = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), state)

    def position(action):
        return env.step(state, action, jax.random.key(0))[1].observation[0]

    with pytest.raises(ParameterError, match=r'no derivatives.*engine="mjx"'):
        jax.grad(position)(jnp.zeros(1))
    plan = Plan(env._original, "float32", ("cacc",), (), 1, False, False)
    with pytest.raises(ParameterError, match=r'does not compute cacc.*engine="c"'):
        jax.eval_shape(lambda: warp.step(plan, {}, state, jnp.zeros(1)))
