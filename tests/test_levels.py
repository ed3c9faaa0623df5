"""Levels: where episodes start, lists of levels, and levels that are held out."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import levels, wrappers
from jaxenvs.errors import ParameterError, UnknownParameterError, WrapperError
from jaxenvs.levels import RandomizedLevel, Start, distinct_seeds, held_out_seeds
from tests.vector.test_sharding import mesh_of

N = 4


def keys(number, seed=0):
    return jax.random.split(jax.random.key(seed), number)


def play(env, num_steps):
    """Returns the timesteps of random actions, [T, N, ...]."""

    def step(carry, key):
        state, timestep = env.step(carry, env.action_space.sample(key), key)
        return state, timestep

    return jax.lax.scan(step, env.reset(jax.random.key(1))[0], keys(num_steps, 2))[1]


@pytest.fixture(scope="module")
def pole():
    return jaxenvs.make("CartPole-v1")


@pytest.fixture(scope="module")
def random_pole(pole):
    return wrappers.RandomizeParameters(pole, {"gravity": (5.0, 15.0), "length": (0.3, 0.8)})


def test_a_key_is_the_level_of_its_reset(pole):
    envs = jaxenvs.vectorize(pole, N)
    chex.assert_trees_all_equal(envs.reset_to(keys(N)), envs.reset(keys(N)))
    chex.assert_trees_all_equal(pole.reset_to(jax.random.key(3)), pole.reset(jax.random.key(3)))


def test_an_episode_goes_on_from_a_state(pole):
    state, timestep = pole.reset(jax.random.key(0))
    for _ in range(3):
        state, timestep = pole.step(state, jnp.int32(1), jax.random.key(1))
    begun, first = pole.reset_to(Start(state=state, timestep=timestep))
    chex.assert_trees_all_equal(begun, state)
    assert first.reward == 0 and not first.done and begun.elapsed == 3
    chex.assert_trees_all_equal(first.observation, timestep.observation)


@pytest.mark.parametrize("mode", ["same_step", "next_step"])
@pytest.mark.parametrize("mesh", [None, 2])
def test_each_instance_replays_its_level(pole, mode, mesh):
    mesh = mesh if mesh is None else mesh_of(mesh)
    envs = jaxenvs.vectorize(pole, N, autoreset_mode=mode, mesh=mesh, stagger=9).at_levels(keys(N))
    start = jax.vmap(pole.reset)(keys(N))[1].observation
    chex.assert_trees_all_equal(envs.reset(jax.random.key(9))[1].observation, start)
    timesteps = jax.jit(play, static_argnums=1)(envs, 60)
    begins = np.asarray(timesteps.done)
    if mode == "next_step":
        begins = np.roll(begins, 1, axis=0) & (np.arange(60) > 0)[:, None]
    assert begins.sum() > N
    observations = np.asarray(timesteps.observation)
    for time, instance in zip(*np.nonzero(begins), strict=True):
        np.testing.assert_array_equal(observations[time, instance], start[instance])


def test_new_levels_do_not_compile_again(pole):
    envs = jaxenvs.vectorize(pole, N).wrap(wrappers.NormalizeReward).at_levels(keys(N))
    reset = jax.jit(lambda envs: envs.reset(jax.random.key(0)))
    one, two = reset(envs), reset(envs.at_levels(keys(N, 5)))
    assert reset._cache_size() == 1
    assert (one[1].observation != two[1].observation).any()


def test_weights_decide_how_often_levels_are_drawn(pole):
    env = wrappers.Levels(pole, keys(4), weights=jnp.array([0.0, 1.0, 0.0, 3.0]))
    drawn = jax.vmap(env.level)(keys(4_000))
    counts = np.bincount(drawn, minlength=4)
    assert counts[0] == counts[2] == 0
    assert abs(counts[3] - 3_000) < 5 * (4_000 * 0.25 * 0.75) ** 0.5
    uniform = np.bincount(jax.vmap(wrappers.Levels(pole, keys(4)).level)(keys(4_000)))
    assert (abs(uniform - 1_000) < 5 * (4_000 * 0.25 * 0.75) ** 0.5).all()


def test_info_tells_the_level_of_the_episode(pole):
    envs = jaxenvs.make_vec("CartPole-v1", N, levels=range(10, 13))
    timesteps = jax.jit(play, static_argnums=1)(envs, 60)
    begins = np.nonzero(np.asarray(timesteps.done))
    starts = jax.vmap(lambda seed: pole.reset(jax.random.key(seed))[1].observation)(
        jnp.arange(10, 13)
    )
    index = np.asarray(timesteps.info["level"])
    np.testing.assert_array_equal(timesteps.observation[begins], starts[index[begins]])
    ended = np.asarray(timesteps.final_info["level"])
    went_on = ~np.asarray(timesteps.done)
    assert (ended == index)[went_on].all() and (ended != index).any()


def test_random_parameters_hold_for_an_episode(pole, random_pole):
    level = random_pole.level(jax.random.key(0))
    state, timestep = random_pole.reset(jax.random.key(0))
    chex.assert_trees_all_equal((state, timestep), random_pole.reset_to(level))
    fixed = pole.replace(**level.parameters)
    other, expected = fixed.reset_to(level.level)
    for i in range(20):
        action, key = jnp.int32(i % 2), jax.random.key(i)
        state, timestep = random_pole.step(state, action, key)
        other, expected = fixed.step(other, action, key)
        chex.assert_trees_all_equal(timestep, expected)
    chex.assert_trees_all_equal(state.parameters, level.parameters)
    chex.assert_trees_all_equal(random_pole.render(state), fixed.render(other))


def test_random_parameters_fill_their_ranges():
    env = jaxenvs.make("FrozenLake-v1", time_limit=None)
    env = wrappers.RandomizeParameters(env, {"success_rate": (0.2, 0.4)})
    env = wrappers.TimeLimit(env, 9).wrap(wrappers.RandomizeParameters, {"time_limit": (3, 5)})
    state, _ = jax.vmap(env.reset)(keys(2_000))
    rate, limit = state.inner.inner.parameters["success_rate"], state.parameters["time_limit"]
    assert rate.min() >= 0.2 and rate.max() < 0.4 and abs(rate.mean() - 0.3) < 0.01
    assert limit.dtype == jnp.int32 and set(np.unique(limit)) == {3, 4, 5}
    assert abs(np.corrcoef(rate, limit)[0, 1]) < 0.1


def test_a_mutation_moves_parameters_within_their_ranges(random_pole):
    env = random_pole.wrap(wrappers.RandomizeParameters, {"time_limit": (10, 20)})
    level = env.level(jax.random.key(0))
    moved = jax.vmap(lambda key: env.mutate(level, key))(keys(500))
    limit, before = moved.parameters["time_limit"], level.parameters["time_limit"]
    assert limit.dtype == before.dtype and limit.min() >= 10 and limit.max() <= 20
    assert 0 < abs(limit - before).mean() < 3
    inner = jax.vmap(lambda key: random_pole.mutate(level.level, key))(keys(500))
    gravity = inner.parameters["gravity"]
    assert gravity.min() >= 5 and gravity.max() <= 15
    assert 0.3 < abs(gravity - level.level.parameters["gravity"]).mean() < 1.2
    words = jax.random.key_data(inner.level)
    assert (words == jax.random.key_data(level.level.level)[None]).all()


def test_chosen_parameters_can_be_levels(random_pole):
    gravity = jnp.array([1.6, 24.8])
    chosen = RandomizedLevel(
        parameters={"gravity": gravity, "length": jnp.full(2, 0.5)}, level=keys(2)
    )
    state, _ = jax.vmap(wrappers.Levels(random_pole, chosen).reset)(keys(50))
    np.testing.assert_array_equal(state.inner.parameters["gravity"], gravity[state.index])


def test_held_out_levels_differ_from_those_of_training():
    env = jaxenvs.make("MiniGrid-DoorKey-5x5-v0")
    known = distinct_seeds(env, range(20))
    assert len(known) < 20
    held_out = held_out_seeds(env, range(20), 10)
    assert len(held_out) == 10 and min(held_out) >= 20
    start = jax.jit(lambda seed: jax.tree.leaves(env.reset(jax.random.key(seed))[0]))

    def hashes(seeds):
        return {b"".join(np.asarray(leaf).tobytes() for leaf in start(seed)) for seed in seeds}

    assert hashes(range(20)) == hashes(known) and len(hashes(known)) == len(known)
    assert len(hashes(held_out)) == 10 and not hashes(held_out) & hashes(known)


def test_train_and_test_are_seeds():
    train = jaxenvs.make("CartPole-v1", levels="train")
    test = jaxenvs.make("CartPole-v1", levels="test")
    expected = levels.from_seeds(jaxenvs.make("CartPole-v1"), range(200))
    assert (jax.random.key_data(train.levels) == jax.random.key_data(expected)).all()
    assert test.levels.shape == (1_000,)
    both = np.concatenate([jax.random.key_data(each.levels) for each in (train, test)])
    assert len(np.unique(both, axis=0)) == 1_200


@pytest.mark.parametrize(
    ("id", "given", "words"),
    [
        ("CartPole-v1", "tests", 'levels="tests"; expected "train"'),
        ("CartPole-v1", [], "expected integers"),
        ("CartPole-v1", [0.5], "expected integers"),
        ("CartPole-v1", 0, "expected integers"),
        ("CartPole-v1", [-1], "from 0 to"),
        ("MiniGrid-Empty-5x5-v0", "test", "has only the 1 levels"),
    ],
)
def test_wrong_levels_are_refused(id, given, words):
    with pytest.raises(ParameterError, match=words):
        jaxenvs.make(id, levels=given)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda env: wrappers.Levels(env, jnp.float32(1)), WrapperError, "same first axis"),
        (lambda env: wrappers.Levels(env, keys(3), jnp.ones(2)), WrapperError, r"float32\[3\]"),
        (lambda env: wrappers.Levels(env, keys(2), -jnp.ones(2)), WrapperError, "at least 0"),
        (lambda env: wrappers.Levels(env, keys(2), jnp.zeros(2)), WrapperError, "at least 0"),
        (
            lambda env: wrappers.Levels(wrappers.Levels(env, keys(2)), jnp.arange(2)).reset(
                jax.random.key(0)
            ),
            WrapperError,
            'already has the entry "level"',
        ),
        (lambda env: wrappers.RandomizeParameters(env, {}), WrapperError, "expected bounds"),
        (
            lambda env: wrappers.RandomizeParameters(env, {"gravity": (9.0, 1.0)}),
            WrapperError,
            "expected \\(low, high\\)",
        ),
        (
            lambda env: wrappers.RandomizeParameters(env, {"gravty": (1.0, 9.0)}),
            UnknownParameterError,
            "gravity",
        ),
        (
            lambda env: wrappers.RandomizeParameters(env, {"sutton_barto_reward": (0, 1)}),
            WrapperError,
            "not a number",
        ),
    ],
)
def test_wrong_lists_and_ranges_are_refused(pole, make, error, words):
    with pytest.raises(error, match=words):
        make(pole)
