import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs import spaces
from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv
from jaxenvs.wrappers import DelayObservation, TransformObservation
from tests.ids import every_nth
from tests.wrappers._batches import MODES, N
from tests.wrappers._observations import assert_as_in_gymnasium, record, record_batch


@pytest.mark.parametrize(
    ("delay", "layout"), every_nth(2, [(2, "array"), (0, "array"), (9, "tuple"), (1, "dict")])
)
def test_delays_match_gymnasium(delay, layout):
    assert_as_in_gymnasium(
        lambda env: DelayObservation(env, delay),
        lambda env: gymnasium.wrappers.DelayObservation(env, delay),
        CountingEnv(layout=layout),
    )


def _raised(observation):
    return observation + 3.0


def test_padding_is_the_member_nearest_to_zero():
    raised = TransformObservation(CountingEnv(), _raised, spaces.Box([3.0, 3.0], [8.0, 4.0]))
    assert_as_in_gymnasium(
        lambda env: DelayObservation(env, 2),
        lambda env: gymnasium.wrappers.DelayObservation(env, 2),
        raised,
    )


@pytest.mark.parametrize("mode", every_nth(3, MODES, first=1))
def test_observations_of_old_episodes_are_dropped(mode):
    env = CountingEnv(lengths=(4, 5))
    raw = record(jaxenvs.vectorize(env, N, autoreset_mode=mode, reset_chunk=N))
    delayed = record_batch(lambda env: env.wrap(DelayObservation, 2), env, mode)
    for now, late in (
        (raw.observation, delayed.observation),
        (raw.final_observation, delayed.final_observation),
    ):
        now, late = np.asarray(now), np.asarray(late)
        np.testing.assert_array_equal(late[..., 0], np.maximum(now[..., 0] - 2, 0))
        np.testing.assert_array_equal(late[..., 1] == 0, now[..., 0] < 2)  # draws are above 0


@pytest.mark.parametrize("delay", [-1, 1.5, None])
def test_invalid_delays_are_rejected(delay):
    with pytest.raises(WrapperError, match="delay"):
        DelayObservation(CountingEnv(), delay)
