"""vmap over, gradients of and replacement of the parameters of all five tasks."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.envs.classic_control import (
    Acrobot,
    CartPole,
    CartPoleState,
    MountainCar,
    MountainCarContinuous,
    MountainCarState,
    Pendulum,
    PendulumState,
)

TASKS = {
    CartPole: "gravity",
    MountainCar: "gravity",
    MountainCarContinuous: "gravity",
    Acrobot: "gravity",
    Pendulum: "g",
}
each_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)


def play(env, key, num_steps=20):
    """Returns the states, observations and rewards of random actions from one initial state."""
    start, _ = env.reset(key)
    actions = env.action_space.sample(key, shape=(num_steps,))

    def step(state, action):
        state, timestep = env.step(state, action, key)
        return state, (state, timestep)

    return jax.lax.scan(step, start, actions)[1]


@each_task
def test_batched_gravity_matches_separate_environments(task):
    gravities = np.float32(getattr(task(), TASKS[task])) * np.linspace(0.2, 2, 5, dtype=np.float32)

    def played(gravity):
        return play(task().replace(**{TASKS[task]: gravity}), jax.random.key(1))

    together = jax.device_get(jax.jit(jax.vmap(played))(gravities))
    alone = jax.jit(played)
    for i, gravity in enumerate(gravities):
        # Not bit for bit: a loop over one and a loop over five instances may fuse products and sums
        # in different places.
        chex.assert_trees_all_close(
            jax.tree.map(lambda leaf, i=i: leaf[i], together), alone(gravity), atol=1e-5
        )
    states = np.stack(jax.tree.leaves(together[0]))
    assert np.ptp(states[:, :, -1], axis=1).max() > 1e-4  # gravity matters


@each_task
def test_numeric_parameters_do_not_recompile(task):
    chex.clear_trace_counter()  # chex counts by name, not by function
    program = jax.jit(chex.assert_max_traces(lambda env: play(env, jax.random.key(0)), n=1))
    env = task()
    program(env)
    for field in dataclasses.fields(task):
        value = getattr(env, field.name)
        if isinstance(value, float):
            program(env.replace(**{field.name: value * 1.01}))
    assert any(isinstance(leaf, float) for leaf in jax.tree.leaves(env))


@each_task
def test_episodes_depend_on_the_key_only(task):
    program = jax.jit(lambda key: play(task(), key))
    once, again, other = jax.device_get([program(jax.random.key(seed)) for seed in (3, 3, 4)])
    chex.assert_trees_all_equal(once, again)
    assert not np.array_equal(once[1].observation, other[1].observation)


@each_task
def test_float32_is_kept_under_x64_with_float64_parameters(task):
    def trees(env):
        state, first = env.reset(jax.random.key(0))
        action = env.action_space.sample(jax.random.key(0))
        return (state, first), env.step(state, action, jax.random.key(0))

    with jax.enable_x64(True), jax.numpy_dtype_promotion("standard"):
        gravity = jnp.float64(getattr(task(), TASKS[task]))
        for env in (task(), task().replace(**{TASKS[task]: gravity})):
            before, after = jax.eval_shape(trees, env)
            assert jax.tree.structure(before) == jax.tree.structure(after)
            for leaf in jax.tree.leaves((before, after)):
                assert leaf.dtype in (jnp.float32, jnp.bool_)


@each_task
def test_float64_states_are_stepped_in_float64(task):
    with jax.enable_x64(True):
        env = task()
        state, _ = jax.eval_shape(env.reset, jax.random.key(0))
        state = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float64), state)
        space = env.action_space
        action = jnp.zeros(space.shape, jnp.float64 if space.dtype == np.float32 else space.dtype)
        after, timestep = jax.eval_shape(env.step, state, action, jax.random.key(0))
        for leaf in jax.tree.leaves((after, timestep.observation, timestep.reward)):
            assert leaf.dtype == jnp.float64


def assert_gradient_is_the_slope(function, *arguments):
    """Compares `grad` with central differences for every number in the arguments."""
    with_gradients = jax.jit(jax.value_and_grad(function, argnums=tuple(range(len(arguments)))))
    _, gradients = with_gradients(*arguments)
    for number, gradient in enumerate(gradients):
        flat = np.ravel(np.asarray(arguments[number], np.float64))
        slopes = np.empty_like(flat)
        for i in range(flat.size):
            sides = []
            for nudge in (1e-6, -1e-6):
                nudged = flat.copy()
                nudged[i] += nudge
                nudged = nudged.reshape(np.shape(arguments[number]))
                changed = *arguments[:number], nudged, *arguments[number + 1 :]
                sides.append(float(with_gradients(*changed)[0]))
            slopes[i] = (sides[0] - sides[1]) / 2e-6
        assert np.abs(slopes).max() > 1e-3  # otherwise there is nothing to compare
        np.testing.assert_allclose(np.ravel(gradient), slopes, rtol=1e-5, atol=1e-7)


def unroll(env, state, actions):
    def step(state, action):
        state, timestep = env.step(state, action, jax.random.key(0))
        return state, timestep

    return jax.lax.scan(step, state, actions)


def test_cartpole_gradients_match_finite_differences():
    # CartPole's own reward is constant, so use the lean of the pole as the return.
    def lean(length, masspole):
        env = CartPole(length=length, masspole=masspole)
        start = CartPoleState(
            x=jnp.float64(0),
            x_dot=jnp.float64(0),
            theta=jnp.float64(0.05),
            theta_dot=jnp.float64(0),
        )
        _, timestep = unroll(env, start, jnp.arange(30) % 2)
        return -100 * jnp.sum(timestep.observation[:, 2] ** 2)

    with jax.enable_x64(True):
        assert_gradient_is_the_slope(lean, np.float64(0.5), np.float64(0.1))


def test_pendulum_gradients_match_finite_differences():
    def episode_return(actions, g, mass, length):
        env = Pendulum(g=g, mass=mass, length=length)
        start = PendulumState(
            theta=jnp.float64(2.5), theta_dot=jnp.float64(0.3), torque=jnp.float64(0)
        )
        _, timestep = unroll(env, start, actions)
        return jnp.sum(timestep.reward)

    with jax.enable_x64(True):
        actions = np.random.default_rng(0).uniform(-1.9, 1.9, (15, 1))
        parameters = np.float64(10.0), np.float64(1.0), np.float64(1.2)
        assert_gradient_is_the_slope(episode_return, actions, *parameters)


def test_mountain_car_gradients_match_finite_differences():
    # The return depends on the position only at the goal, so add the final position.
    def episode_return(actions, power, gravity):
        env = MountainCarContinuous(power=power, gravity=gravity)
        start = MountainCarState(position=jnp.float64(-0.6), velocity=jnp.float64(0))
        state, timestep = unroll(env, start, actions)
        return jnp.sum(timestep.reward) + 10 * state.position

    with jax.enable_x64(True):
        actions = np.random.default_rng(0).uniform(-0.9, 0.9, (25, 1))
        assert_gradient_is_the_slope(
            episode_return, actions, np.float64(0.0015), np.float64(0.0025)
        )
