"""The free maze: its levels, their text form, mutations, and shortest paths."""

import collections
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.minigrid import Maze, MazeLevel, cells
from jaxenvs.envs.minigrid.level import FORWARD, LEFT, RIGHT, STEPS_X, STEPS_Y
from jaxenvs.envs.minigrid.maze import mutate, shortest_path
from jaxenvs.envs.minigrid.mazes import TEST_MAZES
from jaxenvs.errors import ParameterError
from jaxenvs.timestep import Start
from jaxenvs.wrappers import TimeLimit

KEY = jax.random.key(0)
# Steps of the shortest path, and walls, as jaxued computes them.
FACTS = {
    "SixteenRooms": (26, 46),
    "SixteenRooms2": (28, 53),
    "Labyrinth": (113, 72),
    "LabyrinthFlipped": (113, 72),
    "Labyrinth2": (113, 72),
    "StandardMaze": (54, 73),
    "StandardMaze2": (73, 72),
    "StandardMaze3": (54, 71),
}
PICTURE = """
    #..G
    .#^.
    ...#
"""
draw = jax.jit(lambda env, keys: jax.vmap(env.level)(keys))
paths_of = jax.jit(jax.vmap(shortest_path))
reset_to = jax.jit(lambda env, level: env.reset_to(level))


def levels(number, **parameters):
    """Returns a batch of random levels."""
    return draw(Maze(**parameters), jax.random.split(KEY, number))


def rows(batch):
    """Returns the levels of a batch as NumPy arrays."""
    batch = jax.device_get(batch)
    return [jax.tree.map(lambda leaf, i=i: leaf[i], batch) for i in range(len(batch.walls))]


def best_actions(level):
    """Returns the shortest sequence of actions to the goal, None without one."""
    height, width = np.shape(level.walls)
    goal, agent = (tuple(map(int, place)) for place in (level.goal, level.agent))
    start = (*agent, int(level.direction))
    queue, found = collections.deque([start]), {start: []}
    while queue:
        x, y, direction = pose = queue.popleft()
        ahead = x + int(STEPS_X[direction]), y + int(STEPS_Y[direction])
        if ahead == goal:
            return [*found[pose], FORWARD]
        options = [((x, y, (direction - 1) % 4), LEFT), ((x, y, (direction + 1) % 4), RIGHT)]
        is_inside = 0 <= ahead[0] < width and 0 <= ahead[1] < height
        if is_inside and (not level.walls[ahead[::-1]] or ahead == agent):
            options.append(((*ahead, direction), FORWARD))
        for following, action in options:
            if following not in found:
                found[following] = [*found[pose], action]
                queue.append(following)
    return None


# Levels of papers, and the text form


def test_mazes_of_papers_are_those_of_jaxued():
    found = {}
    for name in TEST_MAZES:
        level = MazeLevel.from_name(name)
        assert level.to_text() == TEST_MAZES[name].strip()
        found[name] = int(shortest_path(level)), int(level.walls.sum())
    assert found == FACTS


def test_text_of_a_level_gives_its_places():
    level = MazeLevel.from_text(PICTURE)
    expected = [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_array_equal(level.walls, np.array(expected, bool))
    assert (level.goal.tolist(), level.agent.tolist(), int(level.direction)) == ([3, 0], [2, 1], 3)
    assert level.to_text().split() == PICTURE.split()


def test_levels_survive_their_text_form():
    drawn = levels(16)
    read = [MazeLevel.from_text(level.to_text()) for level in rows(drawn)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *read)
    chex.assert_trees_all_equal_shapes_and_dtypes(stacked, drawn)
    chex.assert_trees_all_equal(stacked, drawn)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (".G>\n.x.", "the character 'x'; expected #"),
        (". G>", "the character ' '"),
        (".G>\n..", "rows of 2 and 3 characters"),
        ("GG>", "2 goals and 1 agents"),
        ("..>", "0 goals and 1 agents"),
        (".G.", "1 goals and 0 agents"),
        ("vG^", "1 goals and 2 agents"),
        ("", "0 goals and 0 agents"),
    ],
)
def test_text_that_is_not_a_level_is_refused(text, words):
    with pytest.raises(ParameterError, match=f"MazeLevel.from_text got {words}"):
        MazeLevel.from_text(text)


def test_misspelled_maze_suggests_the_closest():
    with pytest.raises(ParameterError, match=r"got name='labyrint'.*Close: \"Labyrinth\""):
        MazeLevel.from_name("labyrint")


# Draws and resets


def test_generator_has_the_statistics_of_jaxued():
    drawn = levels(8_192)
    paths, distinct = paths_of(drawn), 169 * (1 - (168 / 169) ** 60)
    np.testing.assert_allclose((paths >= 0).mean(), 0.847, atol=0.01)
    np.testing.assert_allclose(drawn.walls.sum((1, 2)).mean(), distinct, atol=0.15)
    assert np.median(paths[paths >= 0]) == 14
    np.testing.assert_allclose(drawn.walls.mean(0), distinct / 169, atol=0.03)
    for leaf, number in ((drawn.agent, 13), (drawn.goal, 13), (drawn.direction, 4)):
        shares = np.bincount(np.ravel(leaf)) / np.size(leaf)
        np.testing.assert_allclose(shares, np.full(number, 1 / number), atol=0.02)
    each = np.arange(len(paths))
    assert not drawn.walls[each, drawn.agent[:, 1], drawn.agent[:, 0]].any()
    assert not drawn.walls[each, drawn.goal[:, 1], drawn.goal[:, 0]].any()
    assert (drawn.agent != drawn.goal).any(1).all()


def test_fullest_maze_has_room_for_agent_and_goal():
    drawn = levels(64, size=4, num_walls=2)
    assert (drawn.agent != drawn.goal).any(1).all() and drawn.walls.sum((1, 2)).max() == 2


@pytest.mark.parametrize("wrap", [lambda env: env, lambda env: TimeLimit(env, time_limit=50)])
def test_reset_is_reset_to_the_level_of_the_key(wrap):
    env = wrap(jaxenvs.make("MiniGrid-Maze-13x13-v0"))
    level = jax.jit(env.level)(KEY)
    assert isinstance(level, MazeLevel)
    state, timestep = jax.jit(env.reset)(KEY)
    for same in (level, KEY, Start(state=state, timestep=timestep)):
        chex.assert_trees_all_equal(reset_to(env, same), (state, timestep))


def test_batches_start_in_a_level_each_and_do_so_again():
    names = ["StandardMaze", "StandardMaze2"]
    chosen = jax.tree.map(lambda *x: jnp.stack(x), *map(MazeLevel.from_name, names))
    envs = jaxenvs.make_vec("MiniGrid-Maze-13x13-v0", 2, max_steps=1).at_levels(chosen)
    state, first = jax.jit(envs.reset)(KEY)
    _, later = jax.jit(envs.step)(state, jnp.array([RIGHT, LEFT]), KEY)
    assert later.truncated.all()
    for i, name in enumerate(names):
        expected = Maze().reset_to(MazeLevel.from_name(name))[1].observation
        for timestep in (first, later):
            shown = jax.tree.map(lambda leaf, i=i: leaf[i], timestep.observation)
            chex.assert_trees_all_equal(shown, expected)


def test_where_goal_and_agent_are_there_is_no_wall():
    level = MazeLevel.from_text("..\n>G").replace(walls=jnp.ones((2, 2), bool))
    state, _ = Maze(size=4, num_walls=0).reset_to(level)
    np.testing.assert_array_equal(state.grid[2, 1:3], [cells.EMPTY, cells.GOAL])
    assert (np.delete(state.grid.ravel(), [9, 10]) == cells.WALL).all()
    assert shortest_path(level) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Maze(size=3), r"size=3; it must be an integer of at least 4"),
        (lambda: Maze(size=5, num_walls=8), r"num_walls=8; with size=5, at most 7"),
        (lambda: Maze().reset_to(MazeLevel.from_text(PICTURE)), r"\[3, 4\]; expected \[13, 13\]"),
        (lambda: Maze().reset_to(levels(2)), r"\[2, 13, 13\].*vector_env.reset_to"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(make, words):
    with pytest.raises(ParameterError, match=words):
        make()


# Shortest paths


@pytest.mark.parametrize("parameters", [{}, {"size": 6, "num_walls": 10}])
def test_shortest_paths_are_those_of_a_search(parameters):
    drawn = levels(200, **parameters)
    expected = [len(best_actions(level) or ()) or -1 for level in rows(drawn)]
    assert min(expected) == -1
    np.testing.assert_array_equal(paths_of(drawn), expected)


@pytest.mark.parametrize(("text", "steps"), [(PICTURE, 3), ("G.\n#<", 4), ("G#>", -1), (">G", 1)])
def test_shortest_paths_of_small_levels_by_hand(text, steps):
    assert shortest_path(MazeLevel.from_text(text)) == steps


def test_goal_under_the_agent_must_be_entered_again():
    level = MazeLevel.from_text(">G")
    assert shortest_path(level.replace(goal=level.agent)) == 4  # forward, twice right, forward


def test_shortest_path_refuses_too_many_columns():
    with pytest.raises(ParameterError, match="33 columns"):
        shortest_path(MazeLevel.from_text(">G" + 31 * "."))


@pytest.mark.parametrize("name", ["SixteenRooms", "Labyrinth"])
def test_shortest_path_is_the_way_to_the_largest_return(name):
    env, level = Maze(), MazeLevel.from_name(name)
    state, _ = reset_to(env, level)
    actions = jnp.array(best_actions(level))

    @jax.jit
    def play(state, actions):
        return jax.lax.scan(lambda state, action: env.step(state, action, KEY), state, actions)[1]

    timesteps, steps = play(state, actions), FACTS[name][0]
    assert timesteps.terminated.tolist() == [False] * (steps - 1) + [True]
    np.testing.assert_allclose(timesteps.reward[-1], 1 - 0.9 * steps / 250, rtol=1e-6)


# Mutations


@functools.partial(jax.jit, static_argnums=2)
def mutants(batch, key, num_edits):
    keys = jax.random.split(key, len(batch.walls))
    return jax.vmap(lambda level, key: mutate(level, key, num_edits))(batch, keys)


def test_mutation_keeps_the_agent_and_free_cells():
    before = levels(1_000)
    after = mutants(before, KEY, 20)
    chex.assert_trees_all_equal_shapes_and_dtypes(before, after)
    np.testing.assert_array_equal(before.agent, after.agent)
    np.testing.assert_array_equal(before.direction, after.direction)
    for place in (after.agent, after.goal):
        assert ((place >= 0) & (place < 13)).all()
        assert not after.walls[np.arange(1_000), place[:, 1], place[:, 0]].any()
    assert (after.goal != after.agent).any(1).all()
    changed = (before.walls ^ after.walls).sum((1, 2))
    assert changed.max() <= 20
    np.testing.assert_allclose(changed.mean(), 20 / 3, atol=0.4)
    chex.assert_trees_all_equal(mutants(before, KEY, 0), before)


def test_single_edits_have_equal_probabilities():
    level = MazeLevel.from_text("#.G\n.^#")
    many = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (6_000, *leaf.shape)), level)
    after = mutants(many, KEY, 1)
    found = collections.Counter(row.to_text() for row in rows(after))
    flips = ["..G\n.^#", "##G\n.^#", "#.G\n#^#", "#.G\n.^."]
    moves = ["#G.\n.^#", "#..\nG^#"]
    expected = {level.to_text(): 1 / 3}
    expected |= dict.fromkeys(flips, 1 / 12) | dict.fromkeys(moves, 1 / 6)
    assert found.keys() == expected.keys()
    for text, share in expected.items():
        np.testing.assert_allclose(found[text] / 6_000, share, atol=0.02)


def test_mutation_of_a_level_without_room_changes_nothing():
    level = MazeLevel.from_text(">G")
    for seed in range(3):
        chex.assert_trees_all_equal(mutate(level, jax.random.key(seed)), level)
