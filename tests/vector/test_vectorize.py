"""Vectorized environments: errors, batched parameters, staggered starts, transformations."""

import copy
import dataclasses
import functools
import pickle

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces, wrappers
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ActionError, RandomKeyError, UnknownParameterError, VectorizeError
from jaxenvs.parameters import is_number
from jaxenvs.testing import CountingEnv
from jaxenvs.wrappers import NormalizeReward
from tests.ids import one_id_per_class
from tests.opaque import OpaqueVectorEnv

KEY = jax.random.key(0)


def cartpole():
    return jaxenvs.make("CartPole-v1")


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"num_envs": 0}, ["num_envs", "at least 1", "0"]),
        ({"num_envs": -3}, ["at least 1", "-3"]),
        ({"num_envs": 2.0}, ["num_envs=2.0", "must be an integer"]),
        ({"num_envs": True}, ["num_envs=True", "must be an integer"]),
        ({"reset_chunk": 5}, ["reset_chunk=5", "num_envs=4"]),
        ({"reset_chunk": 0}, ["reset_chunk", "at least 1"]),
        ({"autoreset_mode": "same_stp"}, ['"same_stp"', 'Close: "same_step"']),
        ({"stagger": True, "autoreset_mode": "disabled"}, ["stagger", "disabled"]),
        ({"batched": ["gravity"]}, ["batched", "[4, ...]"]),
        ({"batched": "sutton_barto_reward"}, ["a static field of CartPole"]),
        ({"batched": None}, ["batched=None", "the names of parameters"]),
        ({"batched": 5}, ["batched=5", "the names of parameters"]),
        ({"batched": [3]}, ["batched=[3]", "the names of parameters"]),
    ],
)
def test_invalid_arguments_are_rejected(kwargs, words):
    with pytest.raises(VectorizeError) as refused:
        jaxenvs.vectorize(cartpole(), **{"num_envs": 4, **kwargs})
    assert all(word in str(refused.value) for word in words)


def test_stagger_needs_a_time_limit():
    with pytest.raises(VectorizeError, match="time limit"):
        jaxenvs.vectorize(cartpole().unwrapped, 4, stagger=True)


def test_misspelled_batched_name_suggests_the_closest():
    with pytest.raises(UnknownParameterError, match='"gravity"'):
        jaxenvs.vectorize(cartpole(), 4, batched="gravty")


def test_reset_accepts_one_typed_or_raw_key():
    env = jaxenvs.vectorize(cartpole(), 4)
    with pytest.raises(RandomKeyError, match="one key for all"):
        env.reset(jax.random.split(jax.random.key(0), 3))
    with pytest.raises(RandomKeyError, match="int"):
        env.reset(0)
    reset = jax.jit(env.reset)
    chex.assert_trees_all_equal(reset(jax.random.PRNGKey(7)), reset(jax.random.key(7)))


class Composite(Environment[jax.Array]):
    """An environment whose action is a dict of a number and a pair."""

    @property
    def observation_space(self):
        return spaces.Box(-1.0, 1.0, ())

    @property
    def action_space(self):
        pair = spaces.Tuple((spaces.Discrete(2), spaces.Box(-1.0, 1.0, (2,))))
        return spaces.Dict({"gear": spaces.Discrete(3), "pair": pair})

    def reset(self, key):
        del key
        return jnp.float32(0), TimeStep.first(jnp.float32(0))

    def step(self, state, action, key):
        del key
        state = state + action["pair"][1][0]
        return state, TimeStep.transition(state, reward=0.0, terminated=False)


def wrong(env, action):
    state = jax.eval_shape(env.reset, jax.random.key(0))[0]
    with pytest.raises(ActionError) as refused:
        jax.eval_shape(lambda state: env.step(state, action, jax.random.key(0)), state)
    return str(refused.value)


def test_actions_with_wrong_shape_or_dtype_are_rejected():
    env = jaxenvs.vectorize(cartpole(), 4)
    message = wrong(env, jnp.zeros(8, jnp.int32))
    assert "int32[8]" in message and "int32[4]" in message and "num_envs=4" in message
    assert "float32[4]" in wrong(env, jnp.zeros(4, jnp.float32))
    assert "NoneType" in wrong(env, None)


def test_errors_name_every_invalid_leaf():
    env = jaxenvs.vectorize(Composite(), 3)
    pair = (jnp.zeros(3, jnp.int32), jnp.zeros((3, 1), jnp.float32))
    message = wrong(env, {"gear": jnp.zeros(2, jnp.int32), "pair": pair})
    assert "action['gear']" in message and "action['pair'][1]" in message
    assert "keys ['gear', 'pair']" in wrong(env, {"gear": jnp.zeros(3, jnp.int32)})
    assert "tuple of 2" in wrong(env, {"gear": jnp.zeros(3, jnp.int32), "pair": pair[:1]})
    good = jax.jit(env.action_space.sample)(jax.random.key(1))
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    stepped, _ = jax.jit(env.step)(state, good, jax.random.key(0))
    np.testing.assert_array_equal(stepped, np.asarray(good["pair"][1])[:, 0])


# Helpers


def play(vector_env, key, actions):
    """Returns the timesteps after a reset, [T, N, ...]."""

    def step(state, xs):
        number, action = xs
        return vector_env.step(state, action, jax.random.fold_in(key, number))

    numbers = jnp.arange(len(actions), dtype=jnp.int32)
    return jax.lax.scan(step, vector_env.reset(key)[0], (numbers, actions))[1]


jitted_play = jax.jit(play)


def pushes(num_steps, num_envs, seed=0):
    """Returns random CartPole actions, int32[T, N]."""
    return np.random.default_rng(seed).integers(0, 2, (num_steps, num_envs), np.int32)


def instance(timesteps, index):
    """Selects one instance from timesteps [T, N, ...]."""
    return jax.tree.map(lambda leaf: leaf[:, index], timesteps)


# Batched parameters


@pytest.mark.bitwise
@pytest.mark.parametrize("batched", [("gravity",), ("gravity", "time_limit")])
def test_batched_parameters_match_separate_environments(batched):
    num_envs, actions = 6, pushes(40, 6)
    values = {
        "gravity": np.linspace(1.0, 30.0, num_envs, dtype=np.float32),
        "time_limit": np.arange(3, 3 + num_envs, dtype=np.int32),
    }
    parameters = {name: values[name][0] for name in values} | {
        name: values[name] for name in batched
    }
    env = cartpole().replace(**parameters)
    together = jitted_play(jaxenvs.vectorize(env, num_envs, batched=batched), KEY, actions)
    for i in range(num_envs):
        alone = env.replace(**{name: values[name][i] for name in batched})
        separate = jitted_play(jaxenvs.vectorize(alone, num_envs), KEY, actions)
        chex.assert_trees_all_close(instance(together, i), instance(separate, i), atol=1e-5)
    lengths = 40 // np.maximum(1, np.sum(together.done, axis=0))
    assert ("time_limit" not in batched) == (lengths == 3).all()


@pytest.mark.parametrize("id", one_id_per_class())
def test_array_for_a_number_is_refused_unless_batched(id):
    env = jaxenvs.make(id).unwrapped
    for field in filter(is_number, dataclasses.fields(env)):
        values = np.full(3, getattr(env, field.name))
        changed = env.replace(**{field.name: values})
        with pytest.raises(VectorizeError, match=rf'got {field.name} .*batched=\["{field.name}"\]'):
            jaxenvs.vectorize(changed, 3)
        batched = jaxenvs.vectorize(changed, 3, batched=field.name)
        assert batched.parameters[field.name].shape == (3,)
        with pytest.raises(VectorizeError, match=rf"got {field.name} .* an array of shape \[3\]"):
            batched.replace(**{field.name: np.full((3, 3), values)})


def test_array_for_a_number_is_refused_everywhere():
    values = jnp.array([1.0, 10.0, 100.0])
    vector_env = jaxenvs.make_vec("Pendulum-v1", 3)
    sticky = {"repeat_action_probability": jnp.array([0.0, 0.5, 1.0])}
    for name, make in {
        "g": lambda: jaxenvs.make_vec("Pendulum-v1", 3, g=values),
        "mass": lambda: vector_env.replace(mass=values),
        "length": lambda: jaxenvs.make_gym("Pendulum-v1", 3, length=values),
        "dt": lambda: jaxenvs.make_gym("Pendulum-v1", dt=values),
        "time_limit": lambda: vector_env.replace(time_limit=jnp.array([1, 2, 3])),
        "scale": lambda: vector_env.wrap(wrappers.ScaleReward, values),
        "max_reward": lambda: vector_env.wrap(wrappers.ClipReward, None, values),
        "repeat_action_probability": lambda: vector_env.wrap(wrappers.StickyAction, **sticky),
        "gamma": lambda: vector_env.wrap(wrappers.NormalizeReward, gamma=values),
        "noise_scale": lambda: OpaqueVectorEnv(vector_env).wrap(wrappers.AddRewardNoise, values),
    }.items():
        with pytest.raises(VectorizeError, match=f"got {name} of .*; expected a number"):
            make()


def test_traced_numbers_and_arrays_by_default_are_accepted():
    def reward(g):
        env = jaxenvs.make_vec("Pendulum-v1", 2).replace(g=g)
        return env.step(env.reset(KEY)[0], jnp.zeros((2, 1)), KEY)[1].reward

    assert jax.eval_shape(jax.vmap(reward), jnp.ones(3)).shape == (3, 2)
    bandit = jaxenvs.make_vec("bsuite/bandit-v0", 2, rewards=np.linspace(0, 1, 11))
    assert bandit.parameters["rewards"].shape == (11,)


def test_replacing_parameters_does_not_recompile():
    traced_once = jax.jit(chex.assert_max_traces(lambda *args: play(*args), n=1))
    env, actions = jaxenvs.vectorize(cartpole(), 4), pushes(40, 4)
    usual, moon = (traced_once(env.replace(gravity=g), KEY, actions) for g in (9.8, 1.6))
    assert jnp.abs(usual.observation - moon.observation).max() > 0.01
    made = jaxenvs.make_vec("CartPole-v1", 4, gravity=1.6)
    chex.assert_trees_all_equal(moon, traced_once(made, KEY, actions))
    shorter = traced_once(env.replace(time_limit=5), KEY, actions)
    np.testing.assert_array_equal(np.flatnonzero(shorter.truncated[:, 0]), range(4, 40, 5))


# Staggered starts

LIMIT = 20


@functools.cache
def first_ends(stagger, mode="same_step", seed=0):
    """Returns the step, counted from 1, in which each of 16 pendulums is first truncated."""
    env = jaxenvs.make_vec(
        "Pendulum-v1", 16, time_limit=LIMIT, autoreset_mode=mode, stagger=stagger
    )
    actions = np.zeros((LIMIT, 16, 1), np.float32)
    done = np.asarray(jitted_play(env, jax.random.key(seed), actions).done)
    assert done.any(axis=0).all()
    return np.argmax(done, axis=0) + 1


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
def test_staggered_episodes_end_at_different_times(mode):
    assert (first_ends(False, mode) == LIMIT).all()
    ends = first_ends(True, mode)
    assert len(np.unique(ends)) >= 8 and np.ptp(ends) >= LIMIT // 2


def test_stagger_int_bounds_the_phases():
    np.testing.assert_array_equal(np.unique(first_ends(5)), [16, 17, 18, 19, 20])


def test_phases_depend_only_on_the_seed():
    np.testing.assert_array_equal(first_ends(True), first_ends.__wrapped__(True))
    assert (first_ends(True) != first_ends(True, seed=1)).any()


@pytest.mark.bitwise
def test_phases_do_not_depend_on_num_envs():
    actions = np.random.default_rng(0).uniform(-2, 2, (30, 8, 1)).astype(np.float32)
    few, many = (
        jitted_play(
            jaxenvs.make_vec("Pendulum-v1", n, time_limit=LIMIT, stagger=True), KEY, actions[:, :n]
        )
        for n in (4, 8)
    )
    chex.assert_trees_all_equal(few, jax.tree.map(lambda leaf: leaf[:, :4], many))


def test_staggered_start_has_no_reward_and_no_flags():
    env = jaxenvs.make_vec("Pendulum-v1", 16, time_limit=LIMIT, stagger=True)
    state, timestep = jax.jit(env.reset)(KEY)
    assert not timestep.reward.any() and not timestep.done.any()
    np.testing.assert_array_equal(timestep.final_observation, timestep.observation)
    np.testing.assert_array_equal(state.elapsed, LIMIT - first_ends(True))
    np.testing.assert_array_equal(timestep.observation[:, 2], state.inner.theta_dot)


# Transformations


@pytest.mark.bitwise
def test_vmap_over_batches_matches_separate_calls():
    env, actions = jaxenvs.vectorize(cartpole().replace(time_limit=9), 4), pushes(30, 4)
    keys, gravities = jax.random.split(KEY, 3), np.float32([1.6, 9.8, 25.0])

    def played(key, gravity):
        return play(env.replace(gravity=gravity), key, actions)

    together = jax.jit(jax.vmap(played))(keys, gravities)
    alone = jax.jit(played)
    for i in range(3):
        separate = alone(keys[i], gravities[i])
        assert separate.done.any()
        found = jax.tree.map(lambda leaf, i=i: leaf[i], together)
        chex.assert_trees_all_close(found, separate, atol=1e-5)


@functools.cache
def slopes(chunk):
    """Returns derivatives of a loss over 20 steps with resets, computed in three ways.

    These are reverse mode, forward mode and finite differences, each float32[2]: with respect to
    gravity, which the steps use, and the width of the start, which only resets use.
    """
    env = cartpole().replace(time_limit=3 + np.arange(8, dtype=np.int32) % 5)
    env = jaxenvs.vectorize(env, 8, batched="time_limit", reset_chunk=chunk)
    actions = pushes(20, 8)

    def loss(point):
        changed = env.replace(gravity=point[0], start_high=point[1])
        timesteps = play(changed, KEY, actions)
        return jnp.sum(timesteps.observation**2) + jnp.sum(timesteps.final_observation[..., 2])

    @jax.jit
    def three_ways(point, steps):
        directions = jnp.eye(2, dtype=jnp.float32)
        forward = jax.vmap(lambda direction: jax.jvp(loss, (point,), (direction,))[1])(directions)
        ahead, behind = (
            jax.vmap(lambda direction, step=step: loss(point + step * direction))(directions)
            for step in (steps, -steps)
        )
        return jax.grad(loss)(point), forward, (ahead - behind) / (2 * steps)

    return three_ways(jnp.float32([9.8, 0.05]), jnp.float32([0.2, 0.002]))


@pytest.mark.parametrize("chunk", [4, 8])
def test_derivatives_pass_through_resets(chunk):
    reverse, forward, differences = slopes(chunk)
    assert (np.abs(differences) > 1e-3).all()
    np.testing.assert_allclose(reverse, forward, rtol=1e-4)
    np.testing.assert_allclose(reverse, differences, rtol=0.02)
    np.testing.assert_allclose(reverse, slopes(8)[0], rtol=1e-4)


# Rendering


@pytest.mark.bitwise
@pytest.mark.parametrize("mode", ["same_step", "disabled"])
def test_render_uses_the_parameters_of_the_instance(mode):
    lengths = np.float32([0.2, 0.5, 0.8])
    env = cartpole().replace(length=lengths)
    env = jaxenvs.vectorize(env, 3, batched="length", autoreset_mode=mode)
    state, _ = jax.jit(env.reset)(KEY)
    inner = state if mode == "same_step" else state.inner
    one = jax.tree.map(lambda leaf: leaf[2], inner)
    picture = jax.jit(env.render, static_argnums=1)(state, 2)
    assert picture.shape == (400, 600, 3) and picture.dtype == jnp.uint8
    draw = jax.jit(lambda length, state: cartpole().replace(length=length).render(state))
    chex.assert_trees_all_equal(picture, draw(lengths[2], one))
    assert (picture != draw(lengths[0], one)).any()


@pytest.mark.parametrize("mode", ["same_step", "next_step", "disabled"])
def test_instances_with_their_own_keys_are_independent(mode):
    """Instance i with keys[i] behaves like a single instance, or like `env`, with that key."""
    env = jaxenvs.make("CartPole-v1")
    seeds = jnp.array([7, 3, 11])

    def run(seeds):
        vector_env = jaxenvs.vectorize(env, len(seeds), autoreset_mode=mode)
        keys = jax.vmap(jax.random.key)(seeds)

        def step(state, t):
            state, timestep = vector_env.step(
                state,
                jnp.full(len(seeds), t % 3 > 0, jnp.int32),
                jax.vmap(jax.random.fold_in, (0, None))(keys, t),
            )
            return state, timestep

        state, first = vector_env.reset(keys)
        return first, jax.lax.scan(step, state, jnp.arange(60))[1]

    first, rest = jax.jit(run)(seeds)
    _, alone = jax.jit(run)(seeds[1:2])
    assert bool(rest.done[:, 1].any())
    chex.assert_trees_all_close(jax.tree.map(lambda x: x[:, 1:2], rest), alone, rtol=1e-5)
    observation = env.reset(jax.random.key(7))[1].observation
    chex.assert_trees_all_close(first.observation[0], observation, rtol=1e-6)


@pytest.mark.bitwise
def test_reset_where_resets_only_masked_instances():
    vector_env = jaxenvs.vectorize(CountingEnv(), 4)
    reset, step = jax.jit(vector_env.reset), jax.jit(vector_env.step)
    old = step(reset(jax.random.key(0))[0], np.zeros(4, np.int32), jax.random.key(1))
    mask = np.array([True, False, True, False])
    found = jax.jit(vector_env.reset_where)(mask, *old, jax.random.key(2))
    expected = jax.tree.map(
        lambda one, other: np.stack([(one if m else other)[i] for i, m in enumerate(mask)]),
        *jax.device_get((reset(jax.random.key(2)), old)),
    )
    chex.assert_trees_all_equal(jax.device_get(found), expected)


# Errors that would otherwise be silent


@pytest.mark.parametrize(
    "mask",
    [np.ones((4, 1), bool), [0, 1], [0.5, 0, 2, 0], True, np.ones(3, bool), "x", None],
    ids=["columns", "indices", "floats", "one", "short", "text", "none"],
)
@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: env.wrap(NormalizeReward)])
def test_invalid_masks_are_rejected(mask, wrap):
    env = wrap(jaxenvs.vectorize(cartpole(), 4))
    state, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    with pytest.raises(VectorizeError, match=r"expected bool\[4\]"):
        jax.eval_shape(lambda *args: env.reset_where(mask, *args), state, timestep, KEY)


def test_reset_where_accepts_timesteps_of_a_rollout():
    env = jaxenvs.vectorize(cartpole(), 4)
    state = jaxenvs.rollout(env, None, 2, KEY).state
    _, timestep = env.reset_where(np.arange(4) < 2, state.env_state, state.timestep, KEY)
    assert timestep.final_observation is None
    _, fresh = env.reset(KEY)
    np.testing.assert_array_equal(timestep.observation[:2], fresh.observation[:2])
    np.testing.assert_array_equal(timestep.observation[2:], state.timestep.observation[2:])


def test_out_of_range_integer_actions_are_rejected():
    env = jaxenvs.vectorize(cartpole(), 4)
    state, _ = env.reset(KEY)
    with pytest.raises(ActionError, match="4294967296"):
        env.step(state, np.array([2**32, 0, 1, 0]), KEY)


@pytest.mark.parametrize("index", [4, np.int64(9), jnp.int32(9), -1, "x", 1.0, None])
def test_render_index_must_be_in_range(index):
    env = jaxenvs.vectorize(cartpole(), 4)
    state = jax.eval_shape(env.reset, KEY)[0]
    with pytest.raises(VectorizeError, match="must be from 0 to 3"):
        env.render(state, index)


def test_raw_keys_per_instance():
    env = jaxenvs.vectorize(cartpole(), 4)
    raw = jax.random.split(jax.random.PRNGKey(3), 4)
    _, timestep = env.reset(raw)
    _, typed = env.reset(jax.random.wrap_key_data(raw))
    np.testing.assert_array_equal(timestep.observation, typed.observation)


@pytest.mark.skipif(jax.device_count() < 8, reason="needs eight devices")
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_batch_on_a_mesh_can_be_copied_and_pickled(copied):
    mesh = jax.make_mesh((4, 2), ("env", "other"))
    env = jaxenvs.vectorize(cartpole(), 8, mesh=mesh, mesh_axis="other")
    again = copied(env)
    assert again.mesh == mesh and jax.tree.structure(again) == jax.tree.structure(env)


def test_unsigned_actions_do_not_underflow():
    env = jaxenvs.make("MountainCar-v0")
    state, _ = jax.jit(env.reset)(KEY)
    step = jax.jit(env.step)
    left, _ = step(state, np.int32(0), KEY)
    unsigned, _ = step(state, np.uint8(0), KEY)
    chex.assert_trees_all_equal(unsigned, left)
