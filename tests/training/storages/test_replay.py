"""Transitions carry when and where they happened, so that every row can be told apart."""

import functools
import itertools
import math
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxenvs._cpu import barrier
from jaxenvs.errors import TrainingError
from jaxenvs.training.storages import PrioritizedReplay, Replay
from jaxenvs.training.storages._sum_tree import FANOUT, levels
from jaxenvs.training.types import Transition

NUM_ENVS, UNROLL, N_STEP, GAMMA = 3, 4, 3, 0.9
KEY = jax.random.key(0)
STORAGES = [Replay(capacity=50, n_step=N_STEP), PrioritizedReplay(capacity=50, n_step=N_STEP)]


def stream(length, seed=0, ends=0.25):
    """Steps of which the observation is [time, instance]; the next one is 1000 more."""
    rng = np.random.default_rng(seed)
    shape = (length, NUM_ENVS)
    at = np.stack(np.broadcast_arrays(np.arange(length)[:, None], np.arange(NUM_ENVS)[None]), -1)
    return Transition(
        observation=at.astype(np.float32),
        action=rng.integers(0, 5, shape).astype(np.int32),
        reward=rng.normal(size=shape).astype(np.float32),
        terminated=rng.random(shape) < ends / 2,
        truncated=rng.random(shape) < ends / 2,
        next_observation=at.astype(np.float32) + 1000,
    )


def n_step_by_hand(steps, time, instance, n_step):
    """(return, discount, time of the last step), or None while steps of the window are missing."""
    total = 0.0
    for k in range(n_step):
        t = time + k
        if t >= len(steps.reward):
            return None
        total += GAMMA**k * steps.reward[t, instance]
        if steps.terminated[t, instance]:
            return total, 0.0, t
        if steps.truncated[t, instance]:
            break
    return total, GAMMA ** (k + 1), t


@functools.partial(jax.jit, static_argnums=(0, 3))
def fill_and_sample(storage, steps, key, batch_size):
    """What is drawn after each unroll, and how much could be."""
    unrolls = jax.tree.map(lambda x: x.reshape(-1, UNROLL, *x.shape[1:]), steps)

    def add(state, inputs):
        unroll, key = inputs
        state = storage.add(state, unroll)
        sample = storage.sample(state, key, batch_size, gamma=GAMMA, steps=0.0)
        return state, (storage.size(state), sample)

    state = storage.init(jax.tree.map(lambda x: x[0], unrolls))
    keys = jax.random.split(key, unrolls.reward.shape[0])
    return jax.lax.scan(add, state, (unrolls, keys))


@pytest.mark.parametrize("storage", STORAGES)
def test_replay_draws_valid_rows_uniformly_with_n_step_returns(storage):
    steps = stream(48)
    draws = 20_000
    _, (sizes, samples) = fill_and_sample(storage, steps, jax.random.key(1), draws)
    sizes, samples = jax.device_get((sizes, samples))
    length = 20  # rows for 50 transitions of 3 instances, so that unrolls of 4 fit
    weight = samples.weight if storage is STORAGES[1] else np.ones_like(samples.weight)
    chex.assert_trees_all_close(weight, np.ones_like(weight), rtol=1e-5)  # all alike so far
    p_values = []
    for unroll in range(len(sizes)):
        known = jax.tree.map(lambda x: x[: (unroll + 1) * UNROLL], steps)  # noqa: B023
        times = range(max(len(known.reward) - length, 0), len(known.reward))
        expected = {
            (t, n): row
            for t in times
            for n in range(NUM_ENVS)
            if (row := n_step_by_hand(known, t, n, N_STEP))
        }
        assert sizes[unroll] == len(expected)
        sample = jax.tree.map(lambda x: x[unroll], samples)  # noqa: B023
        rows, first, counts = np.unique(
            sample.observation, axis=0, return_index=True, return_counts=True
        )
        drawn = [(int(t), int(n)) for t, n in rows]
        assert set(drawn) == set(expected)
        for at, i in zip(drawn, first, strict=True):
            reward, discount, last = expected[at]
            assert sample.reward[i] == pytest.approx(reward, abs=1e-5)
            assert sample.discount[i] == pytest.approx(discount, abs=1e-6)
            assert sample.next_observation[i].tolist() == [last + 1000, at[1] + 1000]
            assert sample.action[i] == steps.action[at]
        p_values.append(stats.chisquare(counts).pvalue)
    assert min(p_values) > 0.01 / len(p_values)


@pytest.mark.parametrize("storage_type", [Replay, PrioritizedReplay])
def test_replay_shorter_than_n_step_draws_only_known_rows(storage_type):
    storage, steps = storage_type(capacity=50, n_step=6), stream(8, ends=0.6)
    state = storage.init(jax.tree.map(lambda x: x[:1], steps))
    add = jax.jit(storage.add)
    size = jax.jit(storage.size)
    draw = jax.jit(lambda state: storage.sample(state, KEY, 500, gamma=GAMMA, steps=0.0))
    for count in range(1, 9):
        state = add(state, jax.tree.map(lambda x, i=count: x[i - 1 : i], steps))
        known = jax.tree.map(lambda x, i=count: x[:i], steps)
        each = itertools.product(range(count), range(NUM_ENVS))
        expected = {at for at in each if n_step_by_hand(known, *at, 6)}
        assert size(state) == len(expected)
        if expected:
            sample = draw(state)
            rows = np.unique(sample.observation, axis=0).astype(int)
            assert {tuple(row) for row in rows.tolist()} == expected


def test_n_step_returns_match_rlax():
    import rlax

    steps = stream(32, seed=3)
    steps = steps.replace(truncated=np.zeros_like(steps.truncated))
    storage = Replay(capacity=96, n_step=N_STEP)
    _, (_, samples) = fill_and_sample(storage, steps, jax.random.key(0), 512)
    sample = jax.tree.map(lambda x: np.asarray(x[-1]), samples)
    value = np.random.default_rng(0).normal(size=steps.reward.shape).astype(np.float32)
    discount = GAMMA * (1 - steps.terminated.astype(np.float32))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        by_rlax = functools.partial(rlax.n_step_bootstrapped_returns, n=N_STEP)
        returns = jax.jit(jax.vmap(by_rlax, in_axes=1, out_axes=1))(steps.reward, discount, value)
    time, instance = sample.observation.astype(int).T
    last = sample.next_observation[:, 0].astype(int) - 1000
    targets = sample.reward + sample.discount * value[last, instance]
    chex.assert_trees_all_close(targets, np.asarray(returns)[time, instance], atol=1e-5)


def test_priorities_set_sampling_rates_and_weights_correct_them():
    storage = PrioritizedReplay(48, alpha=0.5, beta=0.5, beta_steps=1_000, epsilon=0.0)
    steps = stream(16)
    state, _ = fill_and_sample(storage, steps, jax.random.key(0), 2)
    error = np.random.default_rng(0).exponential(size=48).astype(np.float32) - 0.5
    error[7] = 0.0  # never drawn, as epsilon is 0
    error[9] = np.nan  # nothing was learned from it: still the first priority, 1

    @functools.partial(jax.jit, static_argnums=2)
    def sample_after(state, error, batch_size, steps):
        state = storage.set_priorities(state, jnp.arange(48, dtype=jnp.int32), error)
        return state, storage.sample(state, jax.random.key(2), batch_size, gamma=0.9, steps=steps)

    state, sample = sample_after(state, error, 50_000, 500)
    priority = np.sqrt(np.abs(error))
    priority[9] = 1.0
    probability = priority / priority.sum()
    counts = np.bincount(sample.index, minlength=48)
    assert counts[7] == 0
    drawn = np.arange(48) != 7
    expected = 50_000 * probability / probability.sum()
    assert stats.chisquare(counts[drawn], expected[drawn], sum_check=False).pvalue > 0.001

    weight = (48 * probability[sample.index]) ** -0.75  # beta half way from 0.5 to 1
    chex.assert_trees_all_close(np.asarray(sample.weight), weight / weight.max(), rtol=1e-4)
    assert state.largest == pytest.approx(priority.max())

    # What is new is drawn as often as what was worst.
    unroll = jax.tree.map(lambda x: x[:UNROLL], steps)
    leaves = np.asarray(jax.jit(storage.add)(state, unroll).tree)[:48]
    priority[: UNROLL * NUM_ENVS] = priority.max()
    chex.assert_trees_all_close(leaves, priority, rtol=1e-6)


def test_incomplete_rows_get_no_priority():
    storage = PrioritizedReplay(48, n_step=N_STEP)
    state, _ = fill_and_sample(storage, stream(16), jax.random.key(0), 2)
    before = np.asarray(state.tree)[:48]
    index = np.arange(48, dtype=np.int32)
    after = jax.jit(storage.set_priorities)(state, index, np.full(48, 3, np.float32)).tree
    is_incomplete = before == 0  # the last rows of each instance, whose n steps are not over
    assert is_incomplete.any() and not is_incomplete.all()
    np.testing.assert_array_equal(np.asarray(after)[:48] == 0, is_incomplete)


def test_priority_tree_sums_exactly_after_many_updates():
    storage = PrioritizedReplay(capacity=60, n_step=N_STEP, epsilon=0.0)
    steps = stream(200, seed=5)
    unrolls = jax.tree.map(lambda x: x.reshape(-1, UNROLL, *x.shape[1:]), steps)

    @jax.jit
    def train(state, unrolls, key):
        def update(state, inputs):
            unroll, key = inputs
            state = storage.add(state, unroll)
            sample_key, error_key = jax.random.split(key)
            sample = storage.sample(state, sample_key, 64, gamma=0.9, steps=0.0)
            error = jnp.exp(4 * jax.random.normal(error_key, (64,)))
            return storage.set_priorities(state, sample.index, error), None

        return jax.lax.scan(update, state, (unrolls, jax.random.split(key, 50)))[0]

    state = jax.jit(storage.init)(jax.tree.map(lambda x: x[0], unrolls))
    state = train(state, unrolls, jax.random.key(0))
    tree = [np.asarray(level) for level in levels(state.tree, state.ring.num_rows)]
    assert [len(level) for level in tree] == [64, 8]
    assert (tree[0] > 0).sum() == int(storage.size(state))
    for level, above in itertools.pairwise(tree):
        sums = np.zeros(above.shape)
        blocks = level.reshape(-1, FANOUT).sum(axis=1, dtype=np.float64)
        sums[: len(blocks)] = blocks
        chex.assert_trees_all_close(above.astype(np.float64), sums, rtol=1e-6)


@pytest.mark.parametrize("seeds", [0, 2])
@pytest.mark.parametrize("storage_type", [Replay, PrioritizedReplay])
def test_replay_loop_of_add_and_sample_copies_no_memory(storage_type, seeds):
    storage = storage_type(capacity=3000, n_step=N_STEP)
    unroll = jax.tree.map(lambda x: x[:UNROLL], stream(UNROLL))

    def update(state, inputs):
        unroll, key = inputs
        state = storage.add(state, unroll)
        sample = storage.sample(state, key, 8, gamma=0.9, steps=0.0)
        error = sample.reward + sample.discount  # what else was drawn is read when it likes
        return storage.set_priorities(state, sample.index, error), sample

    assert largest_copy(storage, update, unroll, seeds) < 3000


@pytest.mark.skipif(
    not barrier.BARRIER_STOPS_FUSION, reason="until jax 0.11 XLA fuses across barriers"
)
def test_prioritized_replay_partly_read_batch_copies_no_memory():
    """XLA fuses such reads with what was written last, and kept the memory from before for them."""
    storage, unroll = PrioritizedReplay(capacity=48_000), stream(1)

    def update(state, inputs):
        unroll, key = inputs
        state = storage.add(state, unroll)
        sample = storage.sample(state, key, 16, gamma=0.9, steps=0.0)
        used = jax.tree.leaves(sample.replace(index=()))
        error = sum(x.reshape(16, -1).astype(jnp.float32).sum(axis=1) for x in used)
        return storage.set_priorities(state, sample.index, error), error.sum()

    assert largest_copy(storage, update, unroll) < 48_000


def largest_copy(storage, update, unroll, seeds=0):
    """How many numbers the largest array has that a loop of updates copies."""
    state = jax.eval_shape(storage.init, unroll)
    many = jax.tree.map(lambda x: jax.ShapeDtypeStruct((5, *x.shape), x.dtype), unroll)
    inputs = state, (many, jax.eval_shape(lambda: jax.random.split(KEY, 5)))
    train = functools.partial(jax.lax.scan, update)
    if seeds:
        train = jax.vmap(train)
        inputs = jax.tree.map(lambda x: jax.ShapeDtypeStruct((seeds, *x.shape), x.dtype), inputs)
    text = jax.jit(train, donate_argnums=0).lower(*inputs).compile().as_text()
    assert "dynamic-update-slice" in text
    copied = re.findall(r"= \w+\[([\d,]+)\]\S* copy(?:-start)?\(", text)
    return max(math.prod(map(int, shape.split(","))) for shape in copied)


def test_replay_vmapped_over_seeds_matches_each_seed_alone():
    storage = STORAGES[1]
    seeds = [stream(24, seed) for seed in (0, 1)]
    keys = jax.random.split(jax.random.key(0))
    stacked = jax.tree.map(lambda *xs: np.stack(xs), *seeds)
    together = jax.jit(jax.vmap(lambda steps, key: fill_and_sample(storage, steps, key, 16)))
    _, (_, samples) = jax.device_get(together(stacked, keys))
    for i in (0, 1):
        _, (_, alone) = fill_and_sample(storage, seeds[i], keys[i], 16)
        chex.assert_trees_all_close(jax.tree.map(lambda x: x[i], samples), alone)  # noqa: B023


def test_replay_of_nested_observations_keeps_shapes_and_dtypes():
    steps = stream(8)
    steps = steps.replace(
        observation={"image": np.zeros((8, NUM_ENVS, 2, 2), np.uint8), "flag": steps.terminated},
        next_observation={"image": np.ones((8, NUM_ENVS, 2, 2), np.uint8), "flag": steps.truncated},
    )
    _, (_, samples) = fill_and_sample(Replay(capacity=9), steps, jax.random.key(0), 5)
    sample = jax.tree.map(lambda x: x[-1], samples)
    chex.assert_shape(sample.next_observation["image"], (5, 2, 2))
    assert sample.observation["image"].dtype == np.uint8 and sample.action.dtype == np.int32
    assert sample.observation["flag"].dtype == bool and sample.reward.dtype == np.float32


def test_an_unroll_of_another_shape_is_refused():
    steps = stream(8)
    storage = Replay(capacity=30)
    state = storage.init(jax.tree.map(lambda x: x[:4], steps))
    with pytest.raises(TrainingError, match="5 steps of 3 instances"):
        storage.add(state, jax.tree.map(lambda x: x[:5], steps))


def test_replay_size_is_transitions_plus_4_bytes_per_priority():
    unroll = jax.tree.map(lambda x: x[:4], stream(4))
    per_step = sum(x.nbytes // 12 for x in jax.tree.leaves(unroll))

    def held(storage):
        state = jax.eval_shape(storage.init, unroll)
        return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))

    assert held(Replay(capacity=120_000)) == 120_000 * per_step + 4
    with_sums = 1 / (1 - 1 / FANOUT)
    extra = held(PrioritizedReplay(capacity=120_000)) - held(Replay(capacity=120_000))
    assert extra == pytest.approx(120_000 * 4 * with_sums, rel=0.01)
