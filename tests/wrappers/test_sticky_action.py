import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import wrappers as gym

import jaxenvs
from jaxenvs.errors import WrapperError
from jaxenvs.wrappers import StickyAction
from tests.ids import every_nth
from tests.wrappers._batches import Echo, GymEcho, N, episodes_of, play_both


@pytest.mark.parametrize(
    ("mode", "duration"),
    every_nth(
        2, [("same_step", (1, 3)), ("same_step", 1), ("next_step", (1, 3)), ("disabled", (1, 3))]
    ),
)
def test_sticky_action_is_the_chosen_one_or_the_last(mode, duration):
    actions, timesteps = play_both(
        lambda env: env.wrap(StickyAction, 0.5, duration), mode, num_steps=40
    )
    stuck = []
    for i in range(N):
        for episode in episodes_of(actions, timesteps, i, mode):
            last = None
            for chosen, timestep in episode:
                taken = timestep.final_observation[:2]
                if last is None:
                    np.testing.assert_array_equal(taken, chosen)
                else:
                    assert (taken == chosen).all() or (taken == last).all()
                    stuck.append((taken == last).all())
                last = taken
    assert mode == "disabled" or (any(stuck) and not all(stuck))  # this episode ends too early


class Draws:
    """A replacement for Gymnasium's generator with predefined numbers."""

    def __init__(self, numbers):
        self.numbers = iter(numbers)

    def uniform(self):
        return next(self.numbers)

    def integers(self, low, high):
        return low


@pytest.mark.parametrize("duration", [1, 2, 3])
def test_same_draws_match_gymnasium(duration, monkeypatch):
    draws = np.random.default_rng(3).uniform(size=60).astype(np.float32)
    actions = np.random.default_rng(4).uniform(-1, 1, (60, 2)).astype(np.float32)
    env = StickyAction(Echo(), 0.4, duration)
    # Ours draws in every step, Gymnasium's only if an action may stick, so assign draws to steps.
    monkeypatch.setattr(jax.random, "uniform", lambda key, *args: key)
    memory, _ = env.on_reset(env.env.reset(jax.random.key(0))[1])
    reference = gym.StickyAction(GymEcho([100]), 0.4, duration)
    reference.reset()
    for draw, action in zip(draws, actions, strict=True):
        reference.unwrapped.np_random = Draws([draw])
        memory, taken = env.on_action(memory, jnp.asarray(action), draw)
        np.testing.assert_array_equal(taken, reference.action(action))


def test_sticking_frequency():
    env = jaxenvs.vectorize(StickyAction(jaxenvs.make("Pendulum-v1"), 0.25), 2000)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    step = jax.jit(env.step)
    for t in range(2):
        state, _ = step(state, np.full((2000, 1), t, np.float32), jax.random.key(t))
    stuck = (np.asarray(state.memory.action) == 0).mean()
    assert abs(stuck - 0.25) < 0.04  # four deviations


def test_durations_are_drawn_including_both_ends():
    env = StickyAction(Echo(), 1.0, (1, 3))
    memory, _ = env.on_reset(None)
    keys = jax.random.split(jax.random.key(0), 64)

    @jax.jit
    def repeats(key):
        begun, _ = env.on_action(memory, jnp.ones(2), key)
        return jax.vmap(lambda each: env.on_action(begun, jnp.ones(2), each)[0].repeats)(keys)

    assert {*np.asarray(repeats(keys[0])).tolist()} == {0, 1, 2}  # after one of 1, 2, or 3


@pytest.mark.parametrize(
    "arguments", [(-0.1,), (1.1,), (0.5, 0), (0.5, (2, 1)), (0.5, (1, 2, 3)), (0.5, 1.5)]
)
def test_invalid_arguments_are_rejected(arguments):
    with pytest.raises(WrapperError, match="StickyAction got repeat_action"):
        StickyAction(Echo(), *arguments)
