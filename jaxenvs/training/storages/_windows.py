"""Windows of n steps in a ring, and their n-step returns."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs.training.storages._ring import Ring, take
from jaxenvs.training.types import Sample


def newest_can_start(ring: Ring, n_step: int) -> jax.Array:
    """Returns at which of the newest n - 1 steps a window can start, bool[n - 1, N].

    It can if the episode ends before the window would extend beyond the newest step. A window can
    start at any older step.
    """
    length, num_envs = ring.shape
    time = ring.time - jnp.arange(n_step - 1, 0, -1, dtype=jnp.int32)
    rows = time % length
    is_there = jnp.broadcast_to((time >= 0)[:, None], (n_step - 1, num_envs))
    ended = (ring.steps.terminated[rows] | ring.steps.truncated[rows]) & is_there
    return (jnp.cumsum(ended[::-1], axis=0, dtype=jnp.int32)[::-1] > 0) & is_there


def n_step_returns(
    ring: Ring,
    time: jax.Array,
    instance: jax.Array,
    n_step: int,
    *,
    gamma: chex.Numeric,
    weight: jax.Array,
) -> Sample:
    """Returns the windows that start at steps `time` of `instance`, int32[B] each.

    A window ends where its episode ends.
    """
    ages = jnp.arange(n_step, dtype=jnp.int32)[:, None]
    window = time[None] + ages, jnp.broadcast_to(instance, (n_step, *instance.shape))
    steps = ring.steps
    terminated = take(steps.terminated, *window)
    done = (terminated | take(steps.truncated, *window)).astype(jnp.int32)
    belongs = jnp.cumsum(done, axis=0) - done == 0  # no earlier step ended the episode
    discounts = jnp.asarray(gamma, jnp.float32) ** ages.astype(jnp.float32)
    paid = jnp.where(belongs, take(steps.reward, *window), 0.0) * discounts

    span = belongs.sum(axis=0, dtype=jnp.int32)
    bootstraps = ~(belongs & terminated).any(axis=0)
    factor = jnp.asarray(gamma, jnp.float32) ** span.astype(jnp.float32)
    return Sample(
        observation=take(steps.observation, time, instance),
        action=take(steps.action, time, instance),
        reward=paid.sum(axis=0),
        discount=jnp.where(bootstraps, factor, 0.0),
        next_observation=take(steps.next_observation, time + span - 1, instance),
        weight=weight,
        index=time % ring.shape[0] * ring.shape[1] + instance,
    )
