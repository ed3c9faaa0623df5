"""The bipedal walker. tests/parity/test_certificates.py compares steps with Gymnasium's."""

import functools

import jax
import numpy as np
import pytest
from gymnasium.envs.box2d import bipedal_walker

from benchmarks.oracles.box2d import BipedalWalkerOracle, jitted
from jaxenvs.envs.box2d import BipedalWalker
from jaxenvs.envs.box2d.bipedal_walker import FAR, HARDCORE_WORLD, RAYS, WORLD


class PlacingOracle(BipedalWalkerOracle):
    """The reference, whose states need none of our steps."""

    def __init__(self, env, seed):
        super().__init__(env, seed)
        place = jitted(env._place)
        self.begin = lambda draws: (place(draws), None)

    def advance(self, state, action):
        return self.state, None


@functools.cache
def walks(hardcore, episodes=4):
    """Returns states and observations of Gymnasium's episodes, and pictures of the last states."""
    env = BipedalWalker(hardcore=hardcore)
    oracle, rows, pictures = PlacingOracle(env, 0), [], []
    for _ in range(episodes):
        observation, pilot = oracle.reset(), bipedal_walker.BipedalWalkerHeuristics()
        for _ in range(150):
            rows.append((oracle.get_state(), observation))
            observation, _, terminated = oracle.step(pilot.step_heuristic(observation))
            if terminated:
                break
        oracle.reference.render_mode = "rgb_array"
        pictures.append((oracle.get_state(), oracle.reference.render()))
    return env, rows, pictures


def stack(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


@pytest.mark.parametrize("hardcore", [False, True])
def test_observations_are_those_of_gymnasium(hardcore):
    env, rows, _ = walks(hardcore)
    states, expected = (stack(each) for each in zip(*rows, strict=True))
    found = jax.jit(jax.vmap(env._observe))(states)
    np.testing.assert_allclose(found, expected, atol=2e-5)
    assert (expected[:, -RAYS:] < 1).any(axis=0).sum() > 5  # rays hit the ground


@pytest.mark.parametrize("hardcore", [False, True])
def test_terrains_are_those_of_gymnasium(hardcore):
    env = BipedalWalker(hardcore=hardcore)
    oracle, kinds = PlacingOracle(env, 1), set()
    for _ in range(20 if hardcore else 2):
        oracle.reset()
        placed, state = oracle.state, oracle.get_state()  # ours, the reference's
        np.testing.assert_allclose(placed.heights, state.heights, atol=1e-5)
        corners = [p for polygon in oracle.reference.cloud_poly for p in polygon[0]]
        np.testing.assert_allclose(placed.clouds.reshape(-1, 2), corners, atol=1e-5)
        if hardcore:
            np.testing.assert_allclose(placed.boxes, state.boxes, atol=2e-5)
            boxes = state.boxes[state.boxes[:, 0] < FAR]
            kinds |= {tuple(row) for row in np.round(boxes[:, 2:] - boxes[:, :2], 2)}
    # Stumps of two sizes, stairs, and pits.
    assert len(kinds) == (4 if hardcore else 0)


@pytest.mark.parametrize("hardcore", [False, True])
def test_the_picture_is_gymnasiums(hardcore):
    env, _, pictures = walks(hardcore)
    render = jax.jit(env.render)
    for state, theirs in pictures:
        ours, theirs = np.asarray(render(state)).astype(int), theirs.astype(int)
        assert ours.shape == theirs.shape
        differs = np.abs(ours - theirs).max(axis=-1) > 64
        assert differs.mean() < 0.01  # one-pixel lines, which there are many of in hardcore mode


@pytest.mark.parametrize("hardcore", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_whole_episodes_are_gymnasiums(hardcore):
    env = BipedalWalker(hardcore=hardcore)
    oracle = PlacingOracle(env, 3)
    world = HARDCORE_WORLD if hardcore else WORLD
    begin, move = jax.jit(env.begin), jax.jit(functools.partial(env._move, world.step))
    observe, outcome = jax.jit(env._observe), jax.jit(env._outcome)
    together = []
    for episode in range(6):
        observation, pilot = oracle.reset(), bipedal_walker.BipedalWalkerHeuristics()
        state, errors = begin(oracle._start_draws())[0], []
        errors.append(np.abs(observe(state) - observation).max())
        for _ in range(60):
            walks = episode % 2 == 0
            action = pilot.step_heuristic(observation) if walks else oracle.sample_action()
            observation, reward, terminated = oracle.step(action)
            before, state = state, move(state, np.float32(action), np.float32(0))
            ours = jax.device_get(outcome(before, np.float32(action), state))
            errors.append(np.abs(ours.observation - observation).max())
            if len(errors) < 5:  # later, contacts multiply errors
                np.testing.assert_allclose(ours.reward, reward, atol=1e-3)
            if terminated:
                break
        assert max(errors[:4]) < 2e-4
        falls = bool(state.has_fallen) == oracle.reference.game_over
        together.append(falls and max(errors) < 1e-3)
    # Contacts multiply errors of rounding, so a few episodes part.
    assert sum(together) >= 4, together
