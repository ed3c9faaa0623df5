"""Advantage actor-critic."""

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
from jaxenvs.training.optimizers import LearningRate, clipped


@struct.pytree_dataclass
class A2C(OnPolicyAlgorithm):
    """One gradient step on each short unroll, all instances together.

    With `VTrace` and collectors that run ahead it is IMPALA; with gradients that are computed and
    applied asynchronously, A3C.

    Source: V. Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, 2016.
    """

    learning_rate: LearningRate = 7e-4  # RMSProp's, at the start if `anneal`
    gamma: float = 0.99  # discount per step
    gae_lambda: float = 1.0  # 1 sums rewards to the end of the unroll
    value_coefficient: float = 0.5  # weight of the critic's loss
    entropy_coefficient: float = 0.01  # weight of the bonus for exploring
    max_gradient_norm: float | None = 0.5  # gradients are scaled down to it; None: never
    decay: float = 0.99  # of RMSProp's mean square
    rms_epsilon: float = 1e-5
    target_kl: float | None = None  # an update ends with the step that moved the policy beyond
    observation_clip: float | None = 10.0  # normalized observations are clipped to this
    reward_clip: float | None = 10.0  # and normalized rewards to this
    epochs: int = struct.static(1)  # passes over each unroll
    minibatches: int = struct.static(1)  # gradient steps a pass
    shuffle: Shuffle | None = struct.static(None)  # what minibatches consist of; None: what fits
    anneal: bool = struct.static(False)  # a learning rate that is a number falls linearly to 0
    normalize_advantage: bool = struct.static(False)  # in each minibatch
    normalize_observations: bool = struct.static(False)  # by their running mean and deviation
    normalize_rewards: bool = struct.static(False)  # by the deviation of discounted returns

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        rmsprop = optax.rmsprop(self.rate(num_updates), decay=self.decay, eps=self.rms_epsilon)
        return clipped(rmsprop, self.max_gradient_norm)

    def loss(self, batch: Batch, said: Said) -> tuple[jax.Array, Metrics]:
        policy_loss = losses.policy_gradient(said.log_prob, batch.advantage).mean()
        value_loss = 0.5 * ((said.value - batch.target) ** 2).mean()
        total = policy_loss + self.value_coefficient * value_loss
        total -= self.entropy_coefficient * said.entropy
        return total, {"policy_loss": policy_loss, "value_loss": value_loss}
