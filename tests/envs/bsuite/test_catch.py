import jax
import numpy as np
import pytest

from jaxenvs.envs.bsuite import Catch, CatchState
from jaxenvs.errors import ParameterError


def test_start_positions():
    keys = jax.random.split(jax.random.key(0), 5_000)
    state, timestep = jax.device_get(jax.jit(jax.vmap(Catch().reset))(keys))
    counts = np.bincount(state.ball_column, minlength=5)
    assert len(counts) == 5 and (abs(counts - 1_000) < 150).all()  # 5 standard deviations
    assert not state.ball_row.any() and (state.paddle_column == 2).all()
    assert (timestep.observation[:, 0].sum(-1) == 1).all()


def test_render_shows_ball_and_paddle():
    places = {"ball_row": 3, "ball_column": 1, "paddle_column": 4}
    state = CatchState(**{name: np.int32(place) for name, place in places.items()})
    picture = np.asarray(jax.jit(Catch().render)(state))
    assert picture.shape == (320, 160, 3)
    lit = picture.reshape(10, 32, 5, 32, 3).any(axis=(1, 3, 4))
    assert np.argwhere(lit).tolist() == [[3, 1], [9, 4]]


@pytest.mark.parametrize(
    "shape", [{"rows": 1}, {"columns": 0}, {"rows": 2.5}, {"rows": np.int64(1)}]
)
def test_too_small_boards_are_rejected(shape):
    with pytest.raises(ParameterError, match="at least"):
        Catch(**shape)
