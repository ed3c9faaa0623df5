"""The buffer of levels, compared with a plain loop that inserts and draws one level at a time."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.training.curricula import LevelBuffer
from jaxenvs.training.curricula.buffer import digest_of

K = 12


class Sequential:
    """The buffer of the paper, one level at a time."""

    def __init__(self, buffer):
        self.buffer, self.levels, self.score, self.drawn, self.clock = buffer, [], [], [], 0

    def probabilities(self):
        score, buffer = np.array(self.score), self.buffer
        if buffer.prioritization == "rank":
            rank = 1 + np.argsort(np.argsort(-score, kind="stable"), kind="stable")
            weight = (1 / rank) ** (1 / buffer.temperature)
        else:
            weight = np.maximum(score, 0) ** (1 / buffer.temperature)
        stale = self.clock - np.array(self.drawn)
        even = np.full(len(score), 1 / len(score))
        by_score = weight / weight.sum() if weight.any() else even
        by_staleness = stale / stale.sum() if stale.any() else even
        return (1 - buffer.staleness) * by_score + buffer.staleness * by_staleness

    def insert(self, level, score):
        lowest = np.argmin(self.probabilities()) if len(self.levels) == K else None
        self.clock += 1
        if score == -np.inf:
            return
        if level in self.levels:
            row = self.levels.index(level)
            self.score[row], self.drawn[row] = score, self.clock
        elif lowest is None:
            self.levels.append(level)
            self.score.append(score)
            self.drawn.append(self.clock)
        elif score > self.score[lowest]:
            self.levels[lowest], self.score[lowest] = level, score
            self.drawn[lowest] = self.clock

    def take(self, row):
        self.clock += 1
        self.drawn[row] = self.clock


def pair(number):
    """Returns a level with two leaves."""
    number = np.asarray(number)
    return {"key": jax.vmap(jax.random.key)(number), "x": jnp.asarray(number, jnp.float32) / 3}


def numbers(state):
    return np.rint(np.asarray(state.levels["x"])[: int(state.size)] * 3).astype(int)


@pytest.mark.parametrize("prioritization", ["rank", "proportional"])
def test_one_level_at_a_time_equals_the_definition(prioritization):
    buffer = LevelBuffer(K, prioritization, temperature=0.5, staleness=0.4)
    insert, draw = jax.jit(buffer.insert), jax.jit(buffer.draw, static_argnums=2)
    state, plain, rng = buffer.init(pair([0])), Sequential(buffer), np.random.default_rng(0)
    for i in range(80):
        number, score = int(rng.integers(40)), np.float32(rng.normal())
        if i % 9 == 5:
            score = np.float32(-np.inf)
        state = insert(state, pair([number]), jnp.array([score]), jnp.array([score]))
        plain.insert(number, score)
        if i % 4 == 3:
            state, (row,) = draw(state, jax.random.key(i), 1)
            plain.take(int(row))
        np.testing.assert_array_equal(numbers(state), plain.levels)
        found = buffer.probabilities(state)
        np.testing.assert_allclose(found[: len(plain.levels)], plain.probabilities(), rtol=1e-5)
        assert not found[len(plain.levels) :].any()
    assert int(state.size) == K


def test_a_batch_replaces_the_least_likely_levels():
    buffer = LevelBuffer(K, staleness=0.0)
    state = buffer.init(pair([0]))
    state = buffer.insert(state, pair(range(K)), jnp.arange(float(K)), jnp.zeros(K))
    assert sorted(numbers(state)) == [*range(K)]
    new = jnp.array([100.0, -5.0, 0.5, 50.0])
    state = buffer.insert(state, pair([20, 21, 22, 23]), new, jnp.zeros(4))
    # Levels 0, 1, and 2 have the lowest ranks: 100 and 50 replace 0 and 1, but 0.5 is less than 2.
    assert sorted(numbers(state)) == [*range(2, K), 20, 23]


def test_equal_levels_are_kept_once_with_the_best_score():
    buffer = LevelBuffer(K)
    state = buffer.init(pair([0]))
    state = buffer.insert(state, pair([7, 8, 7]), jnp.array([1.0, 2.0, 3.0]), jnp.arange(3.0))
    assert sorted(numbers(state)) == [7, 8] and state.size == 2
    assert state.score[list(numbers(state)).index(7)] == 3
    state = buffer.insert(state, pair([8, 9]), jnp.array([-1.0, 0.0]), jnp.array([0.5, 0.0]))
    row = list(numbers(state)).index(8)
    assert sorted(numbers(state)) == [7, 8, 9]
    assert state.score[row] == -1 and state.best[row] == 1


def test_a_batch_is_drawn_without_repeats_by_probability():
    buffer = LevelBuffer(K, temperature=1.0, staleness=0.0)
    state = buffer.insert(buffer.init(pair([0])), pair(range(6)), jnp.arange(6.0), jnp.zeros(6))
    keys = jax.random.split(jax.random.key(0), 3_000)
    rows = np.asarray(jax.jit(jax.vmap(lambda key: buffer.draw(state, key, 3)[1]))(keys))
    assert rows.max() < 6 and (np.diff(np.sort(rows, axis=1), axis=1) > 0).all()
    first = np.bincount(rows[:, 0], minlength=K) / len(rows)
    error = (first * (1 - first) / len(rows)) ** 0.5
    assert (abs(first - buffer.probabilities(state)) <= 5 * error).all()


def test_levels_without_an_episode_change_nothing():
    buffer = LevelBuffer(K)
    nothing = jnp.full(2, -jnp.inf)
    state = buffer.insert(buffer.init(pair([0])), pair([1, 2]), nothing, nothing)
    assert state.size == 0 and state.clock == 2
    state = buffer.insert(state, pair([1, 2]), jnp.ones(2), jnp.ones(2))
    after = buffer.update(state, jnp.arange(2), nothing, nothing)
    np.testing.assert_array_equal(after.score, state.score)


def test_digests_differ_between_levels():
    levels = {"walls": jax.random.bernoulli(jax.random.key(0), 0.5, (4_000, 5, 5))}
    assert len(np.unique(digest_of(levels))) > 3_998
    assert len(np.unique(digest_of(pair(range(4_000))))) > 3_998
