import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.training.distributions import distribution_for

BOX = spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 10.0], np.float32))


def draw(space, outputs, parameters=None, seed=0):
    """The distribution, and as many raw actions as there are rows of outputs."""
    distribution = distribution_for(space)
    if parameters is None:
        parameters = jnp.zeros(distribution.num_parameters)
    return distribution, distribution.sample(outputs, parameters, jax.random.key(seed))


def categorical(logits, action):
    """Log-probability and entropy, by SciPy."""
    probabilities = scipy.special.softmax(np.asarray(logits, np.float64), axis=-1)
    chosen = np.take_along_axis(probabilities, np.asarray(action)[:, None], axis=-1)[:, 0]
    return np.log(chosen), scipy.stats.entropy(probabilities, axis=-1)


def test_categorical_agrees_with_scipy():
    logits = 3.0 * jax.random.normal(jax.random.key(1), (64, 5))
    ours, action = draw(spaces.Discrete(5), logits)
    actual = ours.log_prob_and_entropy(logits, jnp.zeros(0), action)
    np.testing.assert_allclose(actual, categorical(logits, action), atol=1e-5)
    np.testing.assert_array_equal(ours.mode(logits), np.argmax(logits, axis=-1))


def test_gaussian_agrees_with_scipy():
    mean = jax.random.normal(jax.random.key(1), (64, 2))
    log_std = jnp.array([-1.0, 0.5])
    ours, action = draw(BOX, mean, log_std)
    log_prob, entropy = ours.log_prob_and_entropy(mean, log_std, action)
    normal = scipy.stats.norm(np.asarray(mean), np.exp(np.asarray(log_std)))
    np.testing.assert_allclose(log_prob, normal.logpdf(np.asarray(action)).sum(-1), atol=1e-4)
    np.testing.assert_allclose(entropy, normal.entropy().sum(-1), atol=1e-5)


def test_multi_categorical_is_the_sum_of_its_parts():
    logits = jax.random.normal(jax.random.key(1), (64, 5))
    ours, action = draw(spaces.MultiDiscrete([2, 3]), logits)
    actual = ours.log_prob_and_entropy(logits, jnp.zeros(0), action)
    left = categorical(logits[:, :2], action[:, 0])
    right = categorical(logits[:, 2:], action[:, 1])
    np.testing.assert_allclose(actual, np.add(left, right), atol=1e-5)


@pytest.mark.parametrize(
    ("space", "outputs"),
    [
        (spaces.Discrete(3, start=5), [[0.0, 1.0, -1.0]]),
        (spaces.MultiDiscrete([2, 3], start=[1, -1]), [[0.0, 2.0, 0.0, 1.0, 0.5]]),
        (spaces.MultiDiscrete([[2, 3], [4, 5]]), [[0.0] * 14]),
        (BOX, [[0.9, -0.9]]),
        (spaces.Box(-np.inf, np.inf, (2, 2)), [[0.0, 5.0, 9.0, -7.0]]),
    ],
    ids=["discrete", "multi-discrete", "multi-discrete matrix", "box", "unbounded box"],
)
def test_every_draw_becomes_a_member_of_the_space(space, outputs):
    distribution, raw = draw(space, jnp.tile(jnp.array(outputs), (200, 1)))
    actions = distribution.to_action(raw)
    assert jax.vmap(space.contains)(actions).all()
    assert space.contains(distribution.to_action(distribution.mode(jnp.array(outputs)))[0])
    assert len(np.unique(np.asarray(raw), axis=0)) > 1


def test_a_bounded_box_is_spanned_from_minus_1_to_1():
    distribution = distribution_for(BOX)
    raw = jnp.array([[-1.0, -1.0], [0.0, 0.0], [1.0, 1.0], [-3.0, 3.0]])
    expected = jnp.array([[-2.0, 0.0], [0.0, 5.0], [2.0, 10.0], [-2.0, 10.0]])
    chex.assert_trees_all_close(distribution.to_action(raw), expected)


def test_another_space_is_refused():
    with pytest.raises(TrainingError, match="Discrete"):
        distribution_for(spaces.Box(0, 255, (3,), np.uint8))
