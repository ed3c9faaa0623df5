import jax
import numpy as np
import pytest

from jaxenvs.envs.bsuite import Catch, CatchState
from jaxenvs.errors import ParameterError
from tests.jitted import step_by_hand

LEFT, STAY, RIGHT = 0, 1, 2


def at(ball_row, ball_column, paddle_column):
    ball = {"ball_row": np.int32(ball_row), "ball_column": np.int32(ball_column)}
    return CatchState(**ball, paddle_column=np.int32(paddle_column))


def step(env, state, action):
    return step_by_hand(env, state, np.int32(action))


def test_one_step_by_hand():
    _, timestep = step(Catch(rows=4, columns=3), at(1, 0, 1), RIGHT)
    expected = [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 1]]
    np.testing.assert_array_equal(timestep.observation, expected)
    assert timestep.reward == 0 and not timestep.done


@pytest.mark.parametrize(("start", "action", "stop"), [(0, LEFT, 0), (4, RIGHT, 4), (3, STAY, 3)])
def test_the_paddle_stops_at_the_walls(start, action, stop):
    state, _ = step(Catch(), at(0, 2, start), action)
    assert state.paddle_column == stop


@pytest.mark.parametrize(("action", "reward"), [(LEFT, 1), (STAY, -1), (RIGHT, -1)])
def test_reward_uses_the_paddle_position_after_the_last_move(action, reward):
    _, timestep = step(Catch(), at(8, 1, 2), action)
    assert timestep.terminated and timestep.reward == reward
    assert timestep.observation.sum() == (1 if reward == 1 else 2)


def test_episode_length_is_rows_minus_one():
    env = Catch(rows=6, columns=3)
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    flags = []
    for _ in range(5):
        state, timestep = step(env, state, STAY)
        flags.append(bool(timestep.terminated))
    assert flags == [False] * 4 + [True]


def test_start_positions():
    keys = jax.random.split(jax.random.key(0), 5_000)
    state, timestep = jax.device_get(jax.jit(jax.vmap(Catch().reset))(keys))
    counts = np.bincount(state.ball_column, minlength=5)
    assert len(counts) == 5 and (abs(counts - 1_000) < 150).all()  # 5 standard deviations
    assert not state.ball_row.any() and (state.paddle_column == 2).all()
    assert (timestep.observation[:, 0].sum(-1) == 1).all()


def test_render_shows_ball_and_paddle():
    picture = np.asarray(jax.jit(Catch().render)(at(3, 1, 4)))
    assert picture.shape == (320, 160, 3)
    lit = picture.reshape(10, 32, 5, 32, 3).any(axis=(1, 3, 4))
    assert np.argwhere(lit).tolist() == [[3, 1], [9, 4]]


@pytest.mark.parametrize(
    "shape", [{"rows": 1}, {"columns": 0}, {"rows": 2.5}, {"rows": np.int64(1)}]
)
def test_too_small_boards_are_rejected(shape):
    with pytest.raises(ParameterError, match="at least"):
        Catch(**shape)
