"""Gymnasium-Robotics' tasks, which the package itself plays beside ours."""

import importlib.util
import itertools
import re

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

pytest.importorskip("gymnasium_robotics")

from benchmarks.oracles.robotics import begin, make_reference

IDS = [id for id in physics_ids() if jaxenvs.registry[id].family == "robotics"]
MAZES = [id for id in IDS if "Maze" in id]
FETCH = [id for id in IDS if id.startswith("Fetch")]
GOALS = ("observation", "achieved_goal", "desired_goal")


def test_every_current_maze_and_fetch_task_is_native():
    current = r"PointMaze_.*|AntMaze_.*-v5|Fetch.*-v4"
    assert {id for id in gymnasium.registry if re.fullmatch(current, id)} == {*IDS}
    assert (len(MAZES), len(FETCH)) == (40, 8)
    for id in IDS:
        assert gymnasium.spec(id).max_episode_steps == jaxenvs.registry[id].time_limit


@pytest.mark.parametrize("id", [id for id in IDS if "Dense" not in id])
def test_models_and_spaces_are_those_of_the_package(id):
    ours, reference = jaxenvs.make(id).unwrapped, make_reference(id)
    names = ("geom_pos", "geom_size", "geom_contype", "geom_conaffinity", "geom_margin", "eq_data")
    for name in names:
        expected = getattr(reference.model, name)
        np.testing.assert_array_equal(getattr(ours._original, name), expected)
    shapes = {name: box.shape for name, box in reference.observation_space.items()}
    assert {name: box.shape for name, box in ours.observation_space.spaces.items()} == shapes
    assert ours.action_space == jaxenvs.spaces.from_gymnasium(reference.action_space)


@pytest.mark.parametrize("id", [id for id in MAZES if "Dense" not in id])
def test_goals_and_starts_are_in_the_cells_of_the_package(id):
    ours, theirs = jaxenvs.make(id).unwrapped, make_reference(id).maze
    expected = theirs.unique_goal_locations, theirs.unique_reset_locations
    for own, other in zip(maze._places(ours._rows, ours.scale), expected, strict=True):
        assert {*map(tuple, own)} == {*map(tuple, other)} and len(own) == len(other)


@pytest.mark.parametrize("id", [id for id in FETCH if "Dense" not in id])
def test_the_arm_starts_where_that_of_the_package_does(id):
    setup, reference = jaxenvs.make(id).unwrapped._setup, make_reference(id)
    np.testing.assert_array_equal(setup.qpos, reference.initial_qpos)
    np.testing.assert_array_equal(setup.qvel, reference.initial_qvel)
    np.testing.assert_array_equal(setup.grip, reference.initial_gripper_xpos)
    assert setup.height == getattr(reference, "height_offset", 0)


def follow(id, reference, act):
    """Steps both from the same start: yields ours and the package's results of each step."""
    with jax.enable_x64(True):
        env = jaxenvs.make(id, dtype="float64").unwrapped
        state, timestep = jax.jit(env.reset)(jax.random.key(3))
        yield state, timestep, (begin(reference, state), 0.0, False, False, {})
        step = jax.jit(env.step)
        for i in itertools.count():
            action = np.asarray(act(i, timestep.observation), np.float32)
            state, timestep = step(state, action, jax.random.key(i))
            yield state, timestep, reference.step(action)


@pytest.mark.parametrize("id", ["PointMaze_OpenDense-v3", "AntMaze_Medium_Diverse_GR-v5"])
def test_steps_in_mazes_equal_those_of_the_package(id):
    reference, generator = make_reference(id), np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (240, *reference.action_space.shape))
    if "Point" in id:  # faster than what it is slowed down to; beyond the bounds of actions
        actions = np.repeat(actions[::40], 40, axis=0) * 1.5
    fastest, contacts = 0.0, 0
    steps = follow(id, reference, lambda i, _: actions[i])
    for state, timestep, (seen, reward, terminated, _, info) in itertools.islice(steps, 240):
        for name in GOALS:
            np.testing.assert_array_equal(timestep.observation[name], seen[name])
        np.testing.assert_allclose(timestep.reward, reward, rtol=1e-15)
        assert timestep.terminated == terminated
        for name, value in info.items():
            np.testing.assert_allclose(timestep.info[name], value, rtol=1e-6)
        fastest = max(fastest, np.abs(state.qvel).max())
        contacts += reference.data.ncon > 0
    assert contacts > 60 and fastest > 5


def grasp(generator):
    """Returns a policy that goes to the object, or anywhere, and moves it."""

    def act(i, seen):
        noise = generator.uniform(-1.2, 1.2, 4)
        rest = seen["observation"][6:9] if len(seen["observation"]) == 25 else np.zeros(3)
        return noise if i % 40 >= 25 else np.append(8 * rest + noise[:3] / 4, noise[3])

    return act


@pytest.mark.parametrize("id", [id for id in FETCH if "Dense" not in id])
def test_steps_of_fetch_equal_those_of_the_package(id):
    reference = make_reference(id)
    names, path = ("qpos", "qvel", "qacc_warmstart"), []
    for state, timestep, (seen, reward, terminated, _, info) in itertools.islice(
        follow(id, reference, grasp(np.random.default_rng(0))), 80
    ):
        row = np.asarray(state.kept).view(np.float64)  # the time is first
        expected = np.concatenate([getattr(reference.data, name) for name in names])
        np.testing.assert_array_equal(row[1 : 1 + len(expected)], expected)
        for name in GOALS:  # the package sums velocities in another order
            np.testing.assert_allclose(timestep.observation[name], seen[name], atol=1e-14)
        assert float(timestep.reward) == reward and timestep.terminated == terminated
        for name, value in info.items():
            assert timestep.info[name] == value
        path.append(np.asarray(timestep.observation["achieved_goal"]))
    assert np.ptp(path, axis=0).max() > 0.1


def test_steps_in_single_precision_are_close():
    found = []
    env = jaxenvs.make("FetchPush-v4")
    state, timestep = jax.jit(env.reset)(jax.random.key(3))
    act, step = grasp(np.random.default_rng(0)), jax.jit(env.step)
    reference = make_reference("FetchPush-v4")
    begin(reference, state.inner)
    for i in range(20):
        action = np.asarray(act(i, timestep.observation), np.float32)
        state, timestep = step(state, action, jax.random.key(i))
        seen = reference.step(action)[0]
        assert {x.dtype for x in timestep.observation.values()} == {np.dtype(np.float32)}
        found.append(np.abs(timestep.observation["observation"] - seen["observation"]).max())
    assert max(found) < 2e-6  # though contacts would make a small error large
    np.testing.assert_array_equal(state.inner.qpos, np.float32(reference.data.qpos))


@pytest.mark.parametrize(
    ("id", "near", "far", "goal"),
    [
        ("FetchReach-v4", None, 0.15, (0.15, 0.15)),
        ("FetchPush-v4", 0.1, 0.15, (0.15, 0)),
        ("FetchSlide-v4", 0.1, 0.1, (0.3, 0)),
        ("FetchPickAndPlace-v4", 0.1, 0.15, (0.15, 0.45)),
    ],
)
def test_objects_and_goals_are_where_the_package_draws_them(id, near, far, goal):
    env = jaxenvs.make(id).unwrapped
    keys, setup = jax.random.split(jax.random.key(0), 4_000), env._setup
    goals = np.asarray(jax.jit(jax.vmap(env._draw_goal))(keys))
    across = goals[:, :2] - (setup.grip + env.offset)[:2]
    up = goals[:, 2] - (setup.height if env.has_object else setup.grip[2])
    assert np.abs(np.abs(across).max(0) - goal[0]).max() < 2e-3
    assert np.abs(across.mean(0)).max() < 0.015
    assert abs(up.max() - goal[1]) < 2e-3
    if env.flies:
        assert up.min() > -1e-6 and 0.45 < (up > 1e-6).mean() < 0.55
    if env.has_object:
        rest = np.asarray(jax.jit(jax.vmap(env._draw_object))(keys)) - setup.grip[:2]
        assert np.linalg.norm(rest, axis=1).min() > near - 1e-6
        assert abs(np.abs(rest).max() - far) < 2e-3 and np.abs(rest.mean(0)).max() < 0.01


@pytest.mark.parametrize("id", ["FetchPush-v4", "FetchPickAndPlace-v4", "PointMaze_UMaze-v3"])
def test_a_diverged_simulation_stays_and_truncates(id):
    env = jaxenvs.make(id).unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    action = np.full(env.action_space.shape, np.nan, np.float32)
    after, timestep = jax.jit(env.step)(state, action, jax.random.key(0))
    assert timestep.truncated and timestep.info["diverged"] and timestep.reward == 0
    np.testing.assert_allclose(after.qpos, state.qpos, atol=2e-3)  # shut fingers
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(timestep.observation))
    _, timestep = jax.jit(env.step)(after, np.zeros_like(action), jax.random.key(0))
    assert not timestep.truncated


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
    expected = make_reference(id).compute_reward(achieved, goals, {})
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
        ("FetchReach-v4", {"engine": "mjx"}, "engine='mjx', but MJX.*meshes"),
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


def test_the_sides_of_boxes_have_one_shade():
    env = jaxenvs.make("FetchPush-v4").unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(1))
    front = np.asarray(jax.jit(env.render)(state))[340:400, 160:280].astype(int)
    assert np.ptp(front, axis=(0, 1)).max() < 20  # of the table


def test_pictures_have_the_goal():
    env = jaxenvs.make("PointMaze_UMaze-v3").unwrapped
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    draw = jax.jit(env.render)
    here = np.asarray(draw(state)).astype(int)
    there = np.asarray(draw(state.replace(goal=-state.goal))).astype(int)
    red = [(picture[..., 0] - picture[..., 1] > 100).sum() for picture in (here, there)]
    assert here.shape == (480, 480, 3) and min(red) > 100 and (here != there).sum() > 200


@pytest.mark.parametrize("id", ["PointMaze_UMaze-v3", "FetchPickAndPlace-v4"])
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
