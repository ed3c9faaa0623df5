import chex
import jax
import numpy as np

from jaxenvs.training.storages import GAE, DiscountedReturns
from jaxenvs.training.types import ValuedUnroll


def test_targets_match_rlax_and_bootstrap_at_truncations():
    import rlax

    rng = np.random.default_rng(0)
    reward, value, next_value = rng.normal(size=(3, 31, 4)).astype(np.float32)
    terminated, truncated = rng.random((2, 31, 4)) < 0.15
    unroll = ValuedUnroll(
        reward=reward,
        value=value,
        next_value=next_value,
        terminated=terminated,
        truncated=truncated,
        log_ratio=np.zeros_like(reward),
    )
    estimate = jax.jit(lambda unroll: DiscountedReturns().estimate(unroll, gamma=0.9))
    advantage, target = jax.device_get(estimate(unroll))

    # To rlax a truncation is a last reward, which holds the value of what follows.
    cut = truncated & ~terminated
    paid = reward + np.where(cut, np.float32(0.9) * next_value, np.float32(0))
    discount = np.where(terminated | truncated, 0.0, 0.9).astype(np.float32)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        returns = jax.jit(jax.vmap(rlax.discounted_returns, in_axes=1, out_axes=1))
        expected = returns(paid, discount, next_value)
    np.testing.assert_allclose(target, expected, rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(advantage, target - value, rtol=1e-6, atol=1e-5)


def test_discounted_returns_ignore_gae_lambda_unlike_gae():
    ones, no = np.ones((3, 1), np.float32), np.zeros((3, 1), bool)
    unroll = ValuedUnroll(
        reward=ones,
        value=0.5 * ones,
        next_value=0.5 * ones,
        terminated=no,
        truncated=no,
        log_ratio=0 * ones,
    )

    @jax.jit
    def both(unroll):
        return [each.estimate(unroll, gamma=1.0, gae_lambda=0.0) for each in storages]

    storages = DiscountedReturns(), GAE()
    (advantage, target), by_gae = both(unroll)
    np.testing.assert_allclose(target, [[3.5], [2.5], [1.5]], rtol=1e-6)
    np.testing.assert_allclose(advantage, [[3.0], [2.0], [1.0]], rtol=1e-6)
    chex.assert_trees_all_close(by_gae, (ones, 1.5 * ones))
