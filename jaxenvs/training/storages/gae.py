"""Generalized advantage estimation."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.training.storages._discounting import discounted_sums
from jaxenvs.training.storages.storage import OnPolicyStorage
from jaxenvs.training.types import ValuedUnroll


def gae(
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    *,
    gamma: chex.Numeric,
    gae_lambda: chex.Numeric,
) -> jax.Array:
    """Estimates advantages over an unroll, with time limits told apart from terminations.

    T is the unroll's length, N the number of instances. With `A[T] = 0`,

        delta[t] = reward[t] + gamma (1 - terminated[t]) next_value[t] - value[t]
        A[t]     = delta[t] + gamma gae_lambda (1 - done[t]) A[t + 1]

    A termination is worth nothing afterwards. A truncation is worth what the critic expects from
    the observation that the cut hid, and the sum stops there: step t + 1 is another episode.

    Args:
        reward: float32[T, N], what step t paid.
        value: float32[T, N], the critic at the observation that step t acted on.
        next_value: float32[T, N], the critic at the observation that step t itself led to, before
            any reset; read only where not `terminated`.
        terminated: bool[T, N].
        truncated: bool[T, N].
        gamma: the discount factor.
        gae_lambda: 0 trusts the critic after one step, 1 sums rewards to the end of the unroll.

    Returns:
        float32[T, N] advantages; `advantage + value` is the critic's target.

    Source: J. Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage
    Estimation, 2016, equation 16; for time limits F. Pardo et al., Time Limits in Reinforcement
    Learning, 2018.
    """
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    carried = gamma * gae_lambda * (1 - (terminated | truncated).astype(delta.dtype))
    return discounted_sums(delta, carried)


@struct.pytree_dataclass
class GAE(OnPolicyStorage):
    """Advantages by `gae`; the critic's targets are advantage + value."""

    def estimate(
        self, unroll: ValuedUnroll, *, gamma: chex.Numeric, gae_lambda: chex.Numeric
    ) -> tuple[jax.Array, jax.Array]:
        advantage = gae(
            unroll.reward,
            unroll.value,
            unroll.next_value,
            unroll.terminated,
            unroll.truncated,
            gamma=gamma,
            gae_lambda=gae_lambda,
        )
        return advantage, advantage + unroll.value
