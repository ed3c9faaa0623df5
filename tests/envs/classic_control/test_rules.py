"""Rules that steps beside Gymnasium's, in tests/parity/test_classic_control.py, do not show."""

import dataclasses

import jax
import numpy as np
import pytest

from jaxenvs.envs.classic_control import (
    Acrobot,
    AcrobotState,
    CartPole,
    CartPoleState,
    MountainCar,
    MountainCarState,
    Pendulum,
    PendulumState,
)
from jaxenvs.errors import ParameterError
from tests.jitted import step_by_hand


def at(state_type, **values):
    """Returns a state with some fields, and zeros for the others."""
    names = [field.name for field in dataclasses.fields(state_type)]
    return state_type(**{name: np.float32(values.get(name, 0)) for name in names})


def step(env, state, action):
    return step_by_hand(env, state, np.array(action, env.action_space.dtype))


@pytest.mark.parametrize(
    ("state", "fallen"),
    [
        ({"x": 2.39, "x_dot": 1.0}, True),
        ({"x": 2.37, "x_dot": 1.0}, False),
        ({"x": -2.39, "x_dot": -1.0}, True),
        ({"theta": 0.2, "theta_dot": 1.0}, True),
        ({"theta": -0.2, "theta_dot": -1.0}, True),
        ({"theta": 0.18, "theta_dot": 1.0}, False),
    ],
)
def test_terminal_step_of_the_cart_pole_has_reward_1(state, fallen):
    _, timestep = step(CartPole(), at(CartPoleState, **state), 1)
    assert timestep.terminated == fallen and not timestep.truncated and timestep.reward == 1


def test_thresholds_of_the_cart_pole_are_parameters():
    env = CartPole(x_threshold=1.0, theta_threshold_radians=0.5)
    assert step(env, at(CartPoleState, x=1.1), 0)[1].terminated
    assert not step(env, at(CartPoleState, theta=0.4), 0)[1].terminated
    np.testing.assert_allclose(env.observation_space.high[::2], [2.0, 1.0])


def test_derived_quantities_depend_on_the_masses():
    env = CartPole().replace(masspole=0.4, length=2.0)
    np.testing.assert_allclose(env.total_mass, 1.4)
    np.testing.assert_allclose(env.polemass_length, 0.8)


def test_right_end_keeps_the_velocity_of_the_car():
    env = MountainCar(goal_position=9.0)
    state, _ = step(env, at(MountainCarState, position=0.59, velocity=0.05), 2)
    assert state.position == np.float32(0.6) and state.velocity > 0.04


def test_picture_of_the_pendulum_gets_the_clipped_torque():
    state, _ = step(Pendulum(), at(PendulumState, theta=1.0), [-5.0])
    assert state.torque == -2


@pytest.mark.parametrize(("noise", "draws"), [(None, False), (0.5, True)])
def test_acrobot_without_noise_ignores_its_key(noise, draws):
    env, state = Acrobot(torque_noise_max=noise), at(AcrobotState)
    program = str(jax.make_jaxpr(env.step)(state, np.int32(2), jax.random.key(0)))
    assert ("random_bits" in program) == draws


def test_acrobot_has_an_action_per_available_torque():
    env = Acrobot(avail_torque=(-1.0, -0.5, 0.0, 0.5, 1.0))
    speeds = [step(env, at(AcrobotState), action)[0].theta2_dot for action in range(5)]
    assert env.action_space.n == 5 and speeds == sorted(speeds) and speeds[2] == 0


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (CartPole, {"kinematics_integrator": "heun"}, "semi-implicit euler"),
        (Acrobot, {"book_or_nips": "blog"}, "'book', 'nips'"),
    ],
)
def test_unknown_choices_are_rejected(make, options, words):
    with pytest.raises(ParameterError, match=words):
        make(**options)
