"""Parity of bit flipping with Stable-Baselines3, step by step.

BitFlippingEnv of Stable-Baselines3 starts from random bits, and its goal is always all ones. Ours
draws the goal too, so the tests set its goal to random bits before each episode.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.goals import BitFlippingState
from jaxenvs.spaces import to_gymnasium

envs = pytest.importorskip("stable_baselines3.common.envs")

pytestmark = pytest.mark.interop

EPISODES = 200


@pytest.mark.parametrize("num_bits", [3, 15])
def test_steps_match_stable_baselines3(num_bits):
    reference, random = envs.BitFlippingEnv(n_bits=num_bits), np.random.default_rng(0)
    env = jaxenvs.make("BitFlipping-v0", num_bits=num_bits, time_limit=num_bits)
    assert to_gymnasium(env.observation_space) == reference.observation_space
    assert to_gymnasium(env.action_space) == reference.action_space

    records, ends = [], []
    for episode in range(EPISODES):
        reference.desired_goal = random.integers(2, size=num_bits, dtype=np.int8)
        observation, _ = reference.reset(seed=episode)
        done, elapsed = False, 0
        while not done:
            wrong = np.flatnonzero(observation["achieved_goal"] != reference.desired_goal)
            guided = episode % 2 and len(wrong)  # random actions rarely reach the goal
            action = random.choice(wrong) if guided else random.integers(num_bits)
            before = observation["observation"]
            observation, reward, terminated, truncated, _ = reference.step(action)
            after = observation["achieved_goal"], observation["desired_goal"]
            records.append((before, elapsed, action, *after, reward, terminated, truncated))
            done, elapsed = terminated or truncated, elapsed + 1
        ends.append((terminated, truncated))
    assert {(True, False), (False, True)} <= set(ends)

    before, elapsed, action, achieved, goal, reward, terminated, truncated = (
        np.array(column) for column in zip(*records, strict=True)
    )

    @jax.jit
    @jax.vmap
    def step(bits, goal, elapsed, action):
        state, _ = env.reset(jax.random.key(0))
        state = state.replace(inner=BitFlippingState(bits=bits, goal=goal), elapsed=elapsed)
        return env.step(state, action, jax.random.key(0))[1]

    timestep = step(before, goal, jnp.asarray(elapsed, jnp.int32), jnp.asarray(action, jnp.int32))
    np.testing.assert_array_equal(timestep.observation["observation"], achieved)
    np.testing.assert_array_equal(timestep.observation["achieved_goal"], achieved)
    np.testing.assert_array_equal(timestep.observation["desired_goal"], goal)
    np.testing.assert_array_equal(timestep.reward, reward)
    np.testing.assert_array_equal(timestep.terminated, terminated)
    np.testing.assert_array_equal(timestep.truncated, truncated)


def test_compute_reward_matches_stable_baselines3():
    reference, random = envs.BitFlippingEnv(n_bits=3), np.random.default_rng(0)
    reference.reset(seed=0)
    achieved, desired = random.integers(2, size=(2, 500, 3), dtype=np.int8)
    expected = reference.compute_reward(achieved, desired, None)
    env = jaxenvs.make("BitFlipping-v0", num_bits=3).unwrapped
    np.testing.assert_array_equal(env.compute_reward(achieved, desired), expected)
    assert len(np.unique(expected)) == 2
