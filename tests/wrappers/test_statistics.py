import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxenvs.wrappers import RunningStatistics

VALUES = np.random.default_rng(0).normal(5.0, 3.0, (60, 2)).astype(np.float32)


of_batch = jax.jit(RunningStatistics.of_batch)
update = jax.jit(RunningStatistics.update)


def seen(values):
    return update(RunningStatistics.of_shape((2,)), values)


def test_batchwise_updates_match_all_values_at_once():
    statistics = RunningStatistics.of_shape((2,))
    for batch in np.split(VALUES, [1, 20, 25]):
        statistics = update(statistics, batch)
    assert statistics.count == 60
    chex.assert_trees_all_close(statistics.mean, VALUES.mean(0), rtol=1e-5)
    chex.assert_trees_all_close(statistics.variance, VALUES.var(0), rtol=1e-4)


def test_merging_two_sets():
    merged = seen(VALUES[:13]).merge(seen(VALUES[13:]))
    chex.assert_trees_all_close(merged, seen(VALUES), rtol=1e-5)


def test_merging_with_an_empty_set():
    some, nothing = seen(VALUES), RunningStatistics.of_shape((2,))
    chex.assert_trees_all_equal(some.merge(nothing), some)
    chex.assert_trees_all_equal(nothing.merge(some), some)
    chex.assert_trees_all_equal(nothing.merge(nothing), nothing)


@pytest.mark.parametrize("count", [1, 2, 31, 97, 96, 2048, 16 * 64 * 17])
def test_statistics_of_batches_of_any_size_match_numpy(count):
    values = np.random.default_rng(count).normal(-2.0, 0.5, (count, 3)).astype(np.float32)
    statistics = of_batch(values)
    assert statistics.count == count
    chex.assert_trees_all_close(statistics.mean, values.mean(0), rtol=1e-5)
    chex.assert_trees_all_close(statistics.variance, values.var(0), rtol=1e-4, atol=1e-12)


def test_variance_of_values_far_from_zero():
    values = (1e4 + np.random.default_rng(1).normal(0.0, 0.1, 4096)).astype(np.float32)
    variance = of_batch(values).variance
    np.testing.assert_allclose(variance, values.astype(np.float64).var(), rtol=1e-3)


def test_masked_values_are_excluded():
    mask = np.arange(60) % 3 == 0
    statistics = update(RunningStatistics.of_shape((2,)), VALUES, mask)
    chex.assert_trees_all_close(statistics, seen(VALUES[mask]), rtol=1e-5)
    before = seen(VALUES)
    chex.assert_trees_all_equal(
        update(before, np.full_like(VALUES, 9.0), np.zeros(60, bool)), before
    )


def test_empty_statistics_change_nothing():
    values = jnp.array([[0.5, -2.0]])
    chex.assert_trees_all_close(RunningStatistics.of_shape((2,)).normalize(values), values)


def test_normalized_values():
    values = np.random.default_rng(0).normal(100.0, 7.0, (4, 250, 3)).astype(np.float32)
    statistics = update(RunningStatistics.of_shape((3,)), values.reshape(-1, 3))
    normalize = jax.jit(RunningStatistics.normalize, static_argnames="limit")
    normalized = np.asarray(normalize(statistics, values))
    np.testing.assert_allclose(normalized.mean((0, 1)), 0, atol=1e-4)
    np.testing.assert_allclose(normalized.std((0, 1)), 1, atol=1e-4)
    far = np.full((1, 3), 1e9, np.float32)
    assert normalize(statistics, far).max() == 10.0
    assert normalize(statistics, far, limit=None).min() > 1e6


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_eight_devices_give_the_same_bits_as_one(kind):
    mesh = jax.make_mesh((8,), ("env",), axis_types=(kind,))
    for count in (16, 96, 1024):
        values = np.random.default_rng(count).normal(size=(count, 3)).astype(np.float32)
        laid_out = jax.device_put(values, NamedSharding(mesh, PartitionSpec("env")))
        one, many = jax.device_get((of_batch(values), of_batch(laid_out)))
        chex.assert_trees_all_equal(one, many)
