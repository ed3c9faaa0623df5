import chex
import jax
import jax.numpy as jnp
import pytest

from jaxenvs.envs.classic_control.mountain_car import MountainCar, MountainCarState

LEFT, COAST, RIGHT = 0, 1, 2


def at(position, velocity=0.0):
    return MountainCarState(position=jnp.float32(position), velocity=jnp.float32(velocity))


def step(env, state, action):
    return env.step(state, jnp.int32(action), jax.random.key(0))


@pytest.mark.parametrize(("action", "push"), [(LEFT, -0.001), (COAST, 0.0), (RIGHT, 0.001)])
def test_one_step_by_hand(action, push):
    state, timestep = step(MountainCar(), at(0.0), action)
    chex.assert_trees_all_close(state.velocity, push - 0.0025)  # cos(0) = 1
    chex.assert_trees_all_close(timestep.observation, jnp.stack([state.velocity] * 2))
    assert timestep.reward == -1 and not timestep.done


def test_left_wall_stops_the_car():
    state, _ = step(MountainCar(), at(-1.19, velocity=-0.07), LEFT)
    chex.assert_trees_all_close(state, at(-1.2, velocity=0.0))


def test_right_end_keeps_the_velocity():
    state, _ = step(MountainCar(goal_position=9.0), at(0.59, velocity=0.05), RIGHT)
    assert state.position == jnp.float32(0.6) and state.velocity > 0.04


def test_speed_is_clipped():
    state, _ = step(MountainCar(force=1.0), at(-0.5), LEFT)
    assert state.velocity == jnp.float32(-0.07)


def test_terminal_step_has_reward_minus_1():
    _, timestep = step(MountainCar(), at(0.49, velocity=0.05), RIGHT)
    assert timestep.terminated and not timestep.truncated and timestep.reward == -1


def test_termination_requires_the_goal_velocity():
    _, timestep = step(MountainCar(goal_velocity=0.06), at(0.49, velocity=0.05), RIGHT)
    assert not timestep.terminated


def test_car_starts_at_rest_within_bounds():
    keys = jax.random.split(jax.random.key(0), 500)
    state, timestep = jax.vmap(MountainCar(start_low=-0.9, start_high=-0.8).reset)(keys)
    assert state.position.min() >= -0.9 and state.position.max() < -0.8
    assert not state.velocity.any() and not timestep.done.any()


def test_changing_gravity_does_not_recompile():
    coast = jax.jit(chex.assert_max_traces(lambda env: step(env, at(0.0), COAST)[0], n=1))
    moon, earth = coast(MountainCar(gravity=0.0004)), coast(MountainCar(gravity=0.0025))
    assert earth.velocity < moon.velocity < 0
