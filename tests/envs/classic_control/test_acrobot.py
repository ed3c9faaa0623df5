import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.envs.classic_control import Acrobot, AcrobotState
from jaxenvs.errors import ParameterError

BACK, REST, FORTH = 0, 1, 2


def at(theta1=0.0, theta2=0.0, theta1_dot=0.0, theta2_dot=0.0):
    values = map(jnp.float32, (theta1, theta2, theta1_dot, theta2_dot))
    names = ("theta1", "theta2", "theta1_dot", "theta2_dot")
    return AcrobotState(**dict(zip(names, values, strict=True)))


def step(env, state, action, key=0):
    return env.step(state, jnp.int32(action), jax.random.key(key))


def test_acrobot_stays_at_rest_when_hanging_down():
    state, timestep = step(Acrobot(), at(), REST)
    np.testing.assert_array_equal(timestep.observation, [1, 0, 1, 0, 0, 0])
    assert state.theta1_dot == 0 and timestep.reward == -1 and not timestep.done


def test_accelerations_follow_the_equations():
    state, _ = step(Acrobot(dt=1e-3), at(), FORTH)
    d1 = 0.25 + (1 + 0.25 + 1) + 2
    d2 = 0.25 + 0.5 + 1
    theta2_acc = 1 / (0.25 + 1 - d2**2 / d1)
    expected = [-d2 * theta2_acc / d1 * 1e-3, theta2_acc * 1e-3]
    np.testing.assert_allclose([state.theta1_dot, state.theta2_dot], expected, rtol=1e-4)


def test_opposite_torques_give_mirrored_motion():
    forth, _ = step(Acrobot(), at(theta1=0.3, theta2_dot=1.0), FORTH)
    back, _ = step(Acrobot(), at(theta1=-0.3, theta2_dot=-1.0), BACK)
    mirrored = jax.tree.map(jnp.negative, back)
    np.testing.assert_allclose(jax.tree.leaves(forth), jax.tree.leaves(mirrored), rtol=1e-5)


def test_energy_is_conserved_without_torque():
    def energy(state):  # kinetic and potential, of the two links
        theta1, theta12 = state.theta1, state.theta1 + state.theta2
        d1 = 0.25 + 1 + 0.25 + jnp.cos(state.theta2) + 2
        d2 = 0.25 + 0.5 * jnp.cos(state.theta2) + 1
        w1, w2 = state.theta1_dot, state.theta2_dot
        kinetic = 0.5 * d1 * w1**2 + d2 * w1 * w2 + 0.5 * 1.25 * w2**2
        return kinetic - 9.8 * (1.5 * jnp.cos(theta1) + 0.5 * jnp.cos(theta12))

    env, state = Acrobot(dt=0.01), at(theta1=1.0, theta2=-0.5)
    swing = jax.jit(lambda s: jax.lax.fori_loop(0, 200, lambda _, s: step(env, s, REST)[0], s))
    after = swing(state)
    assert abs(after.theta1 - state.theta1) > 0.1
    np.testing.assert_allclose(energy(after), energy(state), rtol=1e-4)


def test_nips_equations_omit_a_velocity_term():
    start = at(theta2=0.7, theta1_dot=2.0)
    book, _ = step(Acrobot(), start, REST)
    nips, _ = step(Acrobot(book_or_nips="nips"), start, REST)
    assert book.theta2_dot < nips.theta2_dot - 0.1


def test_reaching_the_line_terminates_with_reward_0():
    _, timestep = step(Acrobot(dt=1e-3), at(theta1=math.pi - 0.1), REST)
    assert timestep.terminated and timestep.reward == 0
    _, timestep = step(Acrobot(dt=1e-3), at(theta1=math.pi, theta2=math.pi / 2 + 0.1), REST)
    assert not timestep.terminated and timestep.reward == -1


def test_angles_are_wrapped_and_velocities_clipped():
    start = at(theta1=3.1, theta2=-3.1, theta1_dot=50.0, theta2_dot=-50.0)
    state, _ = step(Acrobot(), start, REST)
    assert abs(state.theta1) <= math.pi and abs(state.theta2) <= math.pi
    assert abs(state.theta1_dot) <= np.float32(4 * math.pi)
    assert abs(state.theta2_dot) <= np.float32(9 * math.pi)


def test_torque_noise_is_optional():
    def after(env, key):
        return step(env, at(), FORTH, key)[0].theta2_dot

    assert after(Acrobot(), 1) == after(Acrobot(), 2)
    assert after(Acrobot(torque_noise_max=0.0), 1) == after(Acrobot(), 1)
    noisy = Acrobot(torque_noise_max=0.5)
    assert after(noisy, 1) != after(noisy, 2)


@pytest.mark.parametrize(("noise", "draws"), [(None, False), (0.5, True)])
def test_step_without_noise_ignores_its_key(noise, draws):
    env = Acrobot(torque_noise_max=noise)
    program = str(jax.make_jaxpr(env.step)(at(), jnp.int32(FORTH), jax.random.key(0)))
    assert ("random_bits" in program) == draws


def test_actions_are_the_available_torques():
    env = Acrobot(avail_torque=(-1.0, -0.5, 0.0, 0.5, 1.0))
    assert env.action_space.n == 5
    speeds = [float(step(env, at(), action)[0].theta2_dot) for action in range(5)]
    assert speeds == sorted(speeds) and speeds[2] == 0
    assert speeds[0] == float(step(Acrobot(), at(), BACK)[0].theta2_dot)


def test_unknown_equations_are_rejected():
    with pytest.raises(ParameterError, match="'book', 'nips'"):
        Acrobot(book_or_nips="blog")
