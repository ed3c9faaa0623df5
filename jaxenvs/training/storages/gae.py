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
    """Estimates advantages over an unroll, distinguishing time limits from terminations.

    T is the unroll's length and N the number of instances. With `A[T] = 0`,

        delta[t] = reward[t] + gamma (1 - terminated[t]) next_value[t] - value[t]
        A[t]     = delta[t] + gamma gae_lambda (1 - done[t]) A[t + 1]

    After a termination the value is 0. After a truncation it is the critic's value of the final
    observation, and the sum stops there, because step t + 1 belongs to another episode.

    Args:
        reward: float32[T, N], the reward of step t.
        value: float32[T, N], the critic's value of the observation before step t.
        next_value: float32[T, N], the critic's value of the observation after step t, before any
            reset; used only if not `terminated`.
        terminated: bool[T, N].
        truncated: bool[T, N].
        gamma: the discount factor.
        gae_lambda: 0 uses the critic's value after one step, 1 sums rewards to the unroll's end.

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
    """A storage that estimates advantages by `gae`; the critic's targets are advantage + value."""

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
