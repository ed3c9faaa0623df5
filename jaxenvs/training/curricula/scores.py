"""Scores of levels: how much a policy can still learn from each, by the steps it took there.

All scores are float32[N], means over the episodes that ended; -inf where none did. Steps after the
last end count for nothing.
"""

from collections.abc import Callable
from typing import Any, Literal

import chex
import jax
import jax.numpy as jnp

from jaxenvs import loops

Score = Literal["positive_value_loss", "value_loss", "max_monte_carlo", "learnability"]


@chex.dataclass(frozen=True)
class LevelSteps:
    """T steps in N levels, each of which started at its beginning: [T, N] each."""

    reward: jax.Array  # float32
    done: jax.Array  # bool
    value: jax.Array  # float32, the critic's value of the observation before the step
    advantage: jax.Array  # float32


def episode_means(x: jax.Array, done: jax.Array) -> jax.Array:
    """Returns the mean over ended episodes of the mean of `x` in each, float32[N].

    It is -inf where no episode ended.
    """
    total, count = _over_episodes(x, done, lambda so_far, length: so_far / length)
    return jnp.where(count > 0, total / jnp.maximum(count, 1), -jnp.inf)


def max_return(steps: LevelSteps) -> jax.Array:
    """Returns the largest undiscounted return of an episode that ended, float32[N]."""
    best, _ = _over_episodes(
        steps.reward, steps.done, lambda so_far, _: so_far, jnp.maximum, -jnp.inf
    )
    return best


def score(kind: Score, steps: LevelSteps, best: jax.Array) -> jax.Array:
    """Returns the score of each level.

    Args:
        kind: one of
            "positive_value_loss": the mean of max(A, 0) over the steps of an episode, where A is
                the advantage (M. Jiang et al., Replay-Guided Adversarial Environment Design, 2021).
            "value_loss": the mean of |A| (M. Jiang et al., Prioritized Level Replay, 2021).
            "max_monte_carlo": the mean of R - V, where R is `best` and V the value (the same as
                the first).
            "learnability": p (1 - p), where p is the fraction of episodes with a positive return
                (A. Rutherford et al., No Regrets, 2024).
        steps: what the policy did.
        best: float32[N], the largest undiscounted return ever seen in the level.
    """
    if kind == "learnability":
        solved, count = _over_episodes(
            steps.reward, steps.done, lambda so_far, _: (so_far > 0).astype(jnp.float32)
        )
        rate = solved / jnp.maximum(count, 1)
        return jnp.where(count > 0, rate * (1 - rate), -jnp.inf)
    per_step = {
        "positive_value_loss": lambda: jnp.maximum(steps.advantage, 0.0),
        "value_loss": lambda: jnp.abs(steps.advantage),
        "max_monte_carlo": lambda: best[None] - steps.value,
    }[kind]()
    return episode_means(per_step, steps.done)


def _over_episodes(
    x: jax.Array,
    done: jax.Array,
    of_episode: Callable[[jax.Array, jax.Array], jax.Array],
    join: Callable[[jax.Array, jax.Array], jax.Array] = jnp.add,
    first: float = 0.0,
) -> tuple[jax.Array, jax.Array]:
    """Joins `of_episode(sum of x, length)` over ended episodes. Returns it and their number."""

    def step(carry: Any, row: Any) -> tuple[Any, None]:
        (so_far, length, joined, count), (value, ended) = carry, row
        so_far, length = so_far + value, length + 1
        carry = (
            jnp.where(ended, 0.0, so_far),
            jnp.where(ended, 0.0, length),
            jnp.where(ended, join(joined, of_episode(so_far, length)), joined),
            count + ended.astype(jnp.float32),
        )
        return carry, None

    nothing = jnp.zeros(x.shape[1:], jnp.float32)
    start = (nothing, nothing, jnp.full_like(nothing, first), nothing)
    (_, _, joined, count), _ = loops.scan(step, start, (x.astype(jnp.float32), done))
    return joined, count
