"""Statistics of scores from several runs, as rliable defines them, in JAX.

Scores have the axes [runs, tasks, ...], or [runs] for one task. Statistics reduce the runs and the
tasks and keep further axes, such as the steps of learning curves, [runs, tasks, steps]. Scores of
several tasks must have a common scale, see `normalize`. All functions are pure, work inside `jit`,
and return NaN if a score is NaN.

    scores = jnp.asarray([[0.9, 0.4], [1.0, 0.6], [0.7, 0.5]])  # three runs on two tasks
    low, high = bootstrap_interval(iqm, scores, jax.random.key(0))

Reference: R. Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical
Precipice", 2021.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs.errors import StatisticsError, check_integer

_CHUNK = 2**20  # resampled scores at once; larger chunks do not fit the caches of a CPU


def mean(scores: Any) -> jax.Array:
    """Returns the mean over runs and tasks, float[...]."""
    return _as_scores(scores).mean(axis=(0, 1))


def median(scores: Any) -> jax.Array:
    """Returns the median over the tasks of the mean over the runs, float[...]."""
    return jnp.median(_as_scores(scores).mean(axis=0), axis=0)


def iqm(scores: Any) -> jax.Array:
    """Returns the interquartile mean, float[...]: the mean of the middle half of all scores.

    Of n scores, runs times tasks, n // 4 are dropped at each end. It has no gradient.
    """
    scores = _as_scores(scores)
    count = scores.shape[0] * scores.shape[1]
    pooled = _sort(scores.reshape(count, *scores.shape[2:]))
    middle = pooled[count // 4 : count - count // 4].mean(axis=0)
    return jnp.where(jnp.isnan(scores).any(axis=(0, 1)), jnp.nan, middle)


def optimality_gap(scores: Any, gamma: float = 1.0) -> jax.Array:
    """Returns by how much scores fall short of `gamma` on average, float[...].

    Scores above `gamma` count as `gamma`. Smaller is better.
    """
    scores = _as_scores(scores)
    return gamma - jnp.minimum(scores, gamma).mean(axis=(0, 1))


def probability_of_improvement(x: Any, y: Any) -> jax.Array:
    """Returns how often a run of X has a higher score than a run of Y, the mean over the tasks.

    This is the Mann-Whitney statistic divided by the number of pairs; ties count half.

    Args:
        x: the scores of X, [runs, tasks, ...] or [runs].
        y: those of Y on the same tasks; the number of runs may differ.

    Raises:
        StatisticsError: the axes after the first differ.
    """
    x, y = _as_scores(x), _as_scores(y)
    if x.shape[1:] != y.shape[1:]:
        raise StatisticsError(
            f"probability_of_improvement got scores of shape {x.shape} and {y.shape}; expected the"
            " same tasks, and the same axes after them."
        )
    wins = jnp.sign(x[:, None] - y[None])  # -1, 0 or 1
    return 0.5 + 0.5 * wins.mean(axis=(0, 1, 2))


def performance_profile(scores: Any, taus: Any) -> jax.Array:
    """Returns the fraction of all scores, runs times tasks, above each of T thresholds.

    Args:
        scores: [runs, tasks, ...] or [runs].
        taus: [T], the thresholds. Scores equal to one are not above it.

    Returns:
        float[T, ...].
    """
    scores = _as_scores(scores)

    def fraction_above(tau: jax.Array) -> jax.Array:
        is_above = (scores > tau).astype(scores.dtype)
        return jnp.where(jnp.isnan(scores), jnp.nan, is_above).mean(axis=(0, 1))

    return jax.vmap(fraction_above)(jnp.asarray(taus, scores.dtype))


def normalize(scores: Any, low: Any, high: Any) -> jax.Array:
    """Scales scores linearly, so that `low` becomes 0 and `high` becomes 1.

    Args:
        scores: [runs, tasks, ...] or [runs].
        low: a number, or one per task, [tasks], such as the return of random actions.
        high: likewise, such as the return of a human or an optimal policy.

    Returns:
        float, in the shape of `scores`.

    Raises:
        StatisticsError: there is not one bound, or one per task.
    """
    given, scores = jnp.asarray(scores), _as_scores(scores)

    def per_task(name: str, bound: Any) -> jax.Array:
        bound = jnp.asarray(bound, scores.dtype)
        if bound.size not in (1, scores.shape[1]) or bound.ndim > 1:
            raise StatisticsError(
                f"normalize got {name} of shape {bound.shape} for scores of shape {given.shape};"
                " expected a number, or one per task."
            )
        return bound.reshape(1, -1, *[1] * (scores.ndim - 2))

    low, high = per_task("low", low), per_task("high", high)
    return ((scores - low) / (high - low)).reshape(given.shape)


def bootstrap_interval(
    statistic: Callable[..., Any],
    scores: Any,
    key: chex.PRNGKey,
    repetitions: int = 50_000,
    confidence: float = 0.95,
) -> Any:
    """Returns the interval of a statistic by the stratified percentile bootstrap.

    Each repetition draws as many runs as there are, with replacement, for every task independently.
    A drawn run brings all that follows the axis of tasks, such as its whole learning curve.

    With few runs, intervals are too narrow: see [What to report](../training/statistics.md).

    Args:
        statistic: a function of scores, such as `iqm`, or of several of them, such as
            `probability_of_improvement`. Outside of `jit`, each new function compiles a program.
        scores: [runs, tasks, ...] or [runs]; or a tuple of these, the arguments of `statistic`,
            which are drawn independently.
        key: a random key.
        repetitions: the number of draws. 2,000 are enough for a plot.
        confidence: the probability that the interval should have.

    Returns:
        What `statistic` returns, with a new first axis: the lower and the upper end.

    Raises:
        StatisticsError: `repetitions` or `confidence` is out of range.

    Example:
        >>> scores = jnp.arange(20.0).reshape(10, 2)  # ten runs on two tasks
        >>> low, high = bootstrap_interval(iqm, scores, jax.random.key(0))
        >>> bool(low < iqm(scores) < high)
        True
    """
    check_integer(StatisticsError, "bootstrap_interval got repetitions", repetitions)
    if not 0 < confidence < 1:
        raise StatisticsError(
            f"bootstrap_interval got confidence={confidence!r}; expected a number between 0 and 1."
        )
    groups = scores if isinstance(scores, tuple) else (scores,)
    return _interval(statistic, tuple(map(_as_scores, groups)), key, repetitions, confidence)


@functools.partial(jax.jit, static_argnums=(0, 3, 4))
def _interval(
    statistic: Callable[..., Any],
    groups: tuple[jax.Array, ...],
    key: chex.PRNGKey,
    repetitions: int,
    confidence: float,
) -> Any:
    def repeat(key: chex.PRNGKey) -> Any:
        keys = jax.random.split(key, len(groups))
        return statistic(*map(resample, keys, groups))

    def ends(draws: jax.Array) -> jax.Array:
        draws = draws.reshape(-1, *draws.shape[2:])[:repetitions]
        at = jnp.asarray([0.5 - confidence / 2, 0.5 + confidence / 2], draws.dtype)
        return jnp.quantile(draws, at, axis=0)

    most = max(1, _CHUNK // max(math.prod(group.shape) for group in groups))
    chunks = -(-repetitions // most)
    keys = jax.random.split(key, (chunks, -(-repetitions // chunks)))
    return jax.tree.map(ends, jax.lax.map(jax.vmap(repeat), keys))


def resample(key: chex.PRNGKey, scores: Any) -> jax.Array:
    """Draws as many runs as there are, with replacement, for every task independently."""
    scores = _as_scores(scores)
    runs, tasks = scores.shape[:2]
    # `randint` draws twice as many bits, to be exact for ranges that are not small against 2**32.
    index = jax.random.bits(key, (runs, tasks), jnp.uint32) % jnp.uint32(runs)
    return scores[index, jnp.arange(tasks)]


def _sort(x: jax.Array) -> jax.Array:
    """Sorts along the first axis: as integers, which XLA sorts five times faster on CPUs."""
    bits = jnp.dtype(f"int{8 * x.dtype.itemsize}")

    def flip_negative(x: jax.Array) -> jax.Array:  # their order, and back
        return jnp.where(x < 0, x ^ jnp.iinfo(bits).max, x)

    integers = jnp.sort(flip_negative(jax.lax.bitcast_convert_type(x, bits)), axis=0)
    return jax.lax.bitcast_convert_type(flip_negative(integers), x.dtype)


def _as_scores(scores: Any) -> jax.Array:
    """Returns scores as float[runs, tasks, ...].

    Raises:
        StatisticsError: there are none.
    """
    scores = jnp.asarray(scores)
    if scores.ndim == 0 or scores.size == 0:
        raise StatisticsError(
            f"got scores of shape {scores.shape}; expected the axes [runs, tasks, ...], or [runs]."
        )
    if not jnp.issubdtype(scores.dtype, jnp.floating):
        scores = scores.astype(jnp.float32)
    return scores[:, None] if scores.ndim == 1 else scores
