import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.testing import CountingEnv
from jaxenvs.wrappers import FlattenObservation
from tests.ids import every_nth
from tests.wrappers._batches import MODES, N
from tests.wrappers._observations import assert_as_in_gymnasium, record_batch


@pytest.mark.parametrize("layout", ["array", "dict", "tuple"])
def test_flattening_matches_gymnasium(layout):
    assert_as_in_gymnasium(
        FlattenObservation, gymnasium.wrappers.FlattenObservation, CountingEnv(layout=layout)
    )


@pytest.mark.parametrize("mode", every_nth(3, MODES, first=2))
def test_opaque_and_accessible_batches_are_flattened(mode):
    timesteps = record_batch(FlattenObservation, CountingEnv(layout="dict"), mode)
    assert timesteps.observation.shape == (25, N, 8)


def test_integers_become_one_hot_vectors():
    env = FlattenObservation(
        CountingEnv(lengths=(2, 3), layout="dict")
    )  # a Discrete(4), a Box of 2
    assert env.observation_space == spaces.Box(0.0, 1.0, (6,))


def test_replacing_a_parameter_changes_the_bounds():
    env = FlattenObservation(jaxenvs.make("CartPole-v1")).replace(x_threshold=5.0)
    assert env.parameters["x_threshold"] == 5.0
    np.testing.assert_allclose(env.observation_space.high[0], 10.0)
