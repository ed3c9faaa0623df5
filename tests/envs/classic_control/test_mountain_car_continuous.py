import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.envs.classic_control import MountainCarContinuous, MountainCarState


def at(position, velocity=0.0):
    return MountainCarState(position=jnp.float32(position), velocity=jnp.float32(velocity))


def step(env, state, throttle):
    return env.step(state, jnp.array([throttle], jnp.float32), jax.random.key(0))


@pytest.mark.parametrize("throttle", [-1.0, 0.0, 0.5])
def test_one_step_by_hand(throttle):
    state, timestep = step(MountainCarContinuous(), at(0.0), throttle)
    velocity = 0.0015 * throttle - 0.0025  # cos(0) = 1
    np.testing.assert_allclose(state.velocity, velocity, rtol=1e-6)
    np.testing.assert_allclose(timestep.observation, [velocity, velocity], rtol=1e-6)
    np.testing.assert_allclose(timestep.reward, -0.1 * throttle**2, rtol=1e-6)
    assert not timestep.done


def test_throttle_is_clipped_but_its_cost_is_not():
    full, _ = step(MountainCarContinuous(), at(-0.5), 1.0)
    beyond, timestep = step(MountainCarContinuous(), at(-0.5), 3.0)
    assert beyond.velocity == full.velocity
    np.testing.assert_allclose(timestep.reward, -0.9, rtol=1e-6)


def test_goal_terminates_with_reward_100():
    _, timestep = step(MountainCarContinuous(), at(0.44, velocity=0.05), 0.5)
    assert timestep.terminated and not timestep.truncated
    np.testing.assert_allclose(timestep.reward, 100 - 0.1 * 0.25, rtol=1e-6)


def test_termination_requires_the_goal_velocity():
    _, timestep = step(MountainCarContinuous(goal_velocity=0.06), at(0.44, velocity=0.05), 0.0)
    assert not timestep.terminated and timestep.reward == 0


def test_left_wall_stops_the_car():
    state, _ = step(MountainCarContinuous(), at(-1.19, velocity=-0.07), -1.0)
    assert state.position == jnp.float32(-1.2) and state.velocity == 0
