import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.training.normalisation import RunningStatistics


def test_batches_one_by_one_give_the_statistics_of_all():
    values = np.random.default_rng(0).normal(5.0, 3.0, (60, 2)).astype(np.float32)
    statistics = RunningStatistics.of_shape((2,))
    for batch in np.split(values, [1, 20, 25]):
        statistics = statistics.update(jnp.asarray(batch))
    assert statistics.count == 60
    chex.assert_trees_all_close(statistics.mean, values.mean(0), rtol=1e-5)
    chex.assert_trees_all_close(statistics.variance, values.var(0), rtol=1e-4)


def test_before_anything_was_seen_values_pass_unchanged():
    values = jnp.array([[0.5, -2.0]])
    chex.assert_trees_all_close(RunningStatistics.of_shape((2,)).normalise(values), values)


def test_normalised_values_have_mean_0_deviation_1_and_a_limit():
    values = 100.0 + 7.0 * jax.random.normal(jax.random.key(0), (4, 250, 3))
    statistics = RunningStatistics.of_shape((3,)).update(values.reshape(-1, 3))
    normalised = statistics.normalise(values)
    chex.assert_trees_all_close(normalised.mean((0, 1)), jnp.zeros(3), atol=1e-4)
    chex.assert_trees_all_close(normalised.std((0, 1)), jnp.ones(3), atol=1e-4)
    assert statistics.normalise(jnp.full((1, 3), 1e9)).max() == 10.0
