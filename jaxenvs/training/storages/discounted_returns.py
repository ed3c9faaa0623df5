"""Discounted returns, bootstrapped at the end of the unroll."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.training.storages._discounting import discounted_sums
from jaxenvs.training.storages.storage import OnPolicyStorage
from jaxenvs.training.types import ValuedUnroll


@struct.pytree_dataclass
class DiscountedReturns(OnPolicyStorage):
    """A storage whose targets are discounted returns to the end of the episode or unroll.

    Unless the episode terminated, the critic's value at the end is added. The targets are therefore
    n-step returns with the largest possible n, as in `gae` with a lambda of 1. Advantages are
    target - value; `gae_lambda` is ignored.
    """

    def estimate(
        self, unroll: ValuedUnroll, *, gamma: chex.Numeric, gae_lambda: chex.Numeric = 1.0
    ) -> tuple[jax.Array, jax.Array]:
        del gae_lambda
        done = unroll.terminated | unroll.truncated
        cut = done.at[-1].set(True)
        beyond = jnp.where(cut & ~unroll.terminated, unroll.next_value, 0.0)
        paid = unroll.reward + gamma * beyond
        target = discounted_sums(paid, gamma * (1 - done.astype(paid.dtype)))
        return target - unroll.value, target
