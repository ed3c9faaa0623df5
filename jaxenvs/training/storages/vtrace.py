"""V-trace: off-policy corrected returns."""

from typing import ClassVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.training.ranges import Positive
from jaxenvs.training.storages._discounting import discounted_sums
from jaxenvs.training.storages.storage import OnPolicyStorage
from jaxenvs.training.types import ValuedUnroll


def vtrace(
    log_ratio: jax.Array,
    reward: jax.Array,
    value: jax.Array,
    next_value: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    *,
    gamma: chex.Numeric,
    gae_lambda: chex.Numeric,
    clip_rho: chex.Numeric = 1.0,
    clip_c: chex.Numeric = 1.0,
    clip_pg_rho: chex.Numeric = 1.0,
) -> tuple[jax.Array, jax.Array]:
    """Estimates advantages and targets with clipped importance weights.

    T is the unroll's length, N the number of instances. With `w = exp(log_ratio)`, `E[T] = 0` and
    `v' = (1 - terminated) next_value`,

        E[t]      = min(clip_rho, w) (reward + gamma v' - value)
                    + gamma gae_lambda min(clip_c, w) (1 - done) E[t + 1]
        target    = value + E[t]
        advantage = min(clip_pg_rho, w)
                    (reward + gamma (v' + gae_lambda (1 - done) E[t + 1]) - value)

    As in `gae`, the value after a truncation is the critic's value of the final observation, and
    sums stop there.

    Args:
        log_ratio: float32[T, N], the action's current log-probability minus that when it was taken.
        reward: float32[T, N], the reward of step t.
        value: float32[T, N], the critic's value of the observation before step t.
        next_value: float32[T, N], the critic's value of the observation after step t, before any
            reset; used only if not `terminated`.
        terminated: bool[T, N].
        truncated: bool[T, N].
        gamma: the discount factor.
        gae_lambda: 0 uses the critic's value after one step, 1 sums rewards to the unroll's end.
        clip_rho: the largest weight of a temporal difference; determines the policy whose values
            are learned.
        clip_c: the largest weight of later steps; determines how fast values converge.
        clip_pg_rho: the largest weight of an advantage.

    Returns:
        float32[T, N] advantages, and float32[T, N] targets for the critic.

    Source: L. Espeholt et al., IMPALA: Scalable Distributed Deep-RL with Importance Weighted
    Actor-Learner Architectures, 2018, section 4. There the advantage reads `target[t + 1]`, which
    is `v' + E[t + 1]`; how lambda enters it follows rlax's `vtrace_td_error_and_advantage`.
    """
    weight = jnp.exp(log_ratio)
    continues = 1 - (terminated | truncated).astype(value.dtype)
    delta = reward + gamma * jnp.where(terminated, 0.0, next_value) - value
    carried = gamma * gae_lambda * continues
    error = discounted_sums(
        jnp.minimum(clip_rho, weight) * delta, carried * jnp.minimum(clip_c, weight)
    )
    later = jnp.concatenate([error[1:], jnp.zeros_like(error[:1])])
    advantage = jnp.minimum(clip_pg_rho, weight) * (delta + carried * later)
    return advantage, value + error


@struct.pytree_dataclass
class VTrace(OnPolicyStorage):
    """A storage that estimates by `vtrace`, for collectors that lag behind the learner."""

    corrects: ClassVar[bool] = True

    clip_rho: Positive = 1.0  # largest weight of a temporal difference
    clip_c: Positive = 1.0  # largest weight of later steps
    clip_pg_rho: Positive = 1.0  # largest weight of an advantage

    def estimate(
        self, unroll: ValuedUnroll, *, gamma: chex.Numeric, gae_lambda: chex.Numeric
    ) -> tuple[jax.Array, jax.Array]:
        return vtrace(
            unroll.log_ratio,
            unroll.reward,
            unroll.value,
            unroll.next_value,
            unroll.terminated,
            unroll.truncated,
            gamma=gamma,
            gae_lambda=gae_lambda,
            clip_rho=self.clip_rho,
            clip_c=self.clip_c,
            clip_pg_rho=self.clip_pg_rho,
        )
