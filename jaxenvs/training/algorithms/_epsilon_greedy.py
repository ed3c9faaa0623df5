"""The base class of algorithms that explore by random actions."""

import chex
import jax
import jax.numpy as jnp

from jaxenvs.training.actors.actor import Features
from jaxenvs.training.actors.q_network import QNetworks
from jaxenvs.training.algorithms.algorithm import Algorithm, BehaviorPolicy, TrainContext, steps_of


class EpsilonGreedyAlgorithm(Algorithm):
    """An algorithm with a Q-network whose fraction of random actions falls linearly.

    A subclass has the fields below.
    """

    actor_type = QNetworks

    initial_epsilon: float
    final_epsilon: float
    exploration_steps: int

    def explore(
        self, context: TrainContext, behavior: BehaviorPolicy, features: Features, key: chex.PRNGKey
    ) -> jax.Array:
        """Returns N actions, int32[N]: each the best one, or with probability epsilon any."""
        _, best = context.networks.mode(behavior.params, (), features)
        coin_key, random_key = jax.random.split(key)
        explores = jax.random.uniform(coin_key, best.shape, jnp.float32) < self.epsilon(
            steps_of(context, behavior.updates)
        )
        return jnp.where(explores, context.networks.random(features, random_key), best)

    def epsilon(self, steps: jax.Array) -> jax.Array:
        """Returns the fraction of random actions after `steps` environment steps, float32[]."""
        done = jnp.minimum(steps / self.exploration_steps, 1.0)
        return self.initial_epsilon + done * (self.final_epsilon - self.initial_epsilon)
