"""Gymnasium-Robotics' tasks, which the package itself plays beside ours."""

import importlib.util

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.robotics import base, maze
from jaxenvs.errors import MissingExtraError, ParameterError
from jaxenvs.testing import check_env
from tests.ids import physics_ids

package = pytest.importorskip("gymnasium_robotics")
gymnasium.register_envs(package)

IDS = [id for id in physics_ids() if jaxenvs.registry[id].family == "robotics"]
MAZES = [id for id in IDS if "Maze" in id]
GOALS = ("observation", "achieved_goal", "desired_goal")


def theirs(id, **options):
    return gymnasium.make(id, disable_env_checker=True, **options).unwrapped


def inner(reference):
    """Returns the agent's environment in the package's maze."""
    return reference.point_env if hasattr(reference, "point_env") else reference.ant_env


def test_every_current_maze_of_the_package_is_native():
    known = [
        id
        for id in gymnasium.registry
        if id.startswith("PointMaze_") or (id.startswith("AntMaze_") and id.endswith("-v5"))
    ]
    assert {*known} == {*MAZES} and len(MAZES) == 40
    for id in MAZES:
        assert gymnasium.spec(id).max_episode_steps == jaxenvs.registry[id].time_limit


@pytest.mark.parametrize("id", [id for id in MAZES if "Dense" not in id])
def test_models_and_spaces_of_mazes_are_those_of_the_package(id):
    ours, reference = jaxenvs.make(id).unwrapped, theirs(id)
    model = reference.model
    for name in ("geom_pos", "geom_size", "geom_contype", "geom_conaffinity", "geom_margin"):
        np.testing.assert_array_equal(getattr(ours._original, name), getattr(model, name))
    shapes = {name: box.shape for name, box in reference.observation_space.items()}
    assert {name: box.shape for name, box in ours.observation_space.spaces.items()} == shapes
    assert ours.action_space == jaxenvs.spaces.from_gymnasium(reference.action_space)
    for own, other in zip(
        maze._places(ours._rows, ours.scale),
        (reference.maze.unique_goal_locations, reference.maze.unique_reset_locations),
        strict=True,
    ):
        assert {*map(tuple, own)} == {*map(tuple, other)} and len(own) == len(other)


def follow(id, reference, begin, actions, **options):
    """Steps both from the same start: yields ours and the package's results of each step."""
    with jax.enable_x64(True):
        env = jaxenvs.make(id, dtype="float64", time_limit=None, **options)
        state, first = jax.jit(env.reset)(jax.random.key(3))
        yield state, first, (begin(reference, state), 0.0, False, False, {})
        step = jax.jit(env.step)
        for i, action in enumerate(actions.astype(np.float32)):
            state, timestep = step(state, action, jax.random.key(i))
            yield state, timestep, reference.step(action)


def begin_in_maze(reference, state):
    reference.reset(seed=0)
    reference.goal = np.array(state.goal)
    inner(reference).init_qpos[:2] = state.qpos[:2]
    return reference._get_obs(inner(reference).reset()[0])


@pytest.mark.parametrize("id", ["PointMaze_OpenDense-v3", "AntMaze_Medium_Diverse_GR-v5"])
def test_steps_in_mazes_equal_those_of_the_package(id):
    reference, generator = theirs(id), np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (240, *reference.action_space.shape))
    if "Point" in id:  # faster than what it is slowed down to; beyond the bounds of actions
        actions = np.repeat(actions[::40], 40, axis=0) * 1.5
    fastest, contacts = 0.0, 0
    for state, timestep, (seen, reward, terminated, _, info) in follow(
        id, reference, begin_in_maze, actions
    ):
        for name in GOALS:
            np.testing.assert_array_equal(timestep.observation[name], seen[name])
        np.testing.assert_allclose(timestep.reward, reward, rtol=1e-15)
        assert timestep.terminated == terminated
        for name, value in info.items():
            np.testing.assert_allclose(timestep.info[name], value, rtol=1e-6)
        fastest = max(fastest, np.abs(state.qvel).max())
        contacts += reference.data.ncon > 0
    assert contacts > 60 and fastest > 5


@pytest.mark.parametrize("id", ["PointMaze_UMaze-v3", "AntMaze_Large_Diverse_G-v5"])
def test_starts_are_uniform_and_not_at_the_goal(id):
    env = jaxenvs.make(id).unwrapped
    keys = jax.random.split(jax.random.key(0), 4_000)
    goals, starts = jax.device_get(jax.jit(jax.vmap(env._draw_places))(keys))
    for drawn, cells in zip((goals, starts), maze._places(env._rows, env.scale), strict=True):
        noise = drawn[:, None] - cells.astype(np.float32)
        nearest = np.abs(noise).max(-1).argmin(-1)
        share = np.bincount(nearest, minlength=len(cells)) / len(drawn)
        deviation = np.sqrt((1 - 1 / len(cells)) / len(cells) / len(drawn))
        assert np.abs(share - 1 / len(cells)).max() <= 6 * deviation
        noise = noise[np.arange(len(drawn)), nearest] / env.scale
        assert np.abs(noise).max() <= 0.25 and np.abs(noise.mean(0)).max() < 0.01
        assert (np.abs(noise).max(0) > 0.24).all()
    assert np.linalg.norm(goals - starts, axis=1).min() > 0.1 * env.scale


def at_goal(env):
    """Returns a state whose agent is at the goal."""
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    return state.replace(goal=state.qpos[:2] + jnp.float32(0.1))


def test_a_goal_that_is_reached_moves_one_step_later():
    env = jaxenvs.make("PointMaze_Open-v3", reset_target=True).unwrapped
    state, step = at_goal(env), jax.jit(env.step)
    for _ in range(2):
        old = state.goal
        state, timestep = step(state, np.zeros(2, np.float32), jax.random.key(1))
        np.testing.assert_array_equal(timestep.observation["desired_goal"], old)
        is_there = bool(timestep.info["success"])
        assert timestep.reward == float(is_there) and not timestep.terminated
        assert is_there == (np.abs(np.asarray(state.goal - old)).max() > 0)
        assert np.linalg.norm(state.goal - timestep.observation["achieved_goal"]) > maze.RADIUS
    assert not is_there


@pytest.mark.parametrize("id", ["PointMaze_UMaze-v3", "AntMaze_UMaze-v5"])
def test_episodes_end_at_the_goal_if_the_task_does_not_continue(id):
    env = jaxenvs.make(id, continuing_task=False).unwrapped
    action = np.zeros(env.action_space.shape, np.float32)
    state = at_goal(env)
    _, timestep = jax.jit(env.step)(state, action, jax.random.key(1))
    assert timestep.terminated and timestep.reward == 1 and timestep.info["success"]
    achieved, goal = timestep.observation["achieved_goal"], timestep.observation["desired_goal"]
    assert env.compute_terminated(achieved, goal)
    assert not env.replace(continuing_task=True).compute_terminated(achieved, goal)


@pytest.mark.parametrize("id", [id for id in IDS if "UMaze" in id or "Maze" not in id])
def test_rewards_of_other_goals_are_those_of_the_package(id):
    achieved, goals = np.random.default_rng(0).uniform(-0.5, 0.5, (2, 200, 3 - ("Maze" in id)))
    if "Maze" not in id:
        goals = achieved + goals / 8
    env = jaxenvs.make(id).unwrapped
    expected = theirs(id).compute_reward(achieved, goals, {})
    found = env.compute_reward(np.float32(achieved), np.float32(goals))
    assert found.dtype == np.float32 and len(np.unique(found)) > 1
    np.testing.assert_allclose(found, expected, rtol=1e-4)


@pytest.mark.parametrize(
    ("id", "options", "message"),
    [
        ("PointMaze_UMaze-v3", {"maze_map": "Umaz"}, 'maze_map="Umaz".*Close: "UMaze"'),
        ("PointMaze_UMaze-v3", {"maze_map": ("111", "1001", "111")}, "rows of one length"),
        ("PointMaze_UMaze-v3", {"maze_map": ("1111", "1x01", "1111")}, "rows of one length"),
        ("AntMaze_UMaze-v5", {"maze_map": ("11111", "10c01", "11111")}, "another cell"),
        ("AntMaze_UMaze-v5", {"maze_map": ("11", "11")}, "another cell"),
        ("AntMaze_UMaze-v5", {"reward_type": "shaped"}, "'sparse' or 'dense'"),
        ("AntMaze_UMaze-v5", {"xml_file": "anty.xml"}, 'Close: "ant'),
    ],
)
def test_wrong_parameters_are_refused(id, options, message):
    with pytest.raises(ParameterError, match=message):
        jaxenvs.make(id, **options)


def test_own_maps_are_taken():
    env = jaxenvs.make("PointMaze_UMaze-v3", maze_map=("11111", "1r0g1", "11111")).unwrapped
    _, timestep = jax.jit(env.reset)(jax.random.key(0))
    achieved, goal = timestep.observation["achieved_goal"], timestep.observation["desired_goal"]
    assert np.abs(achieved - np.float32([-1, 0])).max() <= 0.25
    assert np.abs(goal - np.float32([1, 0])).max() <= 0.25


def test_a_missing_package_names_its_extra(monkeypatch):
    base.assets.cache_clear()
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *_: None if name == "gymnasium_robotics" else find(name),
    )
    with pytest.raises(MissingExtraError, match=r"gymnasium-robotics.*jaxenvs\[robotics\]"):
        jaxenvs.make("PointMaze_UMaze-v3")


def test_pictures_have_the_goal():
    env = jaxenvs.make("PointMaze_UMaze-v3").unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    draw = jax.jit(env.render)
    here = np.asarray(draw(state)).astype(int)
    there = np.asarray(draw(state.replace(goal=-state.goal))).astype(int)
    red = [(picture[..., 0] - picture[..., 1] > 100).sum() for picture in (here, there)]
    assert here.shape == (480, 480, 3) and min(red) > 100 and (here != there).sum() > 200


@pytest.mark.parametrize("id", ["PointMaze_UMaze-v3"])
def test_tasks_pass_check_env(id):
    check_env(jaxenvs.make(id))


@pytest.mark.slow
def test_engines_agree():
    with jax.enable_x64(True):
        found = []
        for engine in ("c", "mjx"):
            exact = {"dtype": "float64", "physics": {"opt.tolerance": 1e-14}}
            env = jaxenvs.make("PointMaze_UMaze-v3", engine=engine, **exact)
            state, timestep = jax.jit(env.reset)(jax.random.key(0))
            step = jax.jit(env.step)
            for i in range(30):  # it hits a wall
                state, timestep = step(state, np.float32([0.7, 0.4]), jax.random.key(i))
            found.append(timestep.observation)
        for name in GOALS:
            np.testing.assert_allclose(found[0][name], found[1][name], atol=1e-8)
