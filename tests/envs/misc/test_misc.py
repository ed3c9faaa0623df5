"""Chance in gymnax's other tasks, and where their rules differ from gymnax.

test_gymnax_steps.py has the other rules.
"""

import jax
import numpy as np
import pytest

from jaxenvs.envs.misc import (
    BernoulliBandit,
    FourRooms,
    FourRoomsState,
    MetaMaze,
    MetaMazeState,
    PointRobot,
    Pong,
    PongState,
)
from jaxenvs.envs.misc.four_rooms import is_free
from jaxenvs.errors import ParameterError

ROOMS = """
xxxxxxxxxxxxx
x     x     x
x     x     x
x           x
x     x     x
x     x     x
xx xxxx     x
x     xxx xxx
x     x     x
x     x     x
x           x
x     x     x
xxxxxxxxxxxxx
"""


def numbers(cls, **fields):
    """Makes a state from Python numbers: ints become int32, floats float32."""
    dtypes = {int: np.int32, float: np.float32}
    return cls(**{name: dtypes[type(value)](value) for name, value in fields.items()})


def keys(count):
    return jax.random.split(jax.random.key(0), count)


# Four rooms.


def rooms(row, column):
    return numbers(FourRoomsState, row=row, column=column, goal_row=8, goal_column=9)


def test_the_four_rooms_have_the_walls_of_the_map():
    rows = ROOMS.strip("\n").split("\n")
    expected = np.array([[letter == " " for letter in row] for row in rows])
    np.testing.assert_array_equal(is_free(*np.indices((13, 13))), expected)


def test_a_third_of_the_moves_goes_in_another_direction():
    draws = jax.jit(jax.vmap(lambda key: FourRooms().draw(rooms(3, 3), key)))(keys(9_000))
    counts = np.bincount(draws + 1, minlength=5)
    assert abs(counts[0] - 5_000) < 250  # 5 standard deviations
    assert (abs(counts[1:] - 1_000) < 150).all()


def test_resampled_starts_are_free_cells_other_than_the_goal():
    env = FourRooms(resample_init_pos=True, resample_goal_pos=True)
    state, _ = jax.device_get(jax.jit(jax.vmap(env.reset))(keys(5_000)))
    assert is_free(state.row, state.column).all()
    assert len({*zip(state.row.tolist(), state.column.tolist(), strict=True)}) == 104
    assert len({*zip(state.goal_row.tolist(), state.goal_column.tolist(), strict=True)}) == 104
    assert not ((state.row == state.goal_row) & (state.column == state.goal_column)).any()


def test_the_map_shows_the_agent_in_its_own_cell():
    env = FourRooms(use_visual_obs=True)
    observation = np.asarray(jax.jit(env._observe)(rooms(11, 2)))
    assert np.argwhere(observation[..., 1] == 1).tolist() == [[11, 2]]
    np.testing.assert_array_equal(observation[..., 0] == 0, is_free(*np.indices((13, 13))))


def test_cells_in_walls_are_rejected():
    with pytest.raises(ParameterError, match="free cell"):
        FourRooms(goal_fixed=(6, 6))


# Meta maze.


@pytest.mark.parametrize("goal", [(2, 3), (8, 8)])
def test_the_agent_never_goes_on_from_the_goal_itself(goal):
    env, (row, column) = MetaMaze(maze_size=9), goal
    cell = {"row": 0, "column": 0, "goal_row": row, "goal_column": column}
    state = numbers(MetaMazeState, **cell, last_action=0, last_reward=0.0, time=0)
    cells = jax.jit(jax.vmap(lambda key: env.draw(state, key)))(keys(6_400))
    counts = np.bincount(cells, minlength=81).reshape(9, 9)
    assert counts[goal] == 0 and counts[1, 1] == 0
    drawn = counts[counts > 0]
    assert len(drawn) == 64 and (abs(drawn - 100) < 50).all()


@pytest.mark.parametrize(("size", "middle"), [(3, 0), (5, 2), (9, 4), (11, 4)])
def test_the_agent_starts_in_a_free_cell_in_the_middle(size, middle):
    state, _ = jax.device_get(jax.jit(MetaMaze(maze_size=size).reset)(jax.random.key(0)))
    assert (state.row, state.column) == (middle, middle)
    assert MetaMaze(maze_size=size)._is_free(middle, middle)


def test_even_mazes_are_rejected():
    with pytest.raises(ParameterError, match="odd"):
        MetaMaze(maze_size=8)


# Point robot.


def test_goals_are_on_the_upper_half_circle():
    state, _ = jax.device_get(jax.jit(jax.vmap(PointRobot(circle_radius=2.0).reset))(keys(200)))
    np.testing.assert_allclose(np.hypot(*state.goal.T), 2, rtol=1e-5)
    assert (state.goal[:, 1] > -1e-5).all() and (np.hypot(*state.position.T) <= 2).all()


# Bandits.


def test_either_arm_is_the_better_one():
    reset = jax.jit(jax.vmap(BernoulliBandit(reward_prob=0.2).reset))
    state, _ = jax.device_get(reset(keys(1_000)))
    values, counts = np.unique(state.probability, return_counts=True)
    np.testing.assert_allclose(values, [0.2, 0.8], rtol=1e-6)
    assert abs(counts[0] - 500) < 80  # 5 standard deviations


# Pong.


@pytest.mark.parametrize(
    ("row", "speed", "next_row"), [(1, -3, 2), (3, -3, 0), (28, 3, 27), (27, 2, 29)]
)
def test_the_ball_bounces_where_gymnaxs_leaves_the_board(row, speed, next_row):
    start = {"ball_row": row, "row_speed": speed, "ball_column": 20, "column_speed": 1}
    rows = {"left": 15, "right": 15, "last_row": 0, "last_column": 0}
    state = numbers(PongState, **start, **rows)
    state, timestep = jax.jit(Pong().step)(state, np.int32(0), jax.random.key(0))
    assert (state.ball_row, state.ball_column, state.column_speed) == (next_row, 21, 1)
    assert state.row_speed == (-speed if row + speed not in (0, 29) else speed)
    assert timestep.reward == 1 and not timestep.terminated


def test_too_small_boards_are_rejected():
    with pytest.raises(ParameterError, match="at least 5"):
        Pong(height=4)
