"""Scores of levels, compared with plain loops."""

import jax
import numpy as np
import pytest

from jaxenvs.training.curricula import LevelSteps, score
from jaxenvs.training.curricula.scores import max_return

T, N = 23, 7


def random_steps(seed):
    rng = np.random.default_rng(seed)
    done = rng.random((T, N)) < 0.2
    done[:, 0] = False  # an instance in which no episode ends
    reward = (rng.random((T, N)) < 0.1).astype(np.float32)
    value, advantage = rng.normal(size=(2, T, N)).astype(np.float32)
    return LevelSteps(reward=reward, done=done, value=value, advantage=advantage)


def episodes(steps, instance):
    """Yields the rows of each episode that ended."""
    begin = 0
    for end in np.nonzero(steps.done[:, instance])[0]:
        yield slice(begin, end + 1)
        begin = end + 1


def expected(kind, steps, best):
    found = []
    for i in range(N):
        each = []
        for rows in episodes(steps, i):
            advantage, value = steps.advantage[rows, i], steps.value[rows, i]
            each.append(
                {
                    "positive_value_loss": np.maximum(advantage, 0).mean(),
                    "value_loss": np.abs(advantage).mean(),
                    "max_monte_carlo": (best[i] - value).mean(),
                    "learnability": float(steps.reward[rows, i].sum() > 0),
                }[kind]
            )
        mean = np.mean(each) if each else -np.inf
        found.append(mean * (1 - mean) if kind == "learnability" and each else mean)
    return np.array(found)


@pytest.mark.parametrize(
    "kind", ["positive_value_loss", "value_loss", "max_monte_carlo", "learnability"]
)
def test_scores_equal_their_definitions(kind):
    steps, best = random_steps(0), np.arange(N, dtype=np.float32)
    found = jax.jit(lambda steps: score(kind, steps, best))(steps)
    np.testing.assert_allclose(found, expected(kind, steps, best), rtol=1e-5)
    assert found[0] == -np.inf


def test_max_return_is_that_of_the_best_ended_episode():
    steps = random_steps(1)
    found = max_return(steps)
    for i in range(N):
        returns = [steps.reward[rows, i].sum() for rows in episodes(steps, i)]
        assert found[i] == max(returns, default=-np.inf)
    assert (found > 0).any()
