"""The interface of gymnax, with or without gymnax."""

import copy
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.catalog.gymnax_ids import GYMNAX_IDS
from jaxenvs.errors import ParameterError, UnknownParameterError
from jaxenvs.faces import gymnax
from jaxenvs.parameters import NO_LIMIT
from jaxenvs.testing import CountingEnv, ScriptedEnv
from jaxenvs.testing.dummy import BOTH, CONTINUE, TERMINATE, TRUNCATE

N = 48  # more than the chunk of a compacted reset


def keys(seed, n=N):
    return jax.random.split(jax.random.key(seed), n)


def actions(env, params, seed, n=N):
    return jax.jit(jax.vmap(env.action_space(params).sample))(keys(100 + seed, n))


def test_vmap_with_one_key_per_instance_matches_a_batch():
    env, params = gymnax.make_gymnax(CountingEnv(layout="dict", has_key=True), api="1.x")
    batch = jaxenvs.vectorize(params.env, N)
    step, native_step = jax.vmap(env.step, (0, 0, 0, None)), jax.jit(batch.step)
    obs, state = jax.vmap(env.reset, (0, None))(keys(0), params)
    native_state, timestep = jax.jit(batch.reset)(keys(0))
    chex.assert_trees_all_equal((obs, state), (timestep.observation, native_state))
    for t in range(1, 7):
        action = actions(env, params, t)
        obs, state, reward, terminated, truncated, info = step(keys(t), state, action, params)
        native_state, timestep = native_step(native_state, action, keys(t))
        chex.assert_trees_all_equal(
            (obs, state, reward, terminated, truncated, info["final_observation"]),
            (
                *(timestep.observation, native_state, timestep.reward),
                *(timestep.terminated, timestep.truncated, timestep.final_observation),
            ),
        )
    assert terminated.any() and not terminated.all()


def test_one_instance_and_seeds_of_batches_have_the_same_results():
    env, _ = gymnax.make_gymnax(CountingEnv(), api="0.x")
    seeds = jnp.stack([keys(seed, 3) for seed in range(2)])

    def play(seeds_of_batch, each):
        obs, state = each(env.reset)(seeds_of_batch)
        for t in range(1, 5):
            step_keys = each(lambda key, t=t: jax.random.fold_in(key, t))(seeds_of_batch)
            action = jnp.zeros(seeds_of_batch.shape, jnp.int32)
            obs, state, reward, done, _ = each(env.step)(step_keys, state, action)
        return obs, reward, done

    nested = jax.device_get(jax.jit(jax.vmap(lambda batch: play(batch, jax.vmap)))(seeds))
    play_alone = jax.jit(lambda seed: play(seed, lambda function: function))
    for index in np.ndindex(2, 3):
        row = jax.tree.map(lambda leaf, index=index: leaf[index], nested)
        chex.assert_trees_all_equal(row, jax.device_get(play_alone(seeds[index])))


def test_only_finished_instances_are_reset():
    env, _ = gymnax.make_gymnax("CartPole-v1")
    _, state = jax.eval_shape(jax.vmap(env.reset), keys(0))
    program = jax.make_jaxpr(jax.vmap(env.step))(keys(0), state, jnp.zeros(N, jnp.int32))
    assert "while" in str(program)  # the loop over chunks


@pytest.mark.parametrize("action", [CONTINUE, TERMINATE, TRUNCATE, BOTH])
def test_both_forms_tell_how_an_episode_ended(action):
    terminated, truncated = action in (TERMINATE, BOTH), action in (TRUNCATE, BOTH)
    old, params = gymnax.make_gymnax(ScriptedEnv(), api="0.x")
    new, _ = gymnax.make_gymnax(ScriptedEnv(), api="1.x")
    key, step_key = jax.random.key(0), jax.random.key(1)
    start, state = new.reset(key, params)
    obs, new_state, reward, *flags, info = new.step(step_key, state, action, params)
    last = jnp.array([start[0], 1], jnp.uint32)
    assert [bool(flag) for flag in flags] == [terminated, truncated]
    assert float(reward) == action and int(info["count"]) == 1
    assert float(info["discount"]) == 1 - terminated
    chex.assert_trees_all_equal(info["final_observation"], last)
    if action == CONTINUE:
        chex.assert_trees_all_equal(obs, last)
    else:  # a new episode
        assert int(obs[1]) == 0 and int(obs[0]) != int(start[0])

    old_obs, old_state, old_reward, done, old_info = old.step(step_key, state, action, params)
    chex.assert_trees_all_equal((old_obs, old_state, old_reward), (obs, new_state, reward))
    assert bool(done) == (terminated or truncated)
    assert [bool(old_info[name]) for name in ("terminated", "truncated")] == [terminated, truncated]
    assert "final_observation" not in old_info  # programs of gymnax 0.x keep all infos

    for env, ended in ((old, terminated or truncated), (new, terminated)):
        plain_obs, _, plain_reward, flag, plain_info = env.step_env(step_key, state, action, params)
        chex.assert_trees_all_equal((plain_obs, plain_reward), (last, reward))
        assert bool(flag) == ended and bool(plain_info["truncated"]) == truncated


def test_params_are_the_environment():
    env, params = gymnax.make_gymnax("CartPole-v1", gravity=3.0)
    assert params.gravity == 3.0 and params.max_steps_in_episode == 500
    changed = params.replace(gravity=4.0, max_steps_in_episode=7)
    assert changed.gravity == 4.0 and changed.max_steps_in_episode == 7
    assert changed.unwrapped.gravity == 4.0
    assert params.replace(max_steps_in_episode=math.inf).max_steps_in_episode == NO_LIMIT
    with pytest.raises(UnknownParameterError, match="gravity"):
        params.replace(gravitty=1.0)
    with pytest.raises(AttributeError, match="gravitty"):
        _ = params.gravitty
    assert not hasattr(copy.copy(params), "__wrapped__")
    assert env.default_params is params


def test_parameters_have_a_batch_axis():
    env, params = gymnax.make_gymnax("Pendulum-v1", api="1.x")
    masses = jnp.linspace(0.5, 2.0, 4, dtype=jnp.float32)
    many = jax.vmap(lambda mass: params.replace(mass=mass, max_steps_in_episode=1))(masses)
    torque = jnp.ones((4, 1), jnp.float32)
    _, state = jax.vmap(env.reset)(keys(0, 4), many)
    obs, _, _, _, truncated, info = jax.vmap(env.step)(keys(1, 4), state, torque, many)
    assert truncated.all()
    for i, mass in enumerate(masses):
        one = params.replace(mass=mass, max_steps_in_episode=1)
        row = jax.tree.map(lambda leaf, i=i: leaf[i], state)
        alone = env.step(keys(1, 4)[i], row, torque[i], one)
        np.testing.assert_allclose(alone[-1]["final_observation"], info["final_observation"][i])
        np.testing.assert_allclose(alone[0], obs[i])  # the next episode


def test_derivatives_are_those_of_a_loop_without_compaction():
    env, params = gymnax.make_gymnax("Pendulum-v1", api="1.x")

    def total(mass, each):
        changed = params.replace(mass=mass, max_steps_in_episode=3)
        _, state = each(lambda key: env.reset(key, changed))(keys(0, 2))
        reward = jnp.zeros(2, jnp.float32)
        for t in range(1, 6):
            step = each(lambda key, state: env.step(key, state, jnp.float32(1), changed))
            _, state, more, *_ = step(keys(t, 2), state)
            reward = reward + more
        return reward.sum()

    def one_by_one(function):
        def call(*args):
            rows = [function(*jax.tree.map(lambda leaf, i=i: leaf[i], args)) for i in range(2)]
            return jax.tree.map(lambda *leaves: jnp.stack(leaves), *rows)

        return call

    slope = jax.jit(jax.grad(total), static_argnums=1)
    batch, alone = slope(jnp.float32(1.5), jax.vmap), slope(jnp.float32(1.5), one_by_one)
    assert float(batch) != 0
    np.testing.assert_allclose(batch, alone, rtol=1e-3)


def test_actions_of_any_dtype_and_keys_of_the_old_kind_work():
    env, params = gymnax.make_gymnax("Pendulum-v1")
    _, state = env.reset(jax.random.PRNGKey(0), params)
    scalar = env.step(jax.random.PRNGKey(1), state, 1, params)
    array = env.step(jax.random.key(1), state, jnp.ones(1, jnp.float32), params)
    chex.assert_trees_all_equal(scalar, array)
    assert env.num_actions == 1 and env.name == "Pendulum-v1"
    assert gymnax.make("CartPole-v1")[0].num_actions == 2


def test_spaces_have_gymnax_attributes():
    env, params = gymnax.make_gymnax("Pendulum-v1")
    action, observation = env.action_space(params), env.observation_space(params)
    assert action.shape == (1,) and float(action.low[0]) == -2 and float(action.high[0]) == 2
    assert observation.shape == (3,) and observation.dtype == np.float32
    assert action.contains(action.sample(jax.random.key(0)))
    env, params = gymnax.make_gymnax("Blackjack-v1")
    sample = env.observation_space(params).sample(jax.random.key(0))
    chex.assert_trees_all_equal_shapes_and_dtypes(sample, env.reset(jax.random.key(0), params)[0])


def test_environment_without_time_limit_has_an_unreachable_one():
    _, params = gymnax.make_gymnax("bsuite/catch-v0")
    assert params.max_steps_in_episode == NO_LIMIT
    _, params = gymnax.make_gymnax("bsuite/catch-v0", time_limit=5)
    assert params.max_steps_in_episode == 5


def test_ids_of_gymnax_and_its_names_work():
    assert gymnax.registered_envs == list(GYMNAX_IDS)
    env, params = gymnax.make("Catch-bsuite")
    assert env.name == "Catch-bsuite"
    assert repr(params.unwrapped) == repr(jaxenvs.make("bsuite/catch-v0").unwrapped)


def test_errors_name_the_argument():
    with pytest.raises(ParameterError, match=r'api="2\.x"'):
        gymnax.make_gymnax("CartPole-v1", api="2.x")
    with pytest.raises(ParameterError, match="make_gymnax got"):
        gymnax.make_gymnax(jaxenvs.make_vec("CartPole-v1", 2))
    with pytest.raises(ParameterError, match="make_gymnax got"):
        gymnax.make_gymnax("gymnasium/CartPole-v1")


def test_render_draws_a_state():
    env, params = gymnax.make_gymnax("CartPole-v1")
    _, state = env.reset(jax.random.key(0), params)
    assert env.render(state, params).dtype == np.uint8
