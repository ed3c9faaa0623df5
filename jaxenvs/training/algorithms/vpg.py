"""Vanilla policy gradient: REINFORCE with a learned baseline."""

import jax
import optax

from jaxenvs import struct
from jaxenvs.training.algorithms import losses
from jaxenvs.training.algorithms._on_policy import (
    Batch,
    PolicyGradientAlgorithm,
    Predictions,
    Shuffle,
)
from jaxenvs.training.algorithms.algorithm import Metrics
from jaxenvs.training.optimizers import LearningRate, adam
from jaxenvs.training.ranges import Count, Fraction, Positive
from jaxenvs.training.storages.discounted_returns import DiscountedReturns
from jaxenvs.training.storages.storage import Storage


@struct.pytree_dataclass
class VPG(PolicyGradientAlgorithm):
    """Vanilla policy gradient: one gradient step on each unroll, with sampled returns.

    The critic is the baseline and provides the value at the end of the unroll.

    Source: R. J. Williams, Simple Statistical Gradient-Following Algorithms for Connectionist
    Reinforcement Learning, 1992; R. S. Sutton et al., Policy Gradient Methods, 2000.
    """

    learning_rate: LearningRate = 1e-3  # of Adam
    gamma: Fraction = 0.99  # discount per step
    gae_lambda: Fraction = 0.97  # for the storage `GAE`; not used by `DiscountedReturns`
    value_coefficient: float = 1.0  # weight of the baseline's loss
    target_kl: Positive | None = None  # no effect with a single gradient step
    observation_clip: Positive | None = 10.0  # normalized observations are clipped to this
    reward_clip: Positive | None = 10.0  # normalized rewards are clipped to this
    epochs: Count = struct.static(1)
    minibatches: Count = struct.static(1)
    shuffle: Shuffle | None = struct.static(None)  # no effect with a single minibatch
    normalize_advantage: bool = struct.static(True)
    normalize_observations: bool = struct.static(False)  # by running mean and standard deviation
    normalize_rewards: bool = struct.static(False)  # by the deviation of discounted returns

    def default_storage(self) -> Storage:
        return DiscountedReturns()

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        del num_updates  # no annealing
        return adam(self.learning_rate)

    def loss(self, batch: Batch, predictions: Predictions) -> tuple[jax.Array, Metrics]:
        policy_loss = losses.policy_gradient(predictions.log_prob, batch.advantage).mean()
        value_loss = 0.5 * ((predictions.value - batch.target) ** 2).mean()
        total = policy_loss + self.value_coefficient * value_loss
        return total, {"policy_loss": policy_loss, "value_loss": value_loss}
