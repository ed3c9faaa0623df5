"""Elementwise losses on arrays with any leading axes, such as [T, N] or [B].

Algorithms average them.
"""

import chex
import jax
import jax.numpy as jnp


def policy_gradient(log_prob: jax.Array, advantage: jax.Array) -> jax.Array:
    """Returns `-advantage log_prob`, whose gradient is the policy gradient."""
    return -log_prob * jax.lax.stop_gradient(advantage)


def clipped_surrogate(log_ratio: jax.Array, advantage: jax.Array, clip: chex.Numeric) -> jax.Array:
    """Returns PPO's clipped objective of an action.

    Args:
        log_ratio: the action's log-probability minus that under the policy that acted.
        advantage: how much better than expected the action was.
        clip: the objective does not improve further once the ratio leaves [1 - clip, 1 + clip].

    Source: J. Schulman et al., Proximal Policy Optimization Algorithms, 2017, equation 7.
    """
    ratio = jnp.exp(log_ratio)
    return -jnp.minimum(ratio * advantage, jnp.clip(ratio, 1 - clip, 1 + clip) * advantage)


def clipped_value(
    value: jax.Array, old_value: jax.Array, target: jax.Array, clip: chex.Numeric
) -> jax.Array:
    """Returns the clipped value loss of OpenAI Baselines: half the squared error."""
    held = old_value + jnp.clip(value - old_value, -clip, clip)
    return 0.5 * jnp.maximum((value - target) ** 2, (held - target) ** 2)


def kl_estimate(log_ratio: jax.Array) -> jax.Array:
    """Returns a low-variance, non-negative KL estimate from actions of the old policy.

    Source: J. Schulman, Approximating KL Divergence, 2020.
    """
    return jnp.expm1(log_ratio) - log_ratio


def huber(error: jax.Array, delta: chex.Numeric = 1.0) -> jax.Array:
    """Returns the Huber loss: half the squared error below `delta`, linear beyond it."""
    small = jnp.minimum(jnp.abs(error), delta)
    return small * (jnp.abs(error) - 0.5 * small)


def chosen(values: jax.Array, action: jax.Array) -> jax.Array:
    """Returns the values of actions, int32[...], from values of all actions, [..., n]."""
    return jnp.take_along_axis(values, action[..., None], axis=-1)[..., 0]
