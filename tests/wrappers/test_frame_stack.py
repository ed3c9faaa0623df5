import gymnasium
import jax
import numpy as np
import pytest

from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv, check_env
from jaxenvs.wrappers import FrameStackObservation
from tests.ids import every_nth
from tests.wrappers._batches import MODES
from tests.wrappers._observations import assert_as_in_gymnasium, record_batch


@pytest.mark.parametrize(
    ("layout", "padding_type"),
    every_nth(2, [("array", "reset"), ("array", "zero"), ("tuple", "zero"), ("dict", "reset")]),
)
def test_stacks_and_padding_match_gymnasium(layout, padding_type):
    assert_as_in_gymnasium(
        lambda env: FrameStackObservation(env, 3, padding_type=padding_type),
        lambda env: gymnasium.wrappers.FrameStackObservation(env, 3, padding_type=padding_type),
        CountingEnv(layout=layout),
    )


@pytest.mark.parametrize("mode", every_nth(3, MODES))
def test_stacks_do_not_cross_episode_boundaries(mode):
    env = CountingEnv(lengths=(4, 5))
    timesteps = record_batch(lambda env: env.wrap(FrameStackObservation, 3), env, mode)
    for stacks in (timesteps.observation, timesteps.final_observation):
        counts = np.asarray(stacks)[..., 0]
        # Counts of one episode, padded with its first observation.
        np.testing.assert_array_equal(counts, np.maximum(counts[..., -1:] + [-2, -1, 0], 0))


def test_frame_stack_passes_check_env():
    check_env(FrameStackObservation(CountingEnv(layout="tuple"), 3), num_steps=16, num_envs=4)


def test_stack_of_size_one():
    env = CountingEnv()
    key = jax.random.key(0)
    stacked = FrameStackObservation(env, 1).reset(key)[1].observation
    np.testing.assert_array_equal(stacked, env.reset(key)[1].observation[None])


@pytest.mark.parametrize("stack_size", [0, -1, 2.0, True])
def test_invalid_sizes_are_rejected(stack_size):
    with pytest.raises(WrapperError, match="stack_size"):
        FrameStackObservation(CountingEnv(), stack_size)


def test_unknown_padding_is_rejected():
    with pytest.raises(WrapperError, match="padding_type='zeros'"):
        FrameStackObservation(CountingEnv(), 2, padding_type="zeros")
