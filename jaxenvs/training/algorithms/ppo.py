"""Proximal policy optimisation."""

from typing import Any

import jax
import jax.numpy as jnp
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
from jaxenvs.training.optimisers import adam, annealed


@struct.pytree_dataclass
class PPO(OnPolicyAlgorithm):
    """Several passes over each unroll, by gradient steps that may not change the policy much.

    With `VTrace` and collectors that run ahead it is APPO; with a recurrent actor it learns from
    whole sequences.

    Source: J. Schulman et al., Proximal Policy Optimization Algorithms, 2017.
    """

    learning_rate: float = 2.5e-4  # Adam's, at the start if `anneal`
    gamma: float = 0.99  # discount per step
    gae_lambda: float = 0.95  # 0 trusts the critic after one step, 1 the sampled rewards
    clip: float = 0.2  # how far the probability ratio may move
    value_coefficient: float = 0.5  # weight of the critic's loss
    entropy_coefficient: float = 0.01  # weight of the bonus for exploring
    max_gradient_norm: float | None = (
        0.5  # gradients are scaled down to this norm; None: they are not
    )
    adam_epsilon: float = 1e-5
    target_kl: float | None = None  # an update ends with the step that moved the policy beyond
    epochs: int = struct.static(4)  # passes over each unroll
    minibatches: int = struct.static(4)  # gradient steps a pass
    shuffle: Shuffle | None = struct.static(None)  # what minibatches consist of; None: what fits
    anneal: bool = struct.static(True)  # learning rate falls linearly to 0 over the training
    clip_value: bool = struct.static(True)  # the critic, too, moves by at most `clip`
    normalise_advantage: bool = struct.static(True)  # in each minibatch
    normalise_observations: bool = struct.static(False)  # by their running mean and deviation
    normalise_rewards: bool = struct.static(False)  # by the deviation of discounted returns

    def optimiser(self, num_updates: int) -> optax.GradientTransformation:
        rate: Any = self.learning_rate
        if self.anneal:
            rate = annealed(rate, num_updates * self.gradient_steps_per_update)
        return adam(rate, self.max_gradient_norm, self.adam_epsilon)

    def loss(self, batch: Batch, said: Said) -> tuple[jax.Array, Metrics]:
        log_ratio = said.log_prob - batch.log_prob
        policy_loss = losses.clipped_surrogate(log_ratio, batch.advantage, self.clip).mean()
        if self.clip_value:
            errors = losses.clipped_value(said.value, batch.value, batch.target, self.clip)
        else:
            errors = 0.5 * (said.value - batch.target) ** 2
        value_loss = errors.mean()
        total = policy_loss + self.value_coefficient * value_loss
        total -= self.entropy_coefficient * said.entropy
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "clip_fraction": (jnp.abs(jnp.expm1(log_ratio)) > self.clip).mean(),
        }
