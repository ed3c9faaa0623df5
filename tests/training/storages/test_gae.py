import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.training import gae


def slow_gae(reward, value, next_value, terminated, truncated, gamma, gae_lambda):
    """The definition, one number at a time: rewards weighted by (gamma lambda)^k to the cut."""
    length, num_envs = reward.shape
    advantage = np.zeros_like(reward)
    for n in range(num_envs):
        for start in range(length):
            weight = 1.0
            for t in range(start, length):
                after = 0.0 if terminated[t, n] else next_value[t, n]
                advantage[start, n] += weight * (reward[t, n] + gamma * after - value[t, n])
                weight *= gamma * gae_lambda
                if terminated[t, n] or truncated[t, n]:
                    break
    return advantage


def test_gae_of_three_steps_matches_hand_computation():
    advantage = gae(
        reward=jnp.array([[1.0], [2.0], [4.0]]),
        value=jnp.array([[10.0], [20.0], [30.0]]),
        next_value=jnp.array([[20.0], [100.0], [8.0]]),
        terminated=jnp.array([[False], [False], [True]]),
        truncated=jnp.array([[False], [True], [False]]),
        gamma=0.5,
        gae_lambda=0.5,
    )
    # 4 - 30, the next value unread;  2 + 0.5 * 100 - 20, cut;  1 + 0.5 * 20 - 10 + 0.25 * 32
    chex.assert_trees_all_close(advantage, jnp.array([[9.0], [32.0], [-26.0]]))


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.99, 0.95), (0.9, 0.0), (1.0, 1.0)])
def test_gae_matches_the_slow_sum_of_its_definition(gamma, gae_lambda):
    rng = np.random.default_rng(0)
    reward, value, next_value = rng.normal(size=(3, 37, 5))
    terminated, truncated = rng.random((2, 37, 5)) < 0.2
    assert (terminated & truncated).any()
    expected = slow_gae(reward, value, next_value, terminated, truncated, gamma, gae_lambda)
    arrays = (jnp.asarray(x, jnp.float32) for x in (reward, value, next_value))
    actual = jax.jit(gae)(*arrays, terminated, truncated, gamma=gamma, gae_lambda=gae_lambda)
    chex.assert_trees_all_close(actual, expected.astype(np.float32), atol=2e-5)


def test_gae_ignores_a_nan_next_value_after_termination():
    nan = jnp.full((1, 1), jnp.nan)
    one, yes, no = jnp.ones((1, 1)), jnp.ones((1, 1), bool), jnp.zeros((1, 1), bool)
    assert gae(one, one, nan, yes, yes, gamma=0.9, gae_lambda=0.9) == 0
    assert jnp.isnan(gae(one, one, nan, no, yes, gamma=0.9, gae_lambda=0.9))
