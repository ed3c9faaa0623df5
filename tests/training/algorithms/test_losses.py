"""Every loss by hand, and as rlax has it."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.training.algorithms import losses

rlax = pytest.importorskip("rlax")
KEY = jax.random.key(0)


def draws(number, shape=(7, 3)):
    return jax.random.normal(KEY, (number, *shape))


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
    surrogate = losses.clipped_surrogate(jnp.log(jnp.float32(ratio)), jnp.float32(advantage), 0.2)
    chex.assert_trees_all_close(surrogate, jnp.float32(loss), rtol=1e-6)


def test_clipped_surrogate_matches_rlax():
    log_ratio, advantage = draws(2)
    ours = losses.clipped_surrogate(log_ratio, advantage, 0.2).mean()
    theirs = rlax.clipped_surrogate_pg_loss(
        jnp.exp(log_ratio).ravel(), advantage.ravel(), 0.2, use_stop_gradient=True
    )
    chex.assert_trees_all_close(ours, theirs, rtol=1e-5)


def test_policy_gradient_matches_rlax():
    logits = jax.random.normal(KEY, (7, 4))
    action, advantage = jnp.array([0, 1, 2, 3, 0, 1, 2]), draws(1, (7,))[0]

    def ours(logits):
        log_prob = losses.chosen(jax.nn.log_softmax(logits), action)
        return losses.policy_gradient(log_prob, advantage).mean()

    def theirs(logits):
        with jax.numpy_dtype_promotion("standard"):
            return rlax.policy_gradient_loss(logits, action, advantage, jnp.ones(7))

    chex.assert_trees_all_close(jax.grad(ours)(logits), jax.grad(theirs)(logits), atol=1e-6)


@pytest.mark.parametrize(
    ("value", "old", "target", "loss"),
    [
        (1.0, 1.0, 3.0, 2.0),  # half the square of 2
        (2.0, 1.0, 3.0, 0.5 * 1.8**2),  # held at 1.2, whose error is the larger one
        (2.0, 1.0, 0.0, 2.0),  # it overshot: its own error counts, so that it comes back
    ],
)
def test_clipped_value_loss_is_the_larger_half_squared_error(value, old, target, loss):
    value, old, target = jnp.float32(value), jnp.float32(old), jnp.float32(target)
    chex.assert_trees_all_close(
        losses.clipped_value(value, old, target, 0.2), jnp.float32(loss), rtol=1e-6
    )


def test_clipped_value_outside_the_range_is_only_pulled_back():
    slope = jax.grad(losses.clipped_value)
    assert slope(1.5, 1.0, 3.0, 0.2) == 0
    assert slope(1.5, 1.0, 0.0, 0.2) > 0
    assert slope(1.1, 1.0, 3.0, 0.2) < 0


def test_kl_estimate_is_unbiased_and_never_negative():
    logits = draws(2, (5,))
    old, new = jax.nn.log_softmax(logits)
    estimate = losses.kl_estimate(new - old)
    assert (estimate >= 0).all()
    exact = (jnp.exp(old) * (old - new)).sum()
    chex.assert_trees_all_close((jnp.exp(old) * estimate).sum(), exact, rtol=1e-5)


def test_huber_matches_rlax_and_has_a_bounded_slope():
    error = 4 * draws(1)[0]
    chex.assert_trees_all_close(losses.huber(error), rlax.huber_loss(error, 1.0), rtol=1e-6)
    slopes = jax.vmap(jax.grad(losses.huber))(error.ravel())
    np.testing.assert_allclose(slopes, np.clip(error.ravel(), -1, 1), rtol=1e-6)
