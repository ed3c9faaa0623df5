"""Losses as functions of arrays: elementwise, on any leading axes, [T, N] or [B].

Each is a term to be averaged. Networks and hyper-parameters meet them in the algorithm's file.
"""

import chex
import jax
import jax.numpy as jnp


def policy_gradient(log_prob: jax.Array, advantage: jax.Array) -> jax.Array:
    """`-advantage log_prob`: its gradient is the policy gradient."""
    return -log_prob * jax.lax.stop_gradient(advantage)


def clipped_surrogate(log_ratio: jax.Array, advantage: jax.Array, clip: chex.Numeric) -> jax.Array:
    """Returns PPO's clipped objective of an action.

    Args:
        log_ratio: log-probability now, less that under the policy that acted.
        advantage: how much better than expected the action was.
        clip: the ratio counts between 1 - clip and 1 + clip, where moving it further would pay.

    Source: J. Schulman et al., Proximal Policy Optimization Algorithms, 2017, equation 7.
    """
    ratio = jnp.exp(log_ratio)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def clipped_value(
    value: jax.Array, old_value: jax.Array, target: jax.Array, clip: chex.Numeric
) -> jax.Array:
    """Returns half the squared error of a critic that may move by `clip`, as OpenAI Baselines."""
    held = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.maximum((value - target) ** 2, (held - target) ** 2)


def kl_estimate(log_ratio: jax.Array) -> jax.Array:
    """Returns a low-variance estimate of the KL divergence, from actions of the old policy.

    It is never negative.

    Source: J. Schulman, Approximating KL Divergence, 2020.
    """
    return jnp.expm1(log_ratio) - log_ratio


def huber(error: jax.Array, delta: chex.Numeric = 1.0) -> jax.Array:
    """Returns half the squared error below `delta`; larger errors grow linearly."""
    small = jnp.minimum(jnp.abs(error), delta)
    return small * (jnp.abs(error) - 0.5 * small)


def chosen(values: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the value of each action, int32[...], out of values [..., n]."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]
