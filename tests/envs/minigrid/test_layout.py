"""Table lookups, divisions, and draws, as levels use them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs._cpu import bits
from jaxenvs.envs.minigrid.layout import RandomStream, divide, lookup

TABLES = {
    "negative": np.array([1, 0, -1, 0], np.int32),
    "pairs": np.array([[2, 0], [2, 2], [0, 2], [0, 0]], np.int32),
    "flags": np.array([[1, 0, 1], [0, 0, 1]], bool),
    "words": np.arange(70, dtype=np.int32).reshape(5, 14),  # too wide to pack
    "one": np.array([7], np.int32),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_lookup_equals_indexing(table):
    every = jnp.arange(len(table))
    found = jax.jit(lambda index: lookup(table, index))(every)
    assert found.dtype == table.dtype
    np.testing.assert_array_equal(found, table)
    np.testing.assert_array_equal(lookup(jnp.asarray(table), every), table)
    np.testing.assert_array_equal(jax.vmap(lambda index: lookup(table, index))(every), table)


@pytest.mark.parametrize(("by", "limit"), [(1, 4096), (3, 18), (7, 9000), (25, 625), (200, 40_000)])
def test_divide_equals_integer_division(by, limit):
    numbers = np.arange(limit, dtype=np.int32)
    found = divide(jnp.asarray(numbers), by, limit=limit)
    np.testing.assert_array_equal(found, np.divmod(numbers, by))


@pytest.mark.parametrize("number", [1, 31, 32, 33, 100, 625])
def test_choose_finds_the_true_flag_of_a_rank(number):
    mask = np.random.default_rng(number).random(number) < 0.4
    mask[-1] = True
    ranks = jnp.arange(mask.sum())
    found = jax.vmap(lambda rank: bits.choose(jnp.asarray(mask), lambda _: rank))(ranks)
    np.testing.assert_array_equal(found, np.flatnonzero(mask))


def test_choose_returns_zero_if_no_flag_is_true():
    assert RandomStream(jax.random.key(0)).choose(np.zeros(50, bool)) == 0


def test_next_words_are_those_of_single_draws():
    one_by_one, together = (RandomStream(jax.random.key(1)) for _ in range(2))
    draws = [one_by_one.integer(0, 2**15) for _ in range(50)]
    words = together.next_words(50)
    np.testing.assert_array_equal(draws, words >> 17)


def test_integer_draws_large_numbers_evenly():
    rng = RandomStream(jax.random.key(2))
    draws = np.array([rng.integer(0, 10**6) for _ in range(200)])
    assert 400_000 < draws.mean() < 600_000 and len({*draws}) > 190
