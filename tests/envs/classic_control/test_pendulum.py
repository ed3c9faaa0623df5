import math

import jax
import numpy as np
import pytest

from jaxenvs.envs.classic_control import Pendulum, PendulumState
from tests import jitted


def at(theta, theta_dot=0.0):
    theta, theta_dot = np.float32(theta), np.float32(theta_dot)
    return PendulumState(theta=theta, theta_dot=theta_dot, torque=np.zeros_like(theta))


def step(env, state, torque=0.0):
    return jitted.step_by_hand(env, state, np.array([torque], np.float32))


def test_one_step_by_hand():
    state, timestep = step(Pendulum(), at(math.pi / 2, 1.0), 1.5)
    theta_dot = 1.0 + (15 * 1.0 + 3 * 1.5) * 0.05
    theta = math.pi / 2 + theta_dot * 0.05
    np.testing.assert_allclose([state.theta, state.theta_dot], [theta, theta_dot], rtol=1e-6)
    expected = [math.cos(theta), math.sin(theta), theta_dot]
    np.testing.assert_allclose(timestep.observation, expected, rtol=1e-6, atol=1e-6)
    cost = (math.pi / 2) ** 2 + 0.1 * 1.0 + 0.001 * 1.5**2
    np.testing.assert_allclose(timestep.reward, -cost, rtol=1e-6)


def test_clipped_torque_is_used_in_dynamics_reward_and_render():
    full, full_timestep = step(Pendulum(), at(1.0), -2.0)
    beyond, beyond_timestep = step(Pendulum(), at(1.0), -5.0)
    assert beyond.theta_dot == full.theta_dot and beyond.torque == -2
    assert beyond_timestep.reward == full_timestep.reward


@pytest.mark.parametrize("turns", [-12, -1, 0, 1, 12])
def test_full_turns_cost_nothing_and_are_not_wrapped(turns):
    state, timestep = step(Pendulum(g=0.0), at(2 * math.pi * turns + 0.5))
    np.testing.assert_allclose(timestep.reward, -0.25, atol=1e-5)
    np.testing.assert_allclose(state.theta, 2 * math.pi * turns + 0.5, rtol=1e-6)


def test_speed_is_clipped():
    state, _ = step(Pendulum(), at(math.pi / 2, 7.9), 2.0)
    assert state.theta_dot == 8


def test_pendulum_never_terminates():
    states, still = at(np.linspace(-4, 4, 50), np.linspace(-8, 8, 50)), np.zeros(1, np.float32)
    each = jax.vmap(jitted.step, (None, 0, None, None))
    _, timestep = each(Pendulum(), states, still, jax.random.key(0))
    assert not np.asarray(timestep.done).any()


def test_effects_of_gravity_mass_and_length():
    upright = at(math.pi / 2)
    assert step(Pendulum(g=0.0), upright)[0].theta_dot == 0
    light, heavy = step(Pendulum(mass=0.5), at(0.0), 1.0), step(Pendulum(mass=2.0), at(0.0), 1.0)
    np.testing.assert_allclose(light[0].theta_dot, 4 * heavy[0].theta_dot, rtol=1e-6)
    long, short = step(Pendulum(length=2.0), upright), step(Pendulum(), upright)
    np.testing.assert_allclose(2 * long[0].theta_dot, short[0].theta_dot, rtol=1e-6)


def test_initial_state_is_within_bounds_without_torque():
    keys = jax.random.split(jax.random.key(0), 500)
    reset = jax.jit(jax.vmap(Pendulum(x_init=0.3, y_init=2.0).reset))
    state, _ = jax.device_get(reset(keys))
    assert 0.25 < np.abs(state.theta).max() <= np.float32(0.3)
    assert 1.8 < np.abs(state.theta_dot).max() <= 2.0
    assert not state.torque.any()


def test_render_shows_the_torque():
    render = jax.jit(Pendulum().render)
    still, left = at(3.0), at(3.0).replace(torque=np.float32(2.0))
    right = at(3.0).replace(torque=np.float32(-2.0))
    black = [(np.asarray(render(state)) == 0).all(-1) for state in (still, left, right)]
    assert black[0].sum() < 100 and black[1].sum() > 500 and black[2].sum() > 500
    assert (black[1] != black[2]).any()
