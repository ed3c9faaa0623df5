import gymnasium
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv, check_env
from jaxenvs.wrappers import FrameStackObservation
from tests.wrappers._observations import MODES, assert_as_in_gymnasium, record_batch


@pytest.mark.parametrize(
    ("layout", "padding_type"),
    [("array", "reset"), ("array", "zero"), ("dict", "reset"), ("tuple", "zero")],
)
def test_it_stacks_and_pads_as_gymnasium_does(layout, padding_type):
    assert_as_in_gymnasium(
        lambda env: FrameStackObservation(env, 3, padding_type=padding_type),
        lambda env: gymnasium.wrappers.FrameStackObservation(env, 3, padding_type=padding_type),
        CountingEnv(layout=layout),
    )


@pytest.mark.parametrize("mode", MODES)
def test_a_stack_does_not_see_across_an_episodes_end(mode):
    env = CountingEnv(lengths=(4, 5))
    timesteps = record_batch(lambda env: env.wrap(FrameStackObservation, 3), env, mode)
    for stacks in (timesteps.observation, timesteps.final_observation):
        counts = np.asarray(stacks)[..., 0]
        # Of one episode: the counts up to now, and its first for what is missing.
        np.testing.assert_array_equal(counts, np.maximum(counts[..., -1:] + [-2, -1, 0], 0))


def test_it_keeps_the_contract():
    check_env(FrameStackObservation(CountingEnv(layout="tuple"), 3), num_steps=16, num_envs=4)


def test_a_stack_of_one_is_the_observation_alone():
    env = CountingEnv()
    key = jax.random.key(0)
    stacked = FrameStackObservation(env, 1).reset(key)[1].observation
    np.testing.assert_array_equal(stacked, env.reset(key)[1].observation[None])


def test_parameters_are_reached_through_it_and_its_repr_names_the_size():
    env = FrameStackObservation(jaxenvs.make("CartPole-v1"), 4).replace(gravity=3.7)
    assert repr(env) == (
        "FrameStackObservation(TimeLimit(CartPole(gravity=3.7), time_limit=500), stack_size=4)"
    )


@pytest.mark.parametrize("stack_size", [0, -1, 2.0, True])
def test_a_size_that_cannot_work_is_named(stack_size):
    with pytest.raises(WrapperError, match="stack_size"):
        FrameStackObservation(CountingEnv(), stack_size)


def test_an_unknown_padding_is_named():
    with pytest.raises(WrapperError, match="padding_type='zeros'"):
        FrameStackObservation(CountingEnv(), 2, padding_type="zeros")
