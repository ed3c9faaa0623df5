import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from jaxenvs import statistics
from jaxenvs.errors import StatisticsError
from jaxenvs.statistics import bootstrap_interval

# With ties, on three tasks. What rliable 1.2 returns for them is below: its point estimates, and
# `get_interval_estimates` after `np.random.seed(0)`, with 50,000 repetitions, or 20,000 of pairs.
X = np.array(
    [
        *([0.4, 0.9, 0.8], [0.4, 0.7, 0.7], [0.8, 1.2, 0.4], [0.0, 0.7, 0.6]),
        *([-0.3, 0.8, 0.2], [0.2, 0.7, 0.5], [0.5, 1.2, 0.6]),
    ]
)
Y = np.array([[0.9, 0.5, 0.7], [0.8, 0.7, 0.4], [0.2, 0.6, 0.7], [0.2, 0.6, 0.6], [0.7, 0.8, 0.7]])
OF_RLIABLE = {
    "mean": (0.571429, 0.606667, (0.461905, 0.676190)),
    "median": (0.542857, 0.62, (0.4, 0.671429)),
    "iqm": (0.6, 0.644444, (0.5, 0.7)),
    "optimality_gap": (0.447619, 0.393333, (0.347619, 0.547619)),
}
CURVES = np.random.default_rng(0).normal(size=(7, 3, 4))  # [runs, tasks, steps]
KEY = jax.random.key(0)

# The definitions in NumPy and SciPy, for scores of any number of runs and tasks.
DEFINITIONS = {
    "mean": np.mean,
    "median": lambda x: np.median(x.mean(axis=0)),
    "iqm": lambda x: scipy.stats.trim_mean(x, 0.25, axis=None),
    "optimality_gap": lambda x: np.maximum(1 - x, 0).mean(),
}


@pytest.mark.parametrize("name", OF_RLIABLE)
def test_point_and_interval_equal_those_of_rliable(name):
    statistic = getattr(statistics, name)
    x, y, interval = OF_RLIABLE[name]
    np.testing.assert_allclose([statistic(X), statistic(Y)], [x, y], atol=1e-6)
    found = bootstrap_interval(statistic, X, KEY)
    np.testing.assert_allclose(found, interval, atol=0.015)  # medians have steps of 1/70


def test_probability_of_improvement_equals_that_of_rliable():
    improvement = statistics.probability_of_improvement
    np.testing.assert_allclose(improvement(X, Y), 0.509524, atol=1e-6)
    np.testing.assert_allclose(improvement(X, X), 0.5, atol=1e-6)
    for confidence, interval in ((0.95, (0.347619, 0.680952)), (0.8, (0.404762, 0.619048))):
        found = bootstrap_interval(improvement, (X, Y), KEY, 20_000, confidence)
        np.testing.assert_allclose(found, interval, atol=0.01)


def test_performance_profile_equals_that_of_rliable():
    taus = [0.0, 0.3, 0.6, 0.9, 1.2]
    profile = functools.partial(statistics.performance_profile, taus=taus)
    points = [0.904762, 0.809524, 0.476190, 0.095238, 0]
    np.testing.assert_allclose(profile(X), points, atol=1e-6)
    low = [0.809524, 0.666667, 0.333333, 0, 0]
    high = [1, 0.952381, 0.619048, 0.238095, 0]
    found = bootstrap_interval(profile, X, KEY, 2000)
    np.testing.assert_allclose(found, [low, high], atol=0.05)  # steps of 1/21


@pytest.mark.parametrize("name", DEFINITIONS)
@pytest.mark.parametrize("shape", [(1,), (2,), (5,), (8,), (3, 7), (10, 1), (4, 4)])
def test_points_equal_definitions_for_any_size(name, shape):
    scores = np.random.default_rng(0).normal(size=shape)
    expected = DEFINITIONS[name](scores if len(shape) == 2 else scores[:, None])
    np.testing.assert_allclose(getattr(statistics, name)(scores), expected, rtol=1e-5, atol=1e-6)


def test_probability_of_improvement_is_mann_whitney():
    x, y = np.random.default_rng(0).integers(0, 9, (6, 2)), np.arange(10).reshape(5, 2)
    shares = [scipy.stats.mannwhitneyu(x[:, i], y[:, i]).statistic / 30 for i in range(2)]
    found = statistics.probability_of_improvement(x, y)
    np.testing.assert_allclose(found, np.mean(shares), rtol=1e-6)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_curves_have_a_value_and_an_interval_per_step(name):
    statistic = getattr(statistics, name)
    expected = [statistic(CURVES[:, :, step]) for step in range(4)]
    np.testing.assert_allclose(statistic(CURVES), expected, rtol=1e-6)
    low, high = bootstrap_interval(statistic, CURVES, KEY, 100)
    assert low.shape == high.shape == (4,) and (low < high).all()
    alone, _ = bootstrap_interval(statistic, CURVES[:, :, 2], KEY, 100)
    np.testing.assert_allclose(low[2], alone, rtol=1e-5)  # the same draws


def test_comparisons_of_curves_have_a_value_per_step():
    better = statistics.probability_of_improvement(CURVES + 9, CURVES[:5])
    np.testing.assert_array_equal(better, np.ones(4))
    profile = statistics.performance_profile(CURVES, [-9.0, 0.0, 9.0])
    assert profile.shape == (3, 4)
    np.testing.assert_allclose(profile[1], (CURVES > 0).mean(axis=(0, 1)), rtol=1e-6)


def test_runs_are_drawn_for_each_task_with_their_curves():
    run, task, step = np.indices((5, 3, 4))
    drawn = np.asarray(
        jax.vmap(lambda key: statistics.resample(key, 100 * run + 10 * task + step))(
            jax.random.split(KEY, 4000)
        )
    )
    runs = drawn[..., 0] // 100
    assert (drawn == 100 * runs[..., None] + 10 * task + step).all()
    np.testing.assert_allclose(np.bincount(runs.astype(int).ravel()) / runs.size, 0.2, atol=0.01)
    for pair in ((0, 1), (1, 2)):  # independent tasks
        same = (runs[..., pair[0]] == runs[..., pair[1]]).mean()
        np.testing.assert_allclose(same, 0.2, atol=0.02)


def test_interval_inside_jit_equals_that_outside():
    inside = jax.jit(lambda x, key: bootstrap_interval(statistics.iqm, x, key, 500))(X, KEY)
    chex.assert_trees_all_equal(inside, bootstrap_interval(statistics.iqm, X, KEY, 500))
    assert (inside != bootstrap_interval(statistics.iqm, X, jax.random.key(1), 500)).any()
    assert inside.dtype == jnp.float32


def test_interval_does_not_depend_on_the_size_of_chunks(monkeypatch):
    expected = bootstrap_interval(statistics.mean, X, KEY, 101)
    monkeypatch.setattr(statistics, "_CHUNK", 21 * 10)  # chunks of ten
    statistics._interval.clear_cache()
    found = bootstrap_interval(statistics.mean, X, KEY, 101)
    statistics._interval.clear_cache()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_scores_in_double_precision_stay_so():
    with jax.enable_x64(True):
        scores = jnp.asarray([-1e-300, 3.0, -2.0, 1 + 1e-12, 0.0])
        assert statistics.iqm(scores).dtype == jnp.float64
        np.testing.assert_allclose(statistics.iqm(scores) * 3, 1 + 1e-12, rtol=1e-15)
        assert bootstrap_interval(statistics.iqm, scores, KEY, 9).dtype == jnp.float64


def test_a_score_that_is_nan_is_not_passed_over():
    scores = np.r_[np.arange(20.0), np.nan]
    for name in DEFINITIONS:
        assert np.isnan(getattr(statistics, name)(scores)), name
    assert np.isnan(statistics.probability_of_improvement(scores, scores[:3]))
    assert np.isnan(statistics.performance_profile(scores, [0.5])).all()


def test_scores_are_normalized_by_bounds_of_each_task():
    scores = np.array([[20.0, -200.0], [500.0, -100.0]])
    found = statistics.normalize(scores, [20, -200], [500, 0])
    np.testing.assert_allclose(found, [[0, 0], [1, 0.5]])
    curves = np.stack([scores, scores + 1], axis=-1)
    expected = (curves - [[20], [-200]]) / [[480], [200]]
    found = statistics.normalize(curves, [20, -200], np.array([500, 0]))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(statistics.normalize([1, 2, 3], 1, 3), [0, 0.5, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: statistics.iqm(1.0), r"shape \(\).*\[runs, tasks"),
        (lambda: statistics.mean(np.zeros((0, 3))), r"shape \(0, 3\)"),
        (lambda: statistics.probability_of_improvement(X, Y[:, :2]), r"\(5, 2\).*same tasks"),
        (lambda: statistics.normalize(X, [0, 0], 1), r"low of shape \(2,\).*one per task"),
        (lambda: bootstrap_interval(statistics.iqm, X, KEY, 0), "repetitions=0"),
        (lambda: bootstrap_interval(statistics.iqm, X, KEY, 9, 95), "confidence=95"),
    ],
)
def test_wrong_arguments_are_explained(call, message):
    with pytest.raises(StatisticsError, match=message):
        call()
