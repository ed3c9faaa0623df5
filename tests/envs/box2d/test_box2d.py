"""The lunar lander. tests/parity/test_certificates.py compares steps with Gymnasium's."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.envs.box2d import lunar_lander

import jaxenvs
from benchmarks.oracles.box2d import LunarLanderOracle, pilot
from jaxenvs.envs.box2d import LunarLander
from jaxenvs.envs.box2d._impact import Sweep, time_of_impact
from jaxenvs.envs.box2d.lunar_lander import WORLD
from jaxenvs.errors import ActionError
from tests.ids import physics_ids


@functools.cache
def reference():
    """Returns the oracle, whose programs take long to compile."""
    return LunarLanderOracle(LunarLander(), 3)


@functools.cache
def landings(number=64):
    """Returns the states, observations, and rewards of 400 steps under the pilot, [T, N, ...]."""
    env = LunarLander()

    @jax.jit
    def play(key):
        state, _ = jax.vmap(env.reset)(jax.random.split(key, number))

        def step(state, key):
            keys = jax.random.split(key, number)
            action = jax.vmap(pilot, (None, 0, None))(env, state, key)
            new, timestep = jax.vmap(env.step)(state, action, keys)
            return new, (state, action, keys, timestep)

        return jax.lax.scan(step, state, jax.random.split(key, 400))[1]

    return jax.device_get(play(jax.random.key(0)))


def test_whole_episodes_are_gymnasiums():
    oracle = reference()
    env, together = oracle.env, []
    for episode in range(6):
        observation, terminated = oracle.reset(), False
        state, largest, flags = oracle.state, 0.0, True
        while not terminated:
            error = np.abs(env._observe(state) - observation)
            if largest == 0 and not observation[6:].any():
                assert error.max() < 3e-5  # in flight
            else:
                largest = max(largest, error.max())
            action = oracle.sample_action()
            if episode % 2:
                action = lunar_lander.heuristic(oracle.reference, observation)
            observation, _, terminated = oracle.step(action)
            state, timestep = oracle.apply(state, jnp.int32(action), oracle.get_draws())
            flags &= bool(timestep.terminated == terminated)
        together.append(flags and largest < 1e-3)
    # Contacts multiply errors of rounding, so a few episodes part.
    assert sum(together) >= 4, together


def test_the_pilot_lands():
    *_, timestep = landings()
    is_before = np.cumsum(timestep.terminated, axis=0) - timestep.terminated == 0
    returns = (timestep.reward * is_before).sum(axis=0)
    # 237 with a deviation of 106 in Gymnasium, over whole episodes
    assert 190 < returns.mean() < 290
    assert np.mean(returns > 200) > 0.6
    assert timestep.terminated.any(axis=0).mean() > 0.9


def test_steps_do_not_depend_on_the_batch():
    state, action, keys, timestep = landings()
    touching = np.argwhere((state.world.contacts[..., 2] > 0).any(axis=(2, 3)))
    rows = touching[:: len(touching) // 40][:40]
    state, action, keys = jax.tree.map(
        lambda x: jnp.stack([x[t, n] for t, n in rows]), (state, action, keys)
    )
    expected = np.stack([timestep.observation[t, n] for t, n in rows])
    env = LunarLander()
    nested = jax.tree.map(lambda x: x.reshape(8, 5, *x.shape[1:]), (state, action, keys))
    _, found = jax.jit(jax.vmap(jax.vmap(env.step)))(*nested)
    np.testing.assert_allclose(found.observation.reshape(40, 8), expected, atol=1e-6)
    for i in range(0, 40, 8):
        one, act, key = jax.tree.map(lambda x, i=i: x[i], (state, action, keys))
        _, found = reference().apply(one, act, env.draw(one, key))
        np.testing.assert_allclose(found.observation, expected[i], atol=1e-6)


def test_nothing_falls_through_the_ground():
    state, *_ = landings()
    x, y = state.world.bodies[..., 0], state.world.bodies[..., 1]
    ground = np.stack(
        [
            np.interp(x[:, n].ravel(), np.linspace(0, 20, 11), state.heights[0, n])
            for n in range(x.shape[1])
        ],
        axis=1,
    ).reshape(x.shape[0], 3, -1)
    inside = (x > 0) & (x < 20)
    assert np.all((y - ground.transpose(0, 2, 1) > 0)[inside])


def impact(shape, start, end, turn=0.0):
    """Returns when a body that moves from `start` to `end` hits an edge from (0, 0) to (2, 0)."""
    one = jnp.ones((1, 1, 1), jnp.float32)
    sweep = Sweep(
        tuple(c * one for c in start),
        0 * one,
        tuple(c * one for c in end),
        turn * one,
        shape.center,
    )
    return float(time_of_impact([(0 * one, 0 * one), (2 * one, 0 * one)], shape, sweep).item())


def test_impacts_are_found_even_within_a_step():
    leg = WORLD._shape()
    leg = jax.tree.map(lambda x: x[1:2, :, None], leg)  # a box, 4 / 15 m high above its center
    half = 8 / 30
    assert impact(leg, (1, 1), (1, 0.5)) == 1  # stops above
    time = impact(leg, (1, 1), (1, -1))  # passes through
    assert abs(1 - 2 * time - half - 0.005) < 0.002
    assert impact(leg, (1, 1), (3, 1)) == 1
    assert impact(leg, (0.1, 0.1), (0.1, 0.1), turn=0.01) == 1  # overlaps: there is no first time


def test_spaces_and_limits_are_those_of_gymnasium():
    assert jaxenvs.make("LunarLanderContinuous-v3").parameters["continuous"] is True
    assert jaxenvs.make("BipedalWalkerHardcore-v3").parameters["hardcore"] is True
    for id in physics_ids():
        if jaxenvs.registry[id].family != "box2d":
            continue
        ours, theirs = jaxenvs.make(id), gymnasium.make(id)
        assert ours.observation_space == jaxenvs.spaces.from_gymnasium(theirs.observation_space)
        assert ours.action_space == jaxenvs.spaces.from_gymnasium(theirs.action_space)
        assert ours.time_limit == theirs.spec.max_episode_steps


def test_actions_are_not_broadcast():
    for env in (LunarLander(continuous=True), jaxenvs.make("BipedalWalker-v3")):
        state, _ = jax.eval_shape(env.reset, jax.random.key(0))
        with pytest.raises(ActionError, match=r"got float32\[1\] as an action"):
            jax.eval_shape(env.step, state, np.zeros(1, np.float32), jax.random.key(0))


def test_the_picture_is_gymnasiums():
    oracle = reference()
    env = oracle.env
    oracle.reset()
    for _ in range(40):
        oracle.step(0)
    oracle.reference.render_mode = "rgb_array"
    theirs = oracle.reference.render().astype(int)
    ours = np.asarray(jax.jit(env.render)(oracle.get_state())).astype(int)
    assert ours.shape == theirs.shape
    differs = np.abs(ours - theirs).max(axis=-1) > 64
    assert differs.mean() < 0.005
