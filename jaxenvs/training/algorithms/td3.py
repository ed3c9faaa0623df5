"""Twin delayed deep deterministic policy gradient."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax

from jaxenvs import loops, struct
from jaxenvs.errors import TrainingError
from jaxenvs.training.actors.actor import Features
from jaxenvs.training.actors.actor_twin_q import ActorTwinQ, TwinQNetworks
from jaxenvs.training.algorithms._off_policy import OffPolicyAlgorithm, ReplayRatio, sample_features
from jaxenvs.training.algorithms.algorithm import (
    BehaviorPolicy,
    Metrics,
    TrainContext,
    polyak_update,
)
from jaxenvs.training.distributions import Deterministic
from jaxenvs.training.optimizers import LearningRate, adam, with_packed_weights
from jaxenvs.training.ranges import Count, Fraction, NotNegative, Steps
from jaxenvs.training.storages.storage import Storage
from jaxenvs.training.types import Sample, Weights


@struct.pytree_dataclass
class TD3(OffPolicyAlgorithm):
    """TD3: a deterministic policy, evaluated by the lower of two critics and updated less often.

    Noise is scaled to the action space: -1 is `low` and 1 is `high`.

    Source: S. Fujimoto et al., Addressing Function Approximation Error in Actor-Critic Methods,
    2018.
    """

    learning_rate: LearningRate = 1e-3  # of Adam, for policy and critics
    gamma: Fraction = 0.99  # discount per step
    tau: Fraction = 0.005  # how far the targets move after each update of the policy
    exploration_noise: NotNegative = 0.1  # standard deviation of the noise on actions
    target_noise: NotNegative = 0.2  # standard deviation of the noise on target actions
    target_noise_clip: NotNegative = 0.5  # largest noise on target actions
    learning_starts: Steps = 1_000  # environment steps with random actions before learning
    batch_size: Count = struct.static(256)
    replay_ratio: ReplayRatio = struct.static(1.0)  # gradient steps per environment step
    policy_delay: Count = struct.static(2)  # gradient steps of the critics per policy step

    actor_type = TwinQNetworks

    def default_actor(self) -> ActorTwinQ:
        return ActorTwinQ(policy="deterministic")

    def check(self, networks: Any, storage: Storage) -> None:
        super().check(networks, storage)
        if not isinstance(networks.distribution, Deterministic):
            raise TrainingError(
                "TD3 got an actor with a stochastic policy; expected a deterministic one."
                '  Pass ActorTwinQ(policy="deterministic"), or use SAC.'
            )

    def optimizer(self, num_updates: int) -> optax.GradientTransformation:
        del num_updates  # no annealing
        delayed = optax.conditionally_mask(
            with_packed_weights(optax.scale_by_adam()), lambda step, **_: self._updates_policy(step)
        )
        # A schedule also counts the gradient steps that do not update the policy.
        actor = optax.chain(delayed, optax.scale_by_learning_rate(self.learning_rate))
        labels = {"actor": "actor", "critic": "critic"}
        return optax.partition({"actor": actor, "critic": adam(self.learning_rate)}, labels)

    def initial_targets(self, params: Any) -> Any:
        return params

    def update_targets(self, params: Any, targets: Any, gradient_steps: jax.Array) -> Any:
        moved, moves = (
            polyak_update(params, targets, self.tau),
            self._updates_policy(gradient_steps - 1),
        )
        return jax.tree.map(lambda new, old: jnp.where(moves, new, old), moved, targets)

    def explore(
        self, context: TrainContext, behavior: BehaviorPolicy, features: Features, key: chex.PRNGKey
    ) -> jax.Array:
        _, action = context.networks.mode(behavior.params, (), features)
        noise = self.exploration_noise * jax.random.normal(key, action.shape, action.dtype)
        return jnp.clip(action + noise, -1.0, 1.0)

    def gradients(
        self, context: TrainContext, weights: Weights, batch: Sample, key: chex.PRNGKey
    ) -> tuple[Any, Metrics, jax.Array]:
        networks: TwinQNetworks = context.networks
        features, next_features = sample_features(networks, batch)
        params, targets = weights.params, weights.target_params

        _, next_action = networks.mode(targets, (), next_features)
        noise = self.target_noise * jax.random.normal(key, next_action.shape, next_action.dtype)
        noise = jnp.clip(noise, -self.target_noise_clip, self.target_noise_clip)
        next_action = jnp.clip(next_action + noise, -1.0, 1.0)
        next_value = networks.q(targets, next_features, next_action).min(axis=0)
        target = batch.reward + batch.discount * next_value

        def critic_loss(critic: Any) -> tuple[jax.Array, jax.Array]:
            error = target[None] - networks.q({"critic": critic}, features, batch.action)
            return 0.5 * (batch.weight * (error**2).sum(0)).mean(), error

        def actor_loss(actor: Any) -> jax.Array:
            _, action = networks.mode({"actor": actor}, (), features)
            return -networks.q(params, features, action)[0].mean()

        (q_loss, error), critic = jax.value_and_grad(critic_loss, has_aux=True)(params["critic"])
        policy_loss, actor = loops.cond(
            self._updates_policy(weights.gradient_steps),
            jax.value_and_grad(actor_loss),
            lambda actor: (jnp.float32(jnp.nan), jax.tree.map(jnp.zeros_like, actor)),
            params["actor"],
        )
        metrics = {"q_loss": q_loss, "policy_loss": policy_loss}
        return {"actor": actor, "critic": critic}, metrics, jnp.abs(error).mean(0)

    def _updates_policy(self, gradient_steps: Any) -> Any:
        """Returns whether the gradient step after `gradient_steps` also updates the policy."""
        return gradient_steps % self.policy_delay == self.policy_delay - 1
