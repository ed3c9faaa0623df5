"""Returns as they were sampled."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs import struct
from jaxenvs.training.storages._returns import discounted_sums
from jaxenvs.training.storages.base import OnPolicyStorage
from jaxenvs.training.types import Segment


@struct.pytree_dataclass
class Rollout(OnPolicyStorage):
    """Targets are discounted sums of rewards, to the end of the episode or of the unroll.

    There the critic's value follows, unless the episode terminated: an n-step return whose n is as
    large as the unroll allows, which is `gae` with a lambda of 1. Advantages are target - value;
    `gae_lambda` is not read.
    """

    def estimate(
        self, segment: Segment, *, gamma: chex.Numeric, gae_lambda: chex.Numeric = 1.0
    ) -> tuple[jax.Array, jax.Array]:
        del gae_lambda
        done = segment.terminated | segment.truncated
        cut = done.at[-1].set(True)
        beyond = jnp.where(cut & ~segment.terminated, segment.next_value, 0.0)
        paid = segment.reward + gamma * beyond
        target = discounted_sums(paid, gamma * (1 - done.astype(paid.dtype)))
        return target - segment.value, target
