"""Soft actor-critic for Box and Discrete spaces."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from jaxenvs import struct
from jaxenvs.training.actors.actor import Features, Networks
from jaxenvs.training.actors.actor_twin_q import NO_PARAMETERS, ActorTwinQ, TwinQNetworks
from jaxenvs.training.algorithms._off_policy import OffPolicyAlgorithm, ReplayRatio, sample_features
from jaxenvs.training.algorithms.algorithm import (
    BehaviorPolicy,
    Metrics,
    TrainContext,
    polyak_update,
)
from jaxenvs.training.distributions import Categorical
from jaxenvs.training.optimizers import LearningRate, adam
from jaxenvs.training.ranges import Count, Fraction, Positive, Steps
from jaxenvs.training.types import Sample, Weights


@struct.pytree_dataclass
class SAC(OffPolicyAlgorithm):
    """Soft actor-critic: a policy that maximizes reward plus entropy.

    The temperature is the weight of the entropy. It is learned so that the policy's entropy
    approaches `target_entropy`, and is part of the weights: params["log_temperature"].

    Source: T. Haarnoja et al., Soft Actor-Critic Algorithms and Applications, 2018; for discrete
    actions P. Christodoulou, Soft Actor-Critic for Discrete Action Settings, 2019.
    """

    learning_rate: LearningRate = 3e-4  # of Adam, for the policy
    critic_learning_rate: LearningRate | None = None  # None: the policy's
    temperature_learning_rate: LearningRate | None = None  # None: the policy's
    gamma: Fraction = 0.99  # discount per step
    tau: Fraction = 0.005  # how far the target critics move after each gradient step
    initial_temperature: Positive = 1.0
    target_entropy: float | None = None  # None: -1 per number of a Box; for Discrete see below
    target_entropy_ratio: Fraction = 0.5  # for Discrete, the fraction of the maximum entropy
    learning_starts: Steps = 1_000  # environment steps with random actions before learning
    batch_size: Count = struct.static(256)
    replay_ratio: ReplayRatio = struct.static(1.0)  # gradient steps per environment step
    learn_temperature: bool = struct.static(True)  # False keeps it constant

    actor_type = TwinQNetworks

    def default_actor(self) -> ActorTwinQ:
        return ActorTwinQ()

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        del num_updates  # no annealing
        rates = {
            "actor": self.learning_rate,
            "critic": _value_or_default(self.critic_learning_rate, self.learning_rate),
            "log_temperature": _value_or_default(
                self.temperature_learning_rate, self.learning_rate
            ),
        }
        return optax.partition(
            {name: adam(rate) for name, rate in rates.items()}, {name: name for name in rates}
        )

    def initial_params(self, networks: Networks, key: chex.PRNGKey, features: Features) -> Any:
        log_temperature = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        weights = super().initial_params(networks, key, features)
        return {**weights, "log_temperature": log_temperature}

    def initial_targets(self, params: Any) -> Any:
        return {"critic": params["critic"]}

    def update_targets(self, params: Any, targets: Any, gradient_steps: jax.Array) -> Any:
        return polyak_update({"critic": params["critic"]}, targets, self.tau)

    def explore(
        self, context: TrainContext, behavior: BehaviorPolicy, features: Features, key: chex.PRNGKey
    ) -> jax.Array:
        return context.networks.sample(behavior.params, (), features, key)[1]

    def gradients(
        self, context: TrainContext, weights: Weights, batch: Sample, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, jax.Array]:
        networks: TwinQNetworks = context.networks
        next_key, policy_key = jax.random.split(key)
        features, next_features = sample_features(networks, batch)
        params, targets = weights.params, weights.target_params
        temperature = jnp.exp(params["log_temperature"])

        next_value, next_entropy = _value_and_entropy(
            networks, params, targets, next_features, next_key
        )
        target = batch.reward + batch.discount * (next_value + temperature * next_entropy)

        def critic_loss(critic: Any) -> tuple[jax.Array, jax.Array]:
            values = _action_values(networks, {"critic": critic}, features, batch.action)
            error = target[None] - values
            return 0.5 * (batch.weight * (error**2).sum(0)).mean(), error

        def actor_loss(actor: Any) -> tuple[jax.Array, jax.Array]:
            value, entropy = _value_and_entropy(
                networks, {"actor": actor}, params, features, policy_key
            )
            return -(value + temperature * entropy).mean(), entropy.mean()

        (q_loss, error), critic = jax.value_and_grad(critic_loss, has_aux=True)(params["critic"])
        (policy_loss, entropy), actor = jax.value_and_grad(actor_loss, has_aux=True)(
            params["actor"]
        )
        surplus = entropy - self._target_entropy(networks)
        gradients = {
            "actor": actor,
            "critic": critic,
            # The gradient of log_temperature * surplus.
            "log_temperature": surplus if self.learn_temperature else jnp.zeros_like(surplus),
        }
        metrics = {
            "q_loss": q_loss,
            "policy_loss": policy_loss,
            "entropy": entropy,
            "temperature": temperature,
        }
        return gradients, metrics, jnp.abs(error).mean(0)

    def _target_entropy(self, networks: TwinQNetworks) -> Any:
        if self.target_entropy is not None:
            return self.target_entropy
        if networks.is_discrete:
            largest = jnp.log(jnp.float32(networks.distribution.num_outputs))
            return self.target_entropy_ratio * largest
        return -float(networks.action_size)


def _value_and_entropy(
    networks: TwinQNetworks, policy: Any, critics: Any, features: Features, key: chex.PRNGKey
) -> tuple[jax.Array, jax.Array]:
    """Returns the policy's value by the lower critic, and its entropy, float32[B] each.

    Both are exact in a Discrete space, and estimated from one sampled action in a Box.
    """
    outputs, distribution = networks.policy(policy, features), networks.distribution
    if isinstance(distribution, Categorical):
        log_probs = distribution.log_probs(outputs)
        probs = jnp.exp(log_probs)
        values = networks.q(critics, features).min(axis=0)
        return (probs * values).sum(-1), -(probs * log_probs).sum(-1)
    action, log_prob = distribution.sample_and_log_prob(outputs, NO_PARAMETERS, key)
    return networks.q(critics, features, action).min(axis=0), -log_prob


def _action_values(
    networks: TwinQNetworks, critics: Any, features: Features, action: Any
) -> jax.Array:
    """Returns the values of the actions that were taken, float32[critics, B]."""
    if not networks.is_discrete:
        return networks.q(critics, features, action)
    values = networks.q(critics, features)
    return jnp.take_along_axis(values, action[None, :, None], axis=-1)[..., 0]


def _value_or_default(value: Any, default: Any) -> Any:
    return default if value is None else value
