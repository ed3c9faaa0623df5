"""Vanilla policy gradient: REINFORCE with a learned baseline."""

import jax
import optax

from jaxenvs import struct
from jaxenvs.training.algorithms import losses
from jaxenvs.training.algorithms._on_policy import (
    Batch,
    OnPolicyAlgorithm,
    Said,
    Shuffle,
)
from jaxenvs.training.algorithms.base import Metrics
from jaxenvs.training.optimizers import LearningRate, adam
from jaxenvs.training.storages.base import Storage
from jaxenvs.training.storages.rollout import Rollout


@struct.pytree_dataclass
class VPG(OnPolicyAlgorithm):
    """One gradient step on each unroll, with the rewards as they were sampled.

    The critic is a baseline, and stands in for what the unroll's end cut off.

    Source: R. J. Williams, Simple Statistical Gradient-Following Algorithms for Connectionist
    Reinforcement Learning, 1992; R. S. Sutton et al., Policy Gradient Methods, 2000.
    """

    learning_rate: LearningRate = 1e-3  # Adam's
    gamma: float = 0.99  # discount per step
    gae_lambda: float = 0.97  # for the storage `GAE`; `Rollout` has none
    value_coefficient: float = 1.0  # weight of the baseline's loss
    target_kl: float | None = None  # of no use for a single gradient step
    observation_clip: float | None = 10.0  # normalized observations are clipped to this
    reward_clip: float | None = 10.0  # and normalized rewards to this
    epochs: int = struct.static(1)
    minibatches: int = struct.static(1)
    shuffle: Shuffle | None = struct.static(None)  # of no use for a single minibatch
    normalize_advantage: bool = struct.static(True)
    normalize_observations: bool = struct.static(False)  # by their running mean and deviation
    normalize_rewards: bool = struct.static(False)  # by the deviation of discounted returns

    def default_storage(self) -> Storage:
        return Rollout()

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        del num_updates  # nothing is annealed
        return adam(self.learning_rate)

    def loss(self, batch: Batch, said: Said) -> tuple[jax.Array, Metrics]:
        policy_loss = losses.policy_gradient(said.log_prob, batch.advantage).mean()
        value_loss = 0.5 * ((said.value - batch.target) ** 2).mean()
        total = policy_loss + self.value_coefficient * value_loss
        return total, {"policy_loss": policy_loss, "value_loss": value_loss}
