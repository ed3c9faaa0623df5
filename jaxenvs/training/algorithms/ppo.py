"""Proximal policy optimization."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import optax

from jaxenvs import spaces, struct
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


@struct.pytree_dataclass
class PPO(PolicyGradientAlgorithm):
    """Proximal policy optimization: several passes over each unroll with a clipped objective.

    With `VTrace` and asynchronous collectors this is APPO. With a recurrent actor it learns from
    whole sequences. The defaults are for discrete actions; `PPO.continuous()` has those for a Box.

    Source: J. Schulman et al., Proximal Policy Optimization Algorithms, 2017.
    """

    learning_rate: LearningRate = 2.5e-4  # of Adam; the initial value if `anneal`
    gamma: Fraction = 0.99  # discount per step
    gae_lambda: Fraction = 0.95  # 0 trusts the critic after one step, 1 the sampled rewards
    clip: Positive = 0.2  # how far the probability ratio may deviate from 1
    value_coefficient: float = 0.5  # weight of the critic's loss
    entropy_coefficient: float = 0.01  # weight of the entropy bonus
    max_gradient_norm: Positive | None = 0.5  # larger gradients are scaled to it; None: no limit
    adam_epsilon: Positive = 1e-5
    target_kl: Positive | None = None  # an update ends with the step that exceeds this KL
    observation_clip: Positive | None = 10.0  # normalized observations are clipped to this
    reward_clip: Positive | None = 10.0  # normalized rewards are clipped to this
    epochs: Count = struct.static(4)  # passes over each unroll
    minibatches: Count = struct.static(4)  # gradient steps in each pass
    shuffle: Shuffle | None = struct.static(None)  # units of minibatches; None: by the actor
    anneal: bool = struct.static(True)  # decrease a constant learning rate linearly to 0
    clip_value: bool = struct.static(True)  # limit changes of the critic's values to `clip`
    normalize_advantage: bool = struct.static(True)  # in each minibatch
    normalize_observations: bool = struct.static(False)  # by running mean and standard deviation
    normalize_rewards: bool = struct.static(False)  # by the deviation of discounted returns

    @classmethod
    def continuous(cls, **changes: Any) -> Self:
        """Returns PPO with defaults for actions in a Box and about 2,048 steps per update.

        The defaults follow RL Baselines3 Zoo and CleanRL: normalized observations and rewards, no
        entropy bonus, and many small gradient steps.

        Args:
            **changes: hyperparameters to change.
        """
        settings = {
            "learning_rate": 3e-4,
            "entropy_coefficient": 0.0,
            "epochs": 10,
            "minibatches": 32,
            "clip_value": False,
            "normalize_observations": True,
            "normalize_rewards": True,
        }
        return cls(**{**settings, **changes})

    @classmethod
    def for_spaces(cls, observation_space: spaces.Space, action_space: spaces.Space) -> Self:
        if not isinstance(action_space, spaces.Box):
            return cls()
        is_vector = isinstance(observation_space, spaces.Box) and len(observation_space.shape) == 1
        return cls.continuous(normalize_observations=is_vector)

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        return adam(self.rate(num_updates), self.max_gradient_norm, self.adam_epsilon)

    def loss(self, batch: Batch, predictions: Predictions) -> tuple[jax.Array, Metrics]:
        log_ratio = predictions.log_prob - batch.log_prob
        policy_loss = losses.clipped_surrogate(log_ratio, batch.advantage, self.clip).mean()
        if self.clip_value:
            errors = losses.clipped_value(predictions.value, batch.value, batch.target, self.clip)
        else:
            errors = 0.5 * (predictions.value - batch.target) ** 2
        value_loss = errors.mean()
        total = policy_loss + self.value_coefficient * value_loss
        total -= self.entropy_coefficient * predictions.entropy
        return total, {
            "policy_loss": policy_loss,
            "value_loss": value_loss,
            "clip_fraction": (jnp.abs(jnp.expm1(log_ratio)) > self.clip).mean(),
        }
