import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.envs.classic_control import CartPole, CartPoleState
from jaxenvs.errors import ParameterError

LEFT, RIGHT = 0, 1


def at(x=0.0, x_dot=0.0, theta=0.0, theta_dot=0.0):
    values = map(jnp.float32, (x, x_dot, theta, theta_dot))
    return CartPoleState(**dict(zip(("x", "x_dot", "theta", "theta_dot"), values, strict=True)))


def step(env, state, action):
    return env.step(state, jnp.int32(action), jax.random.key(0))


@pytest.mark.parametrize(("action", "force"), [(LEFT, -10.0), (RIGHT, 10.0)])
def test_push_on_an_upright_pole_by_hand(action, force):
    state, timestep = step(CartPole(), at(), action)
    theta_acc = -(force / 1.1) / (0.5 * (4 / 3 - 0.1 / 1.1))
    x_acc = force / 1.1 - 0.05 * theta_acc / 1.1
    expected = [0.0, 0.02 * x_acc, 0.0, 0.02 * theta_acc]
    np.testing.assert_allclose(timestep.observation, expected, rtol=1e-6)
    np.testing.assert_array_equal(
        timestep.observation, [state.x, state.x_dot, state.theta, state.theta_dot]
    )
    assert timestep.reward == 1 and not timestep.done


def test_leaning_pole_keeps_falling():
    state, _ = step(CartPole(force_mag=0.0), at(theta=0.1), RIGHT)
    sin, cos = np.sin(0.1), np.cos(0.1)
    theta_acc = 9.8 * sin / (0.5 * (4 / 3 - 0.1 * cos**2 / 1.1))
    np.testing.assert_allclose(state.theta_dot, 0.02 * theta_acc, rtol=1e-6)


def test_euler_and_semi_implicit_euler():
    start = at(x_dot=1.0, theta_dot=-1.0)
    explicit, _ = step(CartPole(), start, RIGHT)
    implicit, _ = step(CartPole(kinematics_integrator="semi-implicit euler"), start, RIGHT)
    np.testing.assert_allclose([explicit.x, explicit.theta], [0.02, -0.02], rtol=1e-6)
    expected = [0.02 * implicit.x_dot, 0.02 * implicit.theta_dot]
    np.testing.assert_allclose([implicit.x, implicit.theta], expected, rtol=1e-6)
    assert explicit.x_dot == implicit.x_dot and explicit.theta_dot == implicit.theta_dot


@pytest.mark.parametrize(
    ("state", "fallen"),
    [
        (at(x=2.39, x_dot=1.0), True),
        (at(x=2.37, x_dot=1.0), False),
        (at(x=-2.39, x_dot=-1.0), True),
        (at(theta=0.2, theta_dot=1.0), True),
        (at(theta=-0.2, theta_dot=-1.0), True),
        (at(theta=0.18, theta_dot=1.0), False),
    ],
)
def test_terminal_step_still_has_reward_1(state, fallen):
    _, timestep = step(CartPole(), state, RIGHT)
    assert timestep.terminated == fallen and not timestep.truncated and timestep.reward == 1


def test_steps_after_termination_have_reward_0():
    _, timestep = step(CartPole(), at(theta=0.5), RIGHT)
    assert timestep.terminated and timestep.reward == 0


@pytest.mark.parametrize(("theta", "reward"), [(0.0, 0.0), (0.2, -1.0), (0.5, -1.0)])
def test_sutton_barto_reward(theta, reward):
    env = CartPole(sutton_barto_reward=True)
    _, timestep = step(env, at(theta=theta, theta_dot=1.0), RIGHT)
    assert timestep.reward == reward and timestep.terminated == (reward < 0)


def test_thresholds_are_parameters():
    env = CartPole(x_threshold=1.0, theta_threshold_radians=0.5)
    assert step(env, at(x=1.1), LEFT)[1].terminated
    assert not step(env, at(theta=0.4), LEFT)[1].terminated
    np.testing.assert_allclose(env.observation_space.high[::2], [2.0, 1.0])


def test_derived_quantities_depend_on_the_masses():
    env = CartPole().replace(masspole=0.4, length=2.0)
    np.testing.assert_allclose(env.total_mass, 1.4)
    np.testing.assert_allclose(env.polemass_length, 0.8)


def test_initial_states_are_within_bounds():
    keys = jax.random.split(jax.random.key(0), 500)
    _, timestep = jax.vmap(CartPole(start_low=-0.2, start_high=0.1).reset)(keys)
    assert timestep.observation.min() >= -0.2 and timestep.observation.max() < 0.1
    assert (timestep.observation.max(0) > 0).all() and not timestep.done.any()


def test_unknown_integrator_is_rejected():
    with pytest.raises(ParameterError, match="semi-implicit euler"):
        CartPole(kinematics_integrator="heun")


def test_changing_gravity_does_not_recompile():
    lean = jax.jit(chex.assert_max_traces(lambda env: step(env, at(theta=0.1), LEFT)[0], n=1))
    moon, earth = lean(CartPole(gravity=1.6)), lean(CartPole(gravity=9.8))
    assert earth.theta_dot > moon.theta_dot
