"""Parallelized Q-learning."""

from typing import Any

import chex
import jax
import optax

from jaxenvs import struct
from jaxenvs.errors import TrainingError
from jaxenvs.training.actors.actor import Features, Networks
from jaxenvs.training.actors.q_network import QNetwork
from jaxenvs.training.algorithms import losses
from jaxenvs.training.algorithms._epsilon_greedy import EpsilonGreedyAlgorithm
from jaxenvs.training.algorithms._on_policy import Batch, OnPolicyAlgorithm
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy, Metrics, TrainContext
from jaxenvs.training.optimizers import LearningRate, with_clipping
from jaxenvs.training.ranges import Count, Fraction, Positive
from jaxenvs.training.storages.storage import Storage
from jaxenvs.training.types import Weights


@struct.pytree_dataclass
class PQN(EpsilonGreedyAlgorithm, OnPolicyAlgorithm):
    """Parallelized Q-network: action values regressed on Q(lambda) returns of each unroll.

    It needs neither a replay memory nor a target network: many instances decorrelate the batches,
    and layer normalization, which its default actor has, keeps the values from diverging. With
    `GAE`, the target is the lambda return whose values are those of the best actions.

    Source: M. Gallici et al., Simplifying Deep Temporal Difference Learning, 2024.
    """

    learning_rate: LearningRate = 5e-4  # of rectified Adam; the initial value if `anneal`
    gamma: Fraction = 0.99  # discount per step
    gae_lambda: Fraction = 0.65  # 0 trusts the network after one step, 1 the sampled rewards
    initial_epsilon: Fraction = 1.0  # fraction of random actions at the start
    final_epsilon: Fraction = 0.05  # fraction after `exploration_steps`
    exploration_steps: Count = 100_000  # environment steps over which epsilon falls linearly
    max_gradient_norm: Positive | None = 10.0  # larger gradients are scaled to it; None: no limit
    observation_clip: Positive | None = 10.0  # normalized observations are clipped to this
    reward_clip: Positive | None = 10.0  # normalized rewards are clipped to this
    epochs: Count = struct.static(2)  # passes over each unroll
    minibatches: Count = struct.static(16)  # gradient steps in each pass
    anneal: bool = struct.static(True)  # decrease a constant learning rate linearly to 0
    normalize_observations: bool = struct.static(False)  # by running mean and standard deviation
    normalize_rewards: bool = struct.static(False)  # by the deviation of discounted returns

    def default_actor(self) -> QNetwork:
        return QNetwork(layer_norm=True)

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        return with_clipping(optax.radam(self.rate(num_updates)), self.max_gradient_norm)

    def check(self, networks: Networks, storage: Storage) -> None:
        super().check(networks, storage)
        if getattr(storage, "corrects", False):
            raise TrainingError(
                f"PQN got the storage {type(storage).__name__}, which corrects for an older policy,"
                " but its actions have no probabilities.  Pass GAE() or DiscountedReturns()."
            )

    def act(
        self,
        context: TrainContext,
        behavior: BehaviorPolicy,
        carry: Any,
        features: Features,
        key: chex.PRNGKey,
    ) -> tuple[Any, jax.Array]:
        return carry, self.explore(context, behavior, features, key)

    def gradients(
        self, context: TrainContext, weights: Weights, batch: Batch, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, None]:
        del key  # the loss is deterministic

        def loss(params: Any) -> tuple[jax.Array, Metrics]:
            values = losses.chosen(context.networks.q(params, batch.features), batch.action)
            q_loss = 0.5 * ((values - batch.target) ** 2).mean()
            return q_loss, {"q_loss": q_loss, "q_mean": values.mean()}

        gradients, metrics = jax.grad(loss, has_aux=True)(weights.params)
        return gradients, metrics, None
