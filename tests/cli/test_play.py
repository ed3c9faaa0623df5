import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.cli.render import play
from jaxenvs.errors import RolloutError

KEY = jax.random.key(0)


def push_right(observation, key):
    return jnp.ones(observation.shape[0], jnp.int32)


@pytest.fixture(scope="module")
def fall():
    """The pictures and the return of a pole that falls."""
    return play(jaxenvs.make("CartPole-v1"), push_right, KEY, max_steps=60)


def test_play_draws_from_the_first_to_the_terminal_state(fall):
    frames, episode_return = fall
    assert 8 <= episode_return <= 11 and len(frames) == episode_return + 1
    env = jaxenvs.make("CartPole-v1")
    first = jax.jit(lambda key: env.render(env.reset(jax.random.split(key)[0])[0]))(KEY)
    np.testing.assert_array_equal(frames[0], first)
    assert len({frame.tobytes() for frame in frames}) == len(frames)


def test_fewer_and_smaller_pictures_still_end_with_the_last(fall):
    frames, episode_return = fall
    fewer, same_return = play(
        jaxenvs.make("CartPole-v1"), push_right, KEY, max_steps=60, every=4, shrink=2
    )
    assert same_return == episode_return
    chosen = np.unique([*range(0, len(frames), 4), len(frames) - 1])
    squares = frames[chosen].reshape(len(chosen), 200, 2, 300, 2, 3)
    np.testing.assert_allclose(fewer, squares.mean((2, 4)), atol=0.5)


def test_an_episode_that_does_not_end_stops_at_max_steps():
    env = jaxenvs.make("Pendulum-v1")
    frames, episode_return = play(env, None, KEY, max_steps=10, shrink=8)
    assert len(frames) == 11 and episode_return < 0


def test_random_actions_differ_by_key():
    env = jaxenvs.make("Pendulum-v1")
    first, again, other = (
        play(env, None, jax.random.key(seed), max_steps=2, shrink=8) for seed in (0, 0, 1)
    )
    chex.assert_trees_all_equal(first, again)
    assert first[1] != other[1]


def test_play_with_zero_steps_is_refused():
    with pytest.raises(RolloutError, match="at least 1"):
        play(jaxenvs.make("CartPole-v1"), None, KEY, max_steps=0)
