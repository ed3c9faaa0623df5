"""The rules of gymnax's other tasks, by hand, and where they differ from gymnax."""

import functools

import jax
import numpy as np
import pytest

from jaxenvs.envs.misc import (
    BernoulliBandit,
    BernoulliBanditState,
    FourRooms,
    FourRoomsState,
    GaussianBandit,
    GaussianBanditState,
    MetaMaze,
    MetaMazeState,
    PointRobot,
    PointRobotState,
    Pong,
    PongState,
    Reacher,
    ReacherState,
    Swimmer,
    SwimmerState,
)
from jaxenvs.envs.misc.four_rooms import is_free
from jaxenvs.errors import ParameterError

UP, RIGHT, DOWN, LEFT = range(4)
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

    def convert(value):
        array = np.asarray(value)
        return array.astype(np.int32 if array.dtype.kind == "i" else np.float32)

    return cls(**{name: convert(value) for name, value in fields.items()})


@functools.cache
def compiled(has_draws):
    def run(env, state, action, draws):
        if has_draws:
            return env.apply(state, action, draws)
        return env.step(state, action, jax.random.key(0))

    return jax.jit(run)


def step(env, state, action, draws=None):
    action = np.asarray(action, env.action_space.dtype)
    return jax.device_get(compiled(draws is not None)(env, state, action, draws))


def keys(count):
    return jax.random.split(jax.random.key(0), count)


# Four rooms.


def rooms(row, column, goal=(8, 9)):
    cell = {"row": row, "column": column, "goal_row": goal[0], "goal_column": goal[1]}
    return numbers(FourRoomsState, **cell)


def test_the_four_rooms_have_the_walls_of_the_map():
    rows = ROOMS.strip("\n").split("\n")
    expected = np.array([[letter == " " for letter in row] for row in rows])
    np.testing.assert_array_equal(is_free(*np.indices((13, 13))), expected)


@pytest.mark.parametrize(
    ("start", "action", "end"),
    [
        ((1, 1), UP, (1, 1)),
        ((3, 5), RIGHT, (3, 6)),
        ((4, 5), RIGHT, (4, 5)),
        ((5, 2), DOWN, (6, 2)),
        ((10, 7), LEFT, (10, 6)),
    ],
)
def test_walls_stop_the_agent_and_doors_let_it_pass(start, action, end):
    state, timestep = step(FourRooms(), rooms(*start), action, np.int32(-1))
    assert (state.row, state.column) == end
    np.testing.assert_array_equal(timestep.observation, [*end, 8, 9])
    assert timestep.reward == 0 and not timestep.terminated


def test_the_goal_ends_the_episode_with_a_reward():
    _, timestep = step(FourRooms(), rooms(8, 8), RIGHT, np.int32(-1))
    assert timestep.reward == 1 and timestep.terminated


def test_a_drawn_action_replaces_the_agents():
    state, _ = step(FourRooms(), rooms(3, 3), RIGHT, np.int32(DOWN))
    assert (state.row, state.column) == (4, 3)


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


def maze(row, column, goal=(8, 8), action=0, reward=0.0, time=0):
    cell = {"row": row, "column": column, "goal_row": goal[0], "goal_column": goal[1]}
    return numbers(MetaMazeState, **cell, last_action=action, last_reward=reward, time=time)


def test_the_agent_sees_the_walls_around_it_and_its_last_step():
    _, timestep = step(MetaMaze(), maze(0, 1, time=4), LEFT, np.int32(0))
    walls = [1, 1, 1, 1, 0, 0, 1, 0, 1]  # at (0, 0): two outer walls and the pillar at (1, 1)
    np.testing.assert_array_equal(timestep.observation, [*walls, 0, 0, 0, 1, 0, 5])


def test_a_move_against_a_wall_is_punished():
    state, timestep = step(MetaMaze(punishment=-1.5), maze(0, 1), DOWN, np.int32(0))
    assert (state.row, state.column) == (0, 1)  # (1, 1) is a pillar
    assert timestep.reward == -1.5


def test_the_agent_goes_on_elsewhere_from_the_goal():
    state, timestep = step(MetaMaze(), maze(8, 7), RIGHT, np.int32(4 * 9 + 6))
    assert (state.row, state.column, state.goal_row, state.goal_column) == (4, 6, 8, 8)
    assert timestep.reward == 10 and timestep.observation[-2] == 10
    assert not timestep.terminated


@pytest.mark.parametrize("goal", [(2, 3), (8, 8)])
def test_the_agent_never_goes_on_from_the_goal_itself(goal):
    env = MetaMaze(maze_size=9)
    cells = jax.jit(jax.vmap(lambda key: env.draw(maze(0, 0, goal), key)))(keys(6_400))
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


def robot(position, goal=(0.0, 1.0), time=0):
    last = {"last_action": (0.0, 0.0), "last_reward": 0.0}
    return numbers(PointRobotState, position=position, goal=goal, time=time, **last)


def test_the_robot_moves_by_the_clipped_action():
    state, timestep = step(
        PointRobot(), robot((0.5, 0.0), time=49), (-0.05, 3.0), np.zeros(2, np.float32)
    )
    np.testing.assert_allclose(state.position, [0.45, 0.1])
    np.testing.assert_allclose(timestep.observation, [0.45, 0.1, 0, -0.05, 3, 0], atol=1e-6)


def test_the_robot_starts_again_after_a_step_from_the_goal():
    start = np.array([0.5, 0.5], np.float32)  # half of the radius, half of pi
    state, timestep = step(PointRobot(), robot((0.1, 0.9)), (0.1, 0.1), start)
    np.testing.assert_allclose(state.position, [0, 0.5], atol=1e-6)
    assert timestep.reward == 1 and timestep.observation[2] == 1


def test_the_dense_reward_is_the_distance_before_the_step():
    env = PointRobot(dense_reward=True, center_init=True)
    state, timestep = step(env, robot((0.6, 0.2)), (0.1, 0.1), np.zeros(2, np.float32))
    np.testing.assert_allclose(timestep.reward, -1.0)
    state, timestep = step(env, robot((0.0, 0.9)), (0.1, 0.1), np.zeros(2, np.float32))
    np.testing.assert_allclose(state.position, 0)


def test_goals_are_on_the_upper_half_circle():
    state, _ = jax.device_get(jax.jit(jax.vmap(PointRobot(circle_radius=2.0).reset))(keys(200)))
    np.testing.assert_allclose(np.hypot(*state.goal.T), 2, rtol=1e-5)
    assert (state.goal[:, 1] > -1e-5).all() and (np.hypot(*state.position.T) <= 2).all()


# Bandits.


def test_an_arm_pays_if_the_number_is_below_its_probability():
    state = numbers(BernoulliBanditState, probability=0.9, last_action=0, last_reward=0.0, time=0)
    for action, u, reward in ((0, 0.89, 1), (0, 0.91, 0), (1, 0.09, 1), (1, 0.11, 0)):
        _, timestep = step(BernoulliBandit(), state, action, np.float32(u))
        assert timestep.reward == reward
        expected = [reward, action == 0, action == 1, -0.98]
        np.testing.assert_allclose(timestep.observation, expected, rtol=1e-5)


def test_either_arm_is_the_better_one():
    reset = jax.jit(jax.vmap(BernoulliBandit(reward_prob=0.2).reset))
    state, _ = jax.device_get(reset(keys(1_000)))
    values, counts = np.unique(state.probability, return_counts=True)
    np.testing.assert_allclose(values, [0.2, 0.8], rtol=1e-6)
    assert abs(counts[0] - 500) < 80  # 5 standard deviations


def test_one_arm_pays_nothing_and_the_other_its_mean_and_noise():
    state = numbers(GaussianBanditState, mu=0.5, last_action=0, last_reward=0.0, time=99)
    for action, reward in ((0, 0.0), (1, 0.3)):
        _, timestep = step(GaussianBandit(), state, action, np.float32(-2))
        np.testing.assert_allclose(timestep.reward, reward, rtol=1e-6)
        assert timestep.observation[3] == 1


# Reacher and swimmer.


def test_the_reward_is_one_if_the_arm_holds_the_goal():
    state = numbers(ReacherState, angles=[0.0, np.pi / 2], angle_vels=[0.0, 0.0], goal=[1.0, 1.0])
    _, timestep = step(Reacher(), state, (0.0, 0.0))
    np.testing.assert_allclose(timestep.reward, 1, rtol=1e-6)
    np.testing.assert_allclose(timestep.observation, [1, 0, 0, 1, 0, 0, 1, 1], atol=1e-6)


def test_torques_turn_each_link_by_itself():
    state = numbers(ReacherState, angles=[0.0] * 3, angle_vels=[0.0, 1.0, 0.0], goal=[3.0, 0.0])
    state, timestep = step(Reacher(num_joints=3), state, (2.0, 0.0, 0.0))
    np.testing.assert_allclose(state.angle_vels, [0.1, 1, 0], rtol=1e-6)
    np.testing.assert_allclose(state.angles, [0.005, 0.05, 0], rtol=1e-6)
    assert timestep.observation.shape == (11,)


def swimmer(xy, goal, urchin):
    return numbers(SwimmerState, xy=xy, xy_vel=[0.0, 0.0], goal=goal, urchins=[urchin])


def test_urchins_take_the_reward_of_the_goal():
    env = Swimmer(num_urchins=1)
    _, timestep = step(env, swimmer([0.5, 0.5], [0.5, 0.5], [-9.0, 0.0]), (0.0, 0.0))
    np.testing.assert_allclose(timestep.reward, 1)
    _, timestep = step(env, swimmer([0.5, 0.5], [0.5, 0.5], [0.5, 0.5]), (0.0, 0.0))
    np.testing.assert_allclose(timestep.reward, 0)
    _, timestep = step(env, swimmer([0.0, 0.0], [0.0, 2.0], [-9.0, 0.0]), (0.0, 0.0))
    np.testing.assert_allclose(timestep.reward, np.exp(-2), rtol=1e-6)


def test_the_swimmer_accelerates():
    start = swimmer([0.0, 0.0], [1.0, 1.0], [0.5, 0.0])
    state, timestep = step(Swimmer(num_urchins=1), start, (1, -2))
    np.testing.assert_allclose(state.xy, [0.0025, -0.005], rtol=1e-6)
    expected = [0.5, 0, 0.0025, -0.005, 0.05, -0.1, 1, 1]
    np.testing.assert_allclose(timestep.observation, expected, rtol=1e-6)


# Pong.


def pong(ball, speed, left=15, right=15):
    rows = {"left": left, "right": right, "last_row": 0, "last_column": 0}
    rows |= {"ball_row": ball[0], "ball_column": ball[1]}
    return numbers(PongState, **rows, row_speed=speed[0], column_speed=speed[1])


@pytest.mark.parametrize(
    ("ball", "speed", "next_ball", "next_speed"),
    [
        ((15, 20), (1, 1), (16, 21), (1, 1)),
        ((1, 20), (-3, 1), (2, 21), (3, 1)),  # the upper edge: gymnax's ball leaves the board
        ((28, 20), (3, 1), (27, 21), (-3, 1)),  # the lower edge
        ((15, 2), (0, -1), (15, 1), (0, 1)),  # the middle of the left paddle
        ((14, 2), (1, -1), (15, 1), (1, 1)),
        ((16, 2), (1, -1), (17, 1), (2, 1)),  # the lower end of the paddle: one row faster
        ((14, 2), (3, -1), (17, 1), (3, 1)),  # not faster than ball_max_y_speed
        ((15, 38), (-2, 1), (13, 37), (-3, -1)),  # the upper end of the right paddle
    ],
)
def test_the_ball_bounces_by_hand(ball, speed, next_ball, next_speed):
    state, timestep = step(Pong(use_ai_policy=False), pong(ball, speed), 0)
    assert (state.ball_row, state.ball_column) == next_ball
    assert (state.row_speed, state.column_speed) == next_speed
    assert (state.last_row, state.last_column) == ball
    assert timestep.reward == 1 and not timestep.terminated


@pytest.mark.parametrize(("ball", "speed"), [((25, 0), (0, -1)), ((5, 39), (0, 1))])
def test_a_missed_ball_ends_the_episode(ball, speed):
    _, timestep = step(Pong(use_ai_policy=False), pong(ball, speed), 0)
    assert timestep.reward == 0 and timestep.terminated


def test_paddles_move_and_stop_at_the_edges():
    both = Pong(use_ai_policy=False)
    for env, start, action, expected in (
        (both, (2, 27), 1, (2, 26)),
        (both, (2, 27), 2, (3, 27)),
        (both, (9, 9), 0, (9, 9)),
        (Pong(), (9, 9), 1, (8, 10)),  # the ball is below
        (Pong(), (9, 15), 1, (8, 16)),  # down, if both directions are equally good
        (Pong(), (9, 16), 0, (9, 15)),
    ):
        state, _ = step(env, pong((15, 20), (0, 1), *start), action)
        assert (state.left, state.right) == expected


def test_observation_shows_paddles_ball_and_its_last_position():
    _, timestep = step(Pong(use_ai_policy=False), pong((7, 20), (2, -1), 3, 26), 1)
    paddles, ball, last = (np.argwhere(timestep.observation[..., i]).tolist() for i in range(3))
    left, right = [[row, 0] for row in range(5)], [[row, 39] for row in range(23, 28)]
    assert paddles == left + right
    assert (ball, last) == ([[9, 19]], [[7, 20]])


def test_every_episode_starts_in_the_middle():
    state, _ = jax.device_get(jax.jit(Pong().reset)(jax.random.key(0)))
    assert (state.ball_row, state.ball_column, state.left, state.right) == (15, 20, 15, 15)


def test_too_small_boards_are_rejected():
    with pytest.raises(ParameterError, match="at least 5"):
        Pong(height=4)
