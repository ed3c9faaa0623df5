"""Deep Q-learning."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from jaxenvs import struct
from jaxenvs.training.actors.q_network import QNetwork, QNetworks
from jaxenvs.training.algorithms import losses
from jaxenvs.training.algorithms._epsilon_greedy import EpsilonGreedyAlgorithm
from jaxenvs.training.algorithms._off_policy import OffPolicyAlgorithm, ReplayRatio, sample_features
from jaxenvs.training.algorithms.algorithm import Metrics, TrainContext, polyak_update
from jaxenvs.training.optimizers import LearningRate, adam
from jaxenvs.training.ranges import Count, Fraction, Positive, Steps
from jaxenvs.training.types import Sample, Weights


@struct.pytree_dataclass
class DQN(EpsilonGreedyAlgorithm, OffPolicyAlgorithm):
    """Deep Q-learning: action values regressed on the best value of the next step.

    It is double DQN by default. `QNetwork(dueling=True)` makes it dueling, and the storage
    `PrioritizedReplay(n_step=3)` n-step and prioritized.

    Source: V. Mnih et al., Human-level Control through Deep Reinforcement Learning, 2015; H. van
    Hasselt et al., Deep Reinforcement Learning with Double Q-learning, 2016.
    """

    learning_rate: LearningRate = 5e-4  # of Adam
    gamma: Fraction = 0.99  # discount per step
    initial_epsilon: Fraction = 1.0  # fraction of random actions at the start
    final_epsilon: Fraction = 0.05  # fraction after `exploration_steps`
    exploration_steps: Count = 40_000  # environment steps over which epsilon falls linearly
    tau: Fraction = 1.0  # how far an update moves the targets; 1 copies the weights
    max_gradient_norm: Positive | None = 10.0  # larger gradients are scaled to it; None: no limit
    learning_starts: Steps = 1_000  # environment steps with random actions before learning
    target_update_every: Count = 200  # gradient steps between two updates of the targets
    batch_size: Count = struct.static(128)
    replay_ratio: ReplayRatio = struct.static(0.25)  # gradient steps per environment step
    double: bool = struct.static(True)  # weights select the next action, targets evaluate it

    def default_actor(self) -> QNetwork:
        return QNetwork()

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        del num_updates  # no annealing
        return adam(self.learning_rate, self.max_gradient_norm)

    def initial_targets(self, params: Any) -> Any:
        return params

    def update_targets(self, params: Any, targets: Any, gradient_steps: jax.Array) -> Any:
        moves = gradient_steps % self.target_update_every == 0
        moved = polyak_update(params, targets, self.tau)
        return jax.tree.map(lambda new, old: jnp.where(moves, new, old), moved, targets)

    def gradients(
        self, context: TrainContext, weights: Weights, batch: Sample, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, jax.Array]:
        del key  # the loss is deterministic
        networks: QNetworks = context.networks
        features, next_features = sample_features(networks, batch)
        next_values = networks.q(weights.target_params, next_features)
        chooser = networks.q(weights.params, next_features) if self.double else next_values
        next_value = losses.chosen(next_values, jnp.argmax(chooser, axis=-1))
        target = batch.reward + batch.discount * next_value

        def loss(params: dict[str, Any]) -> tuple[jax.Array, tuple[Metrics, jax.Array]]:
            values = losses.chosen(networks.q(params, features), batch.action)
            error = target - values
            q_loss = (batch.weight * losses.huber(error)).mean()
            return q_loss, ({"q_loss": q_loss, "q_mean": values.mean()}, error)

        gradients, (metrics, error) = jax.grad(loss, has_aux=True)(weights.params)
        return gradients, metrics, error
