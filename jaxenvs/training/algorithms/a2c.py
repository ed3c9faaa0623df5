"""Advantage actor-critic."""

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
from jaxenvs.training.optimizers import LearningRate, with_clipping
from jaxenvs.training.ranges import Count, Fraction, Positive


@struct.pytree_dataclass
class A2C(PolicyGradientAlgorithm):
    """Advantage actor-critic: one gradient step on each short unroll of all instances.

    With `VTrace` and asynchronous collectors this is IMPALA; with asynchronous gradient workers it
    is A3C.

    Source: V. Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, 2016.
    """

    learning_rate: LearningRate = 7e-4  # of RMSProp; the initial value if `anneal`
    gamma: Fraction = 0.99  # discount per step
    gae_lambda: Fraction = 1.0  # 1 sums rewards to the end of the unroll
    value_coefficient: float = 0.5  # weight of the critic's loss
    entropy_coefficient: float = 0.01  # weight of the entropy bonus
    max_gradient_norm: Positive | None = 0.5  # larger gradients are scaled to it; None: no limit
    decay: Fraction = 0.99  # of the mean square in RMSProp
    rms_epsilon: Positive = 1e-5
    target_kl: Positive | None = None  # an update ends with the step that exceeds this KL
    observation_clip: Positive | None = 10.0  # normalized observations are clipped to this
    reward_clip: Positive | None = 10.0  # normalized rewards are clipped to this
    epochs: Count = struct.static(1)  # passes over each unroll
    minibatches: Count = struct.static(1)  # gradient steps in each pass
    shuffle: Shuffle | None = struct.static(None)  # units of minibatches; None: by the actor
    anneal: bool = struct.static(False)  # decrease a constant learning rate linearly to 0
    normalize_advantage: bool = struct.static(False)  # in each minibatch
    normalize_observations: bool = struct.static(False)  # by running mean and standard deviation
    normalize_rewards: bool = struct.static(False)  # by the deviation of discounted returns

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        rmsprop = optax.rmsprop(self.rate(num_updates), decay=self.decay, eps=self.rms_epsilon)
        return with_clipping(rmsprop, self.max_gradient_norm)

    def loss(self, batch: Batch, predictions: Predictions) -> tuple[jax.Array, Metrics]:
        policy_loss = losses.policy_gradient(predictions.log_prob, batch.advantage).mean()
        value_loss = 0.5 * ((predictions.value - batch.target) ** 2).mean()
        total = policy_loss + self.value_coefficient * value_loss
        total -= self.entropy_coefficient * predictions.entropy
        return total, {"policy_loss": policy_loss, "value_loss": value_loss}
