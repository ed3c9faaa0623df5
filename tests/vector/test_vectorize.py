"""Vectorised environments: what is refused, batched parameters, phases, transformations."""

import chex
import jax
import jax.numpy as jnp
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep
from jaxenvs.errors import ActionError, RandomKeyError, UnknownParameterError, VectorizeError

KEY_SEED = 0


def cartpole():
    return jaxenvs.make("CartPole-v1")


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"num_envs": 0}, ["num_envs", "at least 1", "0"]),
        ({"num_envs": -3}, ["at least 1", "-3"]),
        ({"num_envs": 2.0}, ["must be an int", "float"]),
        ({"num_envs": True}, ["must be an int", "bool"]),
        ({"reset_chunk": 5}, ["reset_chunk=5", "num_envs=4"]),
        ({"reset_chunk": 0}, ["reset_chunk", "at least 1"]),
        ({"autoreset": "same_stp"}, ['"same_stp"', 'Close: "same_step"']),
        ({"stagger": True, "autoreset": "disabled"}, ["stagger", "disabled"]),
        ({"batched": ["gravity"]}, ["batched", "[4, ...]"]),
    ],
)
def test_values_that_cannot_work_are_refused_in_words(kwargs, words):
    with pytest.raises(VectorizeError) as refused:
        jaxenvs.vectorize(cartpole(), **{"num_envs": 4, **kwargs})
    assert all(word in str(refused.value) for word in words)


def test_stagger_needs_a_limit():
    with pytest.raises(VectorizeError, match="time limit"):
        jaxenvs.vectorize(cartpole().unwrapped, 4, stagger=True)


def test_a_misspelt_batched_name_names_the_closest():
    with pytest.raises(UnknownParameterError, match='"gravity"'):
        jaxenvs.vectorize(cartpole(), 4, batched="gravty")


def test_one_key_is_taken_for_all_instances_and_a_raw_one_too():
    env = jaxenvs.vectorize(cartpole(), 4)
    with pytest.raises(RandomKeyError, match="one key for all"):
        env.reset(jax.random.split(jax.random.key(0), 4))
    with pytest.raises(RandomKeyError, match="int"):
        env.reset(0)
    reset = jax.jit(env.reset)
    chex.assert_trees_all_equal(reset(jax.random.PRNGKey(7)), reset(jax.random.key(7)))


class Composite(Environment[jax.Array]):
    """Takes a dict of a number and a pair."""

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


def test_actions_of_the_wrong_shape_or_kind_are_refused():
    env = jaxenvs.vectorize(cartpole(), 4)
    message = wrong(env, jnp.zeros(8, jnp.int32))
    assert "int32[8]" in message and "int32[4]" in message and "num_envs=4" in message
    assert "float32[4]" in wrong(env, jnp.zeros(4, jnp.float32))
    assert "NoneType" in wrong(env, None)


def test_every_leaf_that_does_not_fit_is_named():
    env = jaxenvs.vectorize(Composite(), 3)
    pair = (jnp.zeros(3, jnp.int32), jnp.zeros((3, 1), jnp.float32))
    message = wrong(env, {"gear": jnp.zeros(2, jnp.int32), "pair": pair})
    assert "action['gear']" in message and "action['pair'][1]" in message
    assert "keys ['gear', 'pair']" in wrong(env, {"gear": jnp.zeros(3, jnp.int32)})
    assert "tuple of 2" in wrong(env, {"gear": jnp.zeros(3, jnp.int32), "pair": pair[:1]})
    good = env.action_space.sample(jax.random.key(1))
    state, _ = env.reset(jax.random.key(0))
    stepped, _ = jax.jit(env.step)(state, good, jax.random.key(0))
    chex.assert_trees_all_equal(stepped, good["pair"][1][:, 0])
