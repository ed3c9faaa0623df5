import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.training.storages import GAE, DiscountedReturns
from jaxenvs.training.types import ValuedUnroll


def test_targets_match_rlax_and_bootstrap_at_truncations():
    import rlax

    rng = np.random.default_rng(0)
    reward, value, next_value = jnp.asarray(rng.normal(size=(3, 31, 4)), jnp.float32)
    terminated, truncated = jnp.asarray(rng.random((2, 31, 4)) < 0.15)
    unroll = ValuedUnroll(
        reward=reward,
        value=value,
        next_value=next_value,
        terminated=terminated,
        truncated=truncated,
        log_ratio=jnp.zeros_like(reward),
    )
    advantage, target = DiscountedReturns().estimate(unroll, gamma=0.9)

    # To rlax a truncation is a last reward, which holds the value of what follows.
    cut = truncated & ~terminated
    paid = reward + jnp.where(cut, 0.9 * next_value, 0.0)
    discount = jnp.where(terminated | truncated, 0.0, 0.9)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        returns = jax.vmap(rlax.discounted_returns, in_axes=1, out_axes=1)
        expected = returns(paid, discount, next_value)
    chex.assert_trees_all_close(target, expected, atol=1e-5)
    chex.assert_trees_all_close(advantage, target - value, atol=1e-5)


def test_discounted_returns_ignore_gae_lambda_unlike_gae():
    ones, no = jnp.ones((3, 1)), jnp.zeros((3, 1), bool)
    unroll = ValuedUnroll(
        reward=ones,
        value=0.5 * ones,
        next_value=0.5 * ones,
        terminated=no,
        truncated=no,
        log_ratio=0 * ones,
    )
    advantage, target = DiscountedReturns().estimate(unroll, gamma=1.0, gae_lambda=0.0)
    chex.assert_trees_all_close(target, jnp.array([[3.5], [2.5], [1.5]]))
    chex.assert_trees_all_close(advantage, jnp.array([[3.0], [2.0], [1.0]]))
    advantage, target = GAE().estimate(unroll, gamma=1.0, gae_lambda=0.0)
    chex.assert_trees_all_close((advantage, target), (ones, 1.5 * ones))
