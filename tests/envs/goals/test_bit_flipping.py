import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.goals import BitFlipping, BitFlippingState
from jaxenvs.errors import ParameterError
from tests.jitted import step_by_hand


def at(bits, goal):
    return BitFlippingState(bits=np.array(bits, np.int8), goal=np.array(goal, np.int8))


def step(env, state, action):
    return step_by_hand(env, state, np.int32(action))


def test_step_flips_one_bit_and_keeps_the_goal():
    _, timestep = step(BitFlipping(num_bits=3), at([0, 1, 1], [0, 0, 0]), 1)
    for name, expected in (
        ("observation", [0, 0, 1]),
        ("achieved_goal", [0, 0, 1]),
        ("desired_goal", [0, 0, 0]),
    ):
        assert timestep.observation[name].tolist() == expected
    assert timestep.reward == -1 and not timestep.done


def test_reaching_the_goal_terminates_with_reward_0():
    _, timestep = step(BitFlipping(num_bits=3), at([0, 1, 1], [0, 1, 0]), 2)
    assert timestep.terminated and timestep.reward == 0


def test_starting_at_the_goal_does_not_terminate():
    state, timestep = step(BitFlipping(num_bits=2), at([1, 0], [1, 0]), 0)
    assert not timestep.terminated and timestep.reward == -1
    assert step(BitFlipping(num_bits=2), state, 0)[1].terminated


def test_bits_and_goal_are_uniform_and_independent():
    keys = jax.random.split(jax.random.key(0), 8_000)
    state, _ = jax.jit(jax.vmap(BitFlipping(num_bits=2).reset))(keys)
    cases = np.concatenate([state.bits, state.goal], axis=1) @ [8, 4, 2, 1]
    counts = np.bincount(cases, minlength=16)
    assert len(counts) == 16 and (abs(counts - 500) < 110).all()  # 5 standard deviations


def test_flipping_the_wrong_bits_reaches_every_goal():
    env = jaxenvs.make("BitFlipping-v0")

    def episode(key):
        state, timestep = env.reset(key)

        def step(carry, _):
            state, seen, done = carry
            wrong = seen["achieved_goal"] != seen["desired_goal"]
            state, timestep = env.step(state, jnp.argmax(wrong).astype(jnp.int32), key)
            return (state, timestep.observation, done | timestep.done), (timestep, done)

        carry = (state, timestep.observation, jnp.bool_(False))
        distance = (state.inner.bits != state.inner.goal).sum()
        return distance, jax.lax.scan(step, carry, None, length=15)[1]

    keys = jax.random.split(jax.random.key(2), 128)
    distance, (timesteps, done) = jax.device_get(jax.jit(jax.vmap(episode))(keys))
    assert (timesteps.terminated & ~done).any(axis=1).all()
    returns = np.where(done, 0, timesteps.reward).sum(axis=1)
    np.testing.assert_array_equal(returns, -(distance - 1))  # no episode starts at its goal here


@pytest.fixture(scope="module")
def transitions():
    """Returns the environment and the observations of [64, 12] random steps."""
    env = BitFlipping(num_bits=6)

    def episode(key):
        state, _ = env.reset(key)
        actions = env.action_space.sample(key, shape=(12,))
        return jax.lax.scan(lambda state, action: env.step(state, action, key), state, actions)[1]

    keys = jax.random.split(jax.random.key(3), 64)
    return env, jax.device_get(jax.jit(jax.vmap(episode))(keys))


def test_compute_reward_matches_the_steps(transitions):
    env, timesteps = transitions
    goals = timesteps.observation["achieved_goal"], timesteps.observation["desired_goal"]
    np.testing.assert_array_equal(env.compute_reward(*goals), timesteps.reward)
    np.testing.assert_array_equal(env.compute_terminated(*goals), timesteps.terminated)
    assert timesteps.terminated.any() and env.compute_reward(*goals).dtype == jnp.float32


def test_transition_succeeds_for_its_achieved_goal(transitions):
    env, timesteps = transitions
    achieved = timesteps.observation["achieved_goal"]
    assert (env.compute_reward(achieved, achieved) == 0).all()
    assert env.compute_terminated(achieved, achieved).shape == (64, 12)
    final = achieved[:, -1:]  # the last goal of each episode, repeated for all of its steps
    reward = env.compute_reward(achieved, final)
    assert (reward[:, -1] == 0).all() and (reward[:, -2] == -1).all()  # the goal one flip earlier


def test_render_marks_matching_bits():
    picture = np.asarray(jax.jit(BitFlipping(num_bits=3).render)(at([1, 0, 1], [1, 1, 0])))
    assert picture.shape == (48, 72, 3)
    middles = picture[[12, 36]][:, [12, 36, 60]]  # bits above, goal below
    assert (middles == np.array([[1, 0, 1], [1, 1, 0]])[..., None] * 255).all()
    grounds = picture[2, [2, 26, 50]]
    assert (grounds[1] == grounds[2]).all() and (grounds[0] != grounds[1]).any()


@pytest.mark.parametrize("num_bits", [0, 1.5, True])
def test_empty_rows_are_rejected(num_bits):
    with pytest.raises(ParameterError, match="num_bits"):
        BitFlipping(num_bits=num_bits)
