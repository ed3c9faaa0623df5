"""The lunar lander. tests/parity/test_certificates.py compares steps with Gymnasium's."""

import functools

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.envs.box2d import lunar_lander

import jaxenvs
from benchmarks.certify import SIGNIFICANCE, same_distribution
from benchmarks.oracles.box2d import LunarLanderOracle, pilot
from jaxenvs.envs.box2d import LunarLander
from jaxenvs.errors import ActionError
from tests.ids import physics_ids


class PlacingOracle(LunarLanderOracle):
    """The reference, whose states need none of our steps."""

    def advance(self, state, action):
        return self.state, None


@functools.cache
def landings(number=64):
    """Returns states, actions, draws, and results of 400 steps under the pilot, [T, N, ...]."""
    env = LunarLander()

    @jax.jit
    def play(key):
        state, _ = jax.vmap(env.reset)(jax.random.split(key, number))

        @jax.vmap
        def move(state, key):
            action = pilot(env, state, key)
            new, timestep = env.step(state, action, key)
            return new, (state, action, env.draw(state, key), timestep)

        def step(state, key):
            return move(state, jax.random.split(key, number))

        return jax.lax.scan(step, state, jax.random.split(key, 400))[1]

    return jax.device_get(play(jax.random.key(0)))


@pytest.mark.slow
def test_whole_episodes_are_gymnasiums():
    env, number = LunarLander(), 6
    move, observe = jax.jit(jax.vmap(env.apply)), jax.jit(jax.vmap(env._observe))
    oracles = [PlacingOracle(env, seed) for seed in range(number)]
    theirs = [oracle.reset() for oracle in oracles]
    state = jax.tree.map(lambda *leaves: np.stack(leaves), *(oracle.state for oracle in oracles))
    ours, actions = observe(state), np.zeros(number, np.int32)
    playing, together = np.ones((2, number), bool)
    largest, draws = np.zeros(number), np.zeros((number, 2), np.float32)
    while playing.any():
        ours, ended = np.asarray(ours), {}
        for i in np.flatnonzero(playing):
            error = np.abs(ours[i] - theirs[i])
            if largest[i] == 0 and not theirs[i][6:].any():
                assert error.max() < 3e-5  # in flight
            else:
                largest[i] = max(largest[i], error.max())
            actions[i] = oracles[i].sample_action()
            if i % 2:
                actions[i] = lunar_lander.heuristic(oracles[i].reference, theirs[i])
            theirs[i], *ended[i] = oracles[i].step(int(actions[i]))
            draws[i] = oracles[i].get_draws()
        state, timestep = move(state, actions, draws)
        ours, rewards, terminated = jax.device_get(
            (timestep.observation, timestep.reward, timestep.terminated)
        )
        for i, (reward, is_last) in ended.items():
            together[i] &= terminated[i] == is_last and abs(rewards[i] - reward) < 0.1
            playing[i] = not is_last
    # Contacts multiply errors of rounding, so a few episodes part.
    together &= largest < 1e-3
    assert together.sum() >= 4, together


def test_starts_have_the_distribution_of_gymnasium():
    oracle, theirs = PlacingOracle(LunarLander(), 0), []
    for _ in range(200):
        observation = oracle.reset()
        theirs.append((oracle.get_state().heights, observation))
    reset = jax.jit(jax.vmap(LunarLander().reset))
    state, timestep = reset(jax.random.split(jax.random.key(0), 200))
    heights, observations = (np.stack(each) for each in zip(*theirs, strict=True))
    found = same_distribution([(state.heights, heights), (timestep.observation, observations)])
    assert found["p_value"] > SIGNIFICANCE


# Landings under a policy, whose program takes as long to compile as all of the others.


@pytest.mark.slow
def test_the_pilot_lands():
    *_, timestep = landings()
    is_before = np.cumsum(timestep.terminated, axis=0) - timestep.terminated == 0
    returns = (timestep.reward * is_before).sum(axis=0)
    # 237 with a deviation of 106 in Gymnasium, over whole episodes
    assert 190 < returns.mean() < 290
    assert np.mean(returns > 200) > 0.6
    assert timestep.terminated.any(axis=0).mean() > 0.9


@pytest.mark.slow
def test_steps_do_not_depend_on_the_batch():
    apply = jax.jit(LunarLander().apply)
    state, action, draws, timestep = landings()
    touching = np.argwhere((state.world.contacts[..., 2] > 0).any(axis=(2, 3)))
    for t, n in touching[:: len(touching) // 40][:40]:
        one = jax.tree.map(lambda x, t=t, n=n: x[t, n], state)
        _, found = apply(one, action[t, n], draws[t, n])
        np.testing.assert_allclose(found.observation, timestep.observation[t, n], atol=1e-6)


@pytest.mark.slow
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
        with pytest.raises(ActionError, match=r"action is float32\[1\], expected"):
            jax.eval_shape(env.step, state, np.zeros(1, np.float32), jax.random.key(0))


def test_the_picture_is_gymnasiums():
    env = LunarLander()
    oracle = PlacingOracle(env, 3)
    oracle.reset()
    for _ in range(40):
        oracle.step(0)
    oracle.reference.render_mode = "rgb_array"
    theirs = oracle.reference.render().astype(int)
    ours = np.asarray(jax.jit(env.render)(oracle.get_state())).astype(int)
    assert ours.shape == theirs.shape
    differs = np.abs(ours - theirs).max(axis=-1) > 64
    assert differs.mean() < 0.005
