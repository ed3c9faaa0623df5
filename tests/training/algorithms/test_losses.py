"""Every loss by hand, and as rlax has it."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.training.algorithms import losses

rlax = pytest.importorskip("rlax")


def draws(number, shape=(7, 3)):
    return np.random.default_rng(0).normal(size=(number, *shape)).astype(np.float32)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss"),
    [
        (1.5, 2.0, -2.4),  # better than expected, and far enough: 1.2 * 2
        (0.5, 2.0, -1.0),  # better, but became less likely: nothing holds it back
        (1.5, -2.0, 3.0),  # worse, and became more likely
        (0.5, -2.0, 1.6),  # worse, and far enough: 0.8 * -2
        (1.1, 2.0, -2.2),  # within the bounds
    ],
)
def test_clipped_surrogate_clips_only_profitable_ratio_changes(ratio, advantage, loss):
    surrogate = jax.jit(losses.clipped_surrogate)(
        np.log(np.float32(ratio)), np.float32(advantage), 0.2
    )
    chex.assert_trees_all_close(surrogate, np.float32(loss), rtol=1e-6)


def test_clipped_surrogate_matches_rlax():
    log_ratio, advantage = draws(2)

    @jax.jit
    def both(log_ratio, advantage):
        ours = losses.clipped_surrogate(log_ratio, advantage, 0.2).mean()
        theirs = rlax.clipped_surrogate_pg_loss(
            jnp.exp(log_ratio).ravel(), advantage.ravel(), 0.2, use_stop_gradient=True
        )
        return ours, theirs

    chex.assert_trees_all_close(*both(log_ratio, advantage), rtol=1e-5)


def test_policy_gradient_matches_rlax():
    logits = draws(1, (7, 4))[0]
    action, advantage = np.array([0, 1, 2, 3, 0, 1, 2], np.int32), draws(1, (7,))[0]

    def ours(logits):
        log_prob = losses.chosen(jax.nn.log_softmax(logits), action)
        return losses.policy_gradient(log_prob, advantage).mean()

    def theirs(logits):
        with jax.numpy_dtype_promotion("standard"):
            return rlax.policy_gradient_loss(logits, action, advantage, jnp.ones(7))

    found, expected = jax.jit(lambda x: (jax.grad(ours)(x), jax.grad(theirs)(x)))(logits)
    chex.assert_trees_all_close(found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss"),
    [
        (1.0, 1.0, 3.0, 2.0),  # half the square of 2
        (2.0, 1.0, 3.0, 0.5 * 1.8**2),  # held at 1.2, whose error is the larger one
        (2.0, 1.0, 0.0, 2.0),  # it overshot: its own error counts, so that it comes back
    ],
)
def test_clipped_value_loss_is_the_larger_half_squared_error(value, old, target, loss):
    found = jax.jit(losses.clipped_value)(value, old, target, 0.2)
    chex.assert_trees_all_close(found, np.float32(loss), rtol=1e-6)


def test_clipped_value_outside_the_range_is_only_pulled_back():
    slope = jax.jit(jax.grad(losses.clipped_value))
    assert slope(1.5, 1.0, 3.0, 0.2) == 0
    assert slope(1.5, 1.0, 0.0, 0.2) > 0
    assert slope(1.1, 1.0, 3.0, 0.2) < 0


def test_kl_estimate_is_unbiased_and_never_negative():
    logits = draws(2, (5,))
    old, new = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    estimate = np.asarray(jax.jit(losses.kl_estimate)(new - old))
    assert (estimate >= 0).all()
    exact = (np.exp(old) * (old - new)).sum()
    np.testing.assert_allclose((np.exp(old) * estimate).sum(), exact, rtol=1e-5)


def test_huber_matches_rlax_and_has_a_bounded_slope():
    error = 4 * draws(1)[0]

    @jax.jit
    def both(error):
        slopes = jax.vmap(jax.grad(losses.huber))(error.ravel())
        return losses.huber(error), rlax.huber_loss(error, 1.0), slopes

    ours, theirs, slopes = both(error)
    chex.assert_trees_all_close(ours, theirs, rtol=1e-6)
    np.testing.assert_allclose(slopes, np.clip(error.ravel(), -1, 1), rtol=1e-6)
