"""Resets of finished instances only, in chunks, with the same bits as resetting everything."""

import functools
import itertools
from unittest import mock

import chex
import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs import keys
from jaxenvs._cpu.bits import nth_true, pack
from jaxenvs._cpu.chunks import choose_chunk, overwrite_where
from jaxenvs.testing.dummy import BOTH, CONTINUE, TERMINATE, TRUNCATE, CountingEnv, ScriptedEnv
from tests.ids import EXAMPLES_OF_GAMES, every_nth, one_id_per_class
from tests.rounding import assert_agree

MODES = ("same_step", "next_step", "disabled")


# Finding and overwriting rows


def patterns(num_envs, seed):
    """Returns masks, bool[P, N]: all, none, first or last only, and random ones."""
    generator = np.random.default_rng(seed)
    edges = np.zeros((4, num_envs), bool)
    edges[0], edges[2, 0], edges[3, -1] = True, True, True
    densities = generator.choice([0.002, 0.05, 0.5, 0.98], size=(4, 1))
    return np.concatenate([edges, generator.random((4, num_envs)) < densities])


@hypothesis.settings(max_examples=8)
@hypothesis.given(num_envs=st.integers(1, 5000), seed=st.integers(0, 2**32 - 1))
@hypothesis.example(num_envs=1, seed=0)
@hypothesis.example(num_envs=32, seed=1)
@hypothesis.example(num_envs=33, seed=2)
@hypothesis.example(num_envs=5000, seed=3)
def test_nth_true_matches_numpy(num_envs, seed):
    masks = patterns(num_envs, seed)
    ranks = jnp.arange(num_envs + 3, dtype=jnp.int32)
    found = jax.jit(jax.vmap(lambda mask: (*pack(mask), nth_true(*pack(mask), ranks))))(masks)
    for mask, words, counts, indices in zip(masks, *map(np.asarray, found), strict=True):
        true = np.flatnonzero(mask)
        np.testing.assert_array_equal(indices[: len(true)], true)
        assert np.all(indices[len(true) :] >= num_envs)  # nothing is written there
        unpacked = np.unpackbits(words.view(np.uint8), bitorder="little")
        np.testing.assert_array_equal(unpacked[:num_envs], mask)
        np.testing.assert_array_equal(counts, np.cumsum([int(word).bit_count() for word in words]))


@hypothesis.settings(max_examples=8)
@hypothesis.given(data=st.data(), num_envs=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
def test_overwrite_where_matches_numpy(data, num_envs, seed):
    chunk = data.draw(st.integers(1, num_envs), label="chunk")
    platform = data.draw(st.sampled_from(["cpu", "gpu"]), label="platform")
    old = {
        "vector": np.arange(3 * num_envs, dtype=np.float32).reshape(-1, 3),
        "flag": np.arange(num_envs) % 2 == 0,
        "byte": np.arange(num_envs).astype(np.uint8),
    }

    def reset_at(offset, indices):
        return {
            "vector": -(indices.astype(jnp.float32) + offset)[:, None]
            * np.ones((1, 3), np.float32),
            "flag": indices % 3 == 0,
            "byte": (2 * indices).astype(jnp.uint8),
        }

    indices = np.arange(num_envs)
    fresh = {
        "vector": np.repeat(-(indices + 7)[:, None], 3, axis=1).astype(np.float32),
        "flag": indices % 3 == 0,
        "byte": (2 * indices).astype(np.uint8),
    }
    overwrite = jax.jit(lambda mask: overwrite_where(reset_at, chunk, mask, jnp.float32(7), old))
    for mask in patterns(num_envs, seed):
        expected = {
            name: np.where(mask.reshape(-1, *[1] * (leaf.ndim - 1)), fresh[name], leaf)
            for name, leaf in old.items()
        }
        with mock.patch("jax.default_backend", return_value=platform):
            chex.assert_trees_all_equal(overwrite(mask), expected)


@pytest.mark.parametrize("num_envs", [1, 2, 63, 64, 1000, 16_384])
def test_chosen_chunk_is_valid(num_envs):
    assert 1 <= (choose_chunk(num_envs) or num_envs) <= num_envs


# Chunked resets equal naive resets


@functools.cache
def player(env, num_envs, mode, chunk=None, batched=()):
    """Returns a jitted `(key, actions [T, N, ...]) -> (states, timesteps)`, [T, N, ...]."""
    vector_env = jaxenvs.vectorize(
        env, num_envs, autoreset_mode=mode, reset_chunk=chunk, batched=batched
    )

    def play(key, actions):
        def step(state, xs):
            number, action = xs
            state, timestep = vector_env.step(state, action, jax.random.fold_in(key, number))
            return state, (state, timestep)

        numbers = jnp.arange(len(actions), dtype=jnp.int32)
        return jax.lax.scan(step, vector_env.reset(key)[0], (numbers, actions))[1]

    return jax.jit(play)


SCRIPTED = ScriptedEnv()  # a single object, so that the cache of `player` works


@hypothesis.settings(max_examples=8)
@hypothesis.given(
    num_envs=st.sampled_from([1, 2, 7, 33, 100]),
    mode=st.sampled_from(MODES),
    data=st.data(),
)
def test_chunked_resets_equal_resetting_all(num_envs, mode, data):
    chunk = data.draw(st.integers(1, num_envs), label="chunk")
    seed = data.draw(st.integers(0, 2**31 - 1), label="seed")
    generator = np.random.default_rng(seed)
    key = jax.random.key(seed)
    for density in data.draw(st.tuples(*[st.sampled_from([0.0, 0.02, 0.3, 1.0])] * 3), "densities"):
        ends = generator.random((6, num_envs)) < density
        actions = np.where(ends, generator.integers(1, 4, ends.shape), CONTINUE).astype(np.int32)
        chex.assert_trees_all_equal(
            player(SCRIPTED, num_envs, mode, chunk)(key, actions),
            player(SCRIPTED, num_envs, mode, num_envs)(key, actions),
        )


@pytest.mark.parametrize(
    ("id", "batch"),
    # `check_env` compares small batches with a loop.
    every_nth(
        7,
        itertools.product(
            sorted({*one_id_per_class()} - {*EXAMPLES_OF_GAMES})[::4],
            [("same_step", 66, (7, None)), ("next_step", 40, (7,))],
        ),
    ),
)
def test_chunked_resets_equal_resetting_all_for_many_ids(id, batch):
    mode, num_envs, chunks = batch
    # Limits of 3 to 11 steps, so that every step ends some of the episodes.
    env = jaxenvs.make(id, time_limit=9).replace(time_limit=3 + np.arange(num_envs) % 9)
    space = env.action_space.batch(num_envs)
    actions = jax.jit(lambda key: space.sample(key, shape=(300,)))(jax.random.key(1))
    naive, *others = (
        player(env, num_envs, mode, chunk, ("time_limit",))(jax.random.key(0), actions)
        for chunk in (num_envs, *chunks)
    )
    assert np.mean(naive[1].done) > 0.1  # much more if the episodes are shorter by themselves
    for compacted in others:
        assert_agree(compacted, naive, tolerance=1e-4)


@pytest.mark.parametrize("layout", ["dict", "tuple"])
def test_resets_with_nested_observations_and_keys_in_states(layout):
    env, actions = CountingEnv(layout=layout, has_key=True), np.zeros((9, 7), np.int32)
    states, timesteps = zip(
        *(player(env, 7, "same_step", chunk)(jax.random.key(0), actions) for chunk in (3, 7)),
        strict=True,
    )
    assert_agree(*timesteps)
    memories = [state.key for state in states]
    assert memories[0].dtype == jax.random.key(0).dtype
    chex.assert_trees_all_equal(*map(jax.random.key_data, memories))
    assert len(np.unique(jax.random.key_data(memories[0]), axis=None)) > 9 * 7


# The results of each mode, step by step

NUM_ENVS = 4
# One column per instance: never ends; terminates; is truncated, then ends both ways; ends twice.
SCRIPT = np.array(
    [
        [CONTINUE, CONTINUE, CONTINUE, TERMINATE],
        [CONTINUE, TERMINATE, TRUNCATE, BOTH],
        [CONTINUE, BOTH, CONTINUE, TERMINATE],
        [CONTINUE, CONTINUE, BOTH, CONTINUE],
        [CONTINUE, CONTINUE, CONTINUE, CONTINUE],
    ],
    np.int32,
)


@functools.cache
def played(mode):
    """Returns the reset timestep [N, ...] and the timesteps of SCRIPT, [T, N, ...]."""
    key = jax.random.key(0)
    _, first = jax.jit(jaxenvs.vectorize(SCRIPTED, NUM_ENVS, autoreset_mode=mode).reset)(key)
    timesteps = player(SCRIPTED, NUM_ENVS, mode)(key, SCRIPT)[1]
    return jax.tree.map(np.asarray, first), jax.tree.map(np.asarray, timesteps)


def counts(observation):
    """Returns the step count of the episode from `ScriptedEnv` observations, [..., 2]."""
    return observation[..., 1].astype(int).tolist()


@pytest.mark.parametrize("mode", MODES)
def test_reset_has_no_reward_and_no_flags(mode):
    first, _ = played(mode)
    assert not first.reward.any() and not first.done.any()
    np.testing.assert_array_equal(first.final_observation, first.observation)
    assert counts(first.observation) == [0] * NUM_ENVS == first.info["count"].tolist()
    assert len(np.unique(first.observation[:, 0])) == NUM_ENVS


def test_same_step_mode():
    first, timesteps = played("same_step")
    # The step that ends an episode keeps its reward and flags. Its info is in `final_info`.
    np.testing.assert_array_equal(timesteps.reward, SCRIPT.astype(np.float32))
    np.testing.assert_array_equal(timesteps.terminated, np.isin(SCRIPT, (TERMINATE, BOTH)))
    np.testing.assert_array_equal(timesteps.truncated, np.isin(SCRIPT, (TRUNCATE, BOTH)))
    led_to = [[1, 1, 1, 1], [2, 2, 2, 1], [3, 1, 1, 1], [4, 1, 2, 1], [5, 2, 1, 2]]
    goes_on = [[1, 1, 1, 0], [2, 0, 0, 0], [3, 0, 1, 0], [4, 1, 0, 1], [5, 2, 1, 2]]
    assert counts(timesteps.final_observation) == led_to
    assert timesteps.final_info["count"].tolist() == led_to
    assert counts(timesteps.observation) == goes_on == timesteps.info["count"].tolist()
    # The final observation belongs to the old episode, `observation` to the new one.
    episodes = np.concatenate([first.observation[None], timesteps.observation])[..., 0]
    np.testing.assert_array_equal(timesteps.final_observation[..., 0], episodes[:-1])
    np.testing.assert_array_equal(episodes[1:] != episodes[:-1], timesteps.done)


def test_next_step_mode():
    first, timesteps = played("next_step")
    resets = np.array([[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 0], [0, 0, 0, 1], [0, 0, 1, 0]], bool)
    np.testing.assert_array_equal(timesteps.reward, np.where(resets, 0, SCRIPT))
    ends = np.where(resets, CONTINUE, SCRIPT)
    np.testing.assert_array_equal(timesteps.terminated, np.isin(ends, (TERMINATE, BOTH)))
    np.testing.assert_array_equal(timesteps.truncated, np.isin(ends, (TRUNCATE, BOTH)))
    expected = [[1, 1, 1, 1], [2, 2, 2, 0], [3, 0, 0, 1], [4, 1, 1, 0], [5, 2, 0, 1]]
    assert counts(timesteps.observation) == expected == timesteps.info["count"].tolist()
    np.testing.assert_array_equal(timesteps.final_observation, timesteps.observation)
    episodes = np.concatenate([first.observation[None], timesteps.observation])[..., 0]
    np.testing.assert_array_equal(episodes[1:] != episodes[:-1], resets)


def test_disabled_mode():
    first, timesteps = played("disabled")
    over = np.array([[0, 0, 0, 1], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]], bool)
    before = np.concatenate([np.zeros((1, NUM_ENVS), bool), over[:-1]])
    np.testing.assert_array_equal(timesteps.done, over)
    np.testing.assert_array_equal(timesteps.reward, np.where(before, 0, SCRIPT))
    # Flags do not change after the end: instance 3 stays terminated, whatever its later actions.
    np.testing.assert_array_equal(timesteps.terminated[-1], [False, True, False, True])
    np.testing.assert_array_equal(timesteps.truncated[-1], [False, False, True, False])
    expected = [[1, 1, 1, 1], [2, 2, 2, 1], [3, 2, 2, 1], [4, 2, 2, 1], [5, 2, 2, 1]]
    assert counts(timesteps.observation) == expected == timesteps.info["count"].tolist()
    np.testing.assert_array_equal(timesteps.final_observation, timesteps.observation)
    assert (timesteps.observation[..., 0] == first.observation[None, :, 0]).all()


# Keys of the instances


def each_of(derive, key, num_envs):
    return jax.vmap(derive, (None, 0))(key, jnp.arange(num_envs, dtype=jnp.uint32))


def test_instances_use_the_key_folded_with_their_index():
    env, num_envs = CountingEnv(), 5
    vector_env = jaxenvs.vectorize(env, num_envs)
    reset_key, step_key = jax.random.split(jax.random.key(3))
    actions = jnp.zeros(num_envs, jnp.int32)
    state, timestep = jax.jit(vector_env.reset)(reset_key)
    alone = jax.jit(jax.vmap(env.reset))(each_of(jax.random.fold_in, reset_key, num_envs))
    chex.assert_trees_all_equal(state, alone[0])
    assert_agree(timestep.observation, alone[1].observation)

    stepped_state, stepped = jax.jit(vector_env.step)(state, actions, step_key)
    alone = jax.jit(jax.vmap(env.step))(
        state, actions, each_of(jax.random.fold_in, step_key, num_envs)
    )[1]
    fresh = jax.jit(jax.vmap(env.reset))(each_of(keys.autoreset_key, step_key, num_envs))
    done = np.asarray(stepped.done)
    assert done.any() and not done.all()
    assert_agree(stepped.final_observation, alone.observation)
    expected = np.where(done[:, None], fresh[1].observation, alone.observation)
    assert_agree(stepped.observation, expected)
    lengths = np.where(done, fresh[0].length, state.length)
    chex.assert_trees_all_equal(np.asarray(stepped_state.length), lengths)


@pytest.mark.parametrize(
    "env",
    [CountingEnv(), jaxenvs.make("CartPole-v1", time_limit=7)],
    ids=["CountingEnv", "CartPole"],
)
def test_instances_do_not_depend_on_num_envs(env):
    actions = np.random.default_rng(0).integers(0, 2, (20, 24), np.int32)
    few = player(env, 8, "same_step")(jax.random.key(0), actions[:, :8])
    many = player(env, 24, "same_step", 5)(jax.random.key(0), actions)
    assert_agree(few[1], jax.tree.map(lambda leaf: leaf[:, :8], many[1]))
