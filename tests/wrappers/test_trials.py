"""Trials: several episodes of one level as one long episode."""

import chex
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs import wrappers
from jaxenvs.errors import WrapperError

N, STEPS = 3, 120


def play(env, key, num_steps=STEPS):
    """Returns actions and timesteps of one instance, [T, ...], without automatic resets."""

    def step(state, key):
        action = env.action_space.sample(key)
        state, timestep = env.step(state, action, key)
        return state, (action, state, timestep)

    state, first = env.reset(key)
    _, rows = jax.lax.scan(step, state, jax.random.split(key, num_steps))
    return first, *rows


@pytest.fixture(scope="module")
def played():
    pole = jaxenvs.make("CartPole-v1", time_limit=15)
    env = wrappers.Trials(pole, episodes=4)
    return pole, env, jax.jit(lambda key: play(env, key, 60))(jax.random.key(0))


def test_episodes_of_a_trial_equal_those_of_the_environment(played):
    pole, _, (first, actions, _, timesteps) = played
    step, keys = jax.jit(pole.step), jax.random.split(jax.random.key(0), 60)
    start, begin = pole.reset(jax.random.key(0))
    chex.assert_trees_all_equal(first.observation["observation"], begin.observation)
    state, episode, returned = start, 0, 0.0
    for t in range(60):
        state, expected = step(state, actions[t], keys[t])
        shown = jax.tree.map(lambda x, t=t: np.asarray(x[t]), timesteps)
        returned += float(expected.reward)
        assert shown.reward == expected.reward and shown.info["episode"] == episode
        assert shown.info["episode_ended"] == expected.done
        assert shown.info["episode_return"] == returned
        is_last = bool(expected.done) and episode == 3
        assert shown.terminated == is_last and not shown.truncated
        observation = expected.observation
        if expected.done and not is_last:
            state, observation, episode, returned = start, begin.observation, episode + 1, 0.0
        np.testing.assert_array_equal(shown.observation["observation"], observation)
        if is_last:
            return
    pytest.fail("the trial did not end")


def test_observations_tell_the_last_step(played):
    _, env, (first, actions, _, timesteps) = played
    observation = timesteps.observation
    np.testing.assert_array_equal(observation["action"], np.eye(2)[np.asarray(actions)])
    np.testing.assert_array_equal(observation["reward"][:, 0], timesteps.reward)
    assert not first.observation["action"].any() and first.observation["first"] == 1
    begins = timesteps.info["episode_ended"] & ~timesteps.terminated
    np.testing.assert_array_equal(observation["first"][:, 0], begins.astype(np.float32))
    assert jax.vmap(env.observation_space.contains)(observation).all()


def test_a_number_of_steps_truncates_a_trial():
    env = wrappers.Trials(jaxenvs.make("CartPole-v1"), steps=25, observe=False)
    _, _, states, timesteps = play(env, jax.random.key(1), 25)
    assert timesteps.truncated.tolist() == [False] * 24 + [True] and not timesteps.terminated.any()
    assert timesteps.info["episode"][-1] >= 1 and states.step_count[-1] == 25
    assert env.time_limit == 25 and env.observation_space == env.env.observation_space


def test_what_is_between_episodes_changes_the_start_only():
    poles = wrappers.RandomizeParameters(jaxenvs.make("CartPole-v1"), {"length": (0.3, 0.8)})
    env = wrappers.Trials(poles, episodes=3, between=poles.redraw)
    envs = jaxenvs.vectorize(env, N)

    def step(carry, key):
        state, timestep = envs.step(carry, envs.action_space.sample(key), key)
        return state, (state, timestep)

    state, _ = envs.reset(jax.random.key(0))
    _, (states, timesteps) = jax.lax.scan(step, state, jax.random.split(jax.random.key(1), STEPS))
    length = np.asarray(states.inner.parameters["length"])
    trial = np.asarray(timesteps.terminated).cumsum(axis=0)
    starts = timesteps.info["episode_ended"] & ~timesteps.terminated
    observation = np.asarray(timesteps.observation["observation"])
    for i in range(N):
        assert trial[-1, i] >= 1
        for number in range(trial[-1, i]):
            rows = np.nonzero(trial[:, i] == number)[0][:-1]
            assert len(np.unique(length[rows, i])) == 1
            begun = observation[rows, i][np.asarray(starts)[rows, i]]
            assert len(np.unique(begun, axis=0)) == len(begun) == 2
    assert len(np.unique(length)) >= 2 * N


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "neither episodes nor steps"),
        ({"episodes": 0}, "episodes=0"),
        ({"steps": 1.5}, "steps=1.5"),
    ],
)
def test_wrong_budgets_are_refused(options, words):
    with pytest.raises(WrapperError, match=words):
        wrappers.Trials(jaxenvs.make("CartPole-v1"), **options)
