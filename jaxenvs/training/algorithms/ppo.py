"""Proximal policy optimisation: its hyper-parameters, its loss, its optimiser."""

import dataclasses
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp
import optax

from jaxenvs import struct
from jaxenvs.errors import TrainingError, closest
from jaxenvs.training.networks import ActorCritic


@struct.pytree_dataclass
class PPO:
    """Hyper-parameters: a pytree whose numbers are leaves, so that a sweep is a `vmap`.

    The static ones decide shapes or control flow; another value of theirs compiles anew.
    """

    learning_rate: float = 2.5e-4  # Adam's, at the start if `anneal`
    gamma: float = 0.99  # discount per step
    gae_lambda: float = 0.95  # 0 trusts the critic after one step, 1 the sampled rewards
    clip: float = 0.2  # how far the probability ratio may move
    value_coefficient: float = 0.5  # weight of the critic's loss
    entropy_coefficient: float = 0.01  # weight of the bonus for exploring
    max_gradient_norm: float = 0.5  # gradients are scaled down to this norm
    adam_epsilon: float = 1e-5
    epochs: int = struct.static(4)  # passes over each unroll
    minibatches: int = struct.static(4)  # gradient steps a pass
    anneal: bool = struct.static(True)  # learning rate falls linearly to 0 over the training
    clip_value: bool = struct.static(True)  # the critic, too, moves by at most `clip`
    normalise_observations: bool = struct.static(False)  # by their running mean and deviation
    normalise_rewards: bool = struct.static(False)  # by the deviation of discounted returns
    hidden_sizes: tuple[int, ...] = struct.static((64, 64))  # of actor and critic alike
    activation: str = struct.static("tanh")  # a name in networks.ACTIVATIONS

    def replace(self, **changes: Any) -> Self:
        """Returns a copy with other hyper-parameters.

        Raises:
            TrainingError: there is no such hyper-parameter; the message names the closest.
        """
        names = [field.name for field in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        for name in changes:
            if name not in names:
                raise TrainingError(f'PPO has no hyper-parameter "{name}".{closest(name, names)}')
        return dataclasses.replace(self, **changes)  # pyright: ignore[reportType]

    def optimiser(self, num_gradient_steps: int) -> optax.GradientTransformation:
        """Adam behind a clip of the gradient's norm, for so many steps in all."""
        schedule = self.learning_rate
        if self.anneal:
            schedule = optax.linear_schedule(self.learning_rate, 0.0, num_gradient_steps)
        return optax.chain(
            optax.clip_by_global_norm(self.max_gradient_norm),
            optax.adam(schedule, eps=self.adam_epsilon),
        )


@chex.dataclass(frozen=True)
class Batch:
    """What the loss reads; B transitions in any order."""

    features: jax.Array  # float32[B, F], flat and normalised observations
    action: jax.Array  # [B, ...], raw actions
    log_prob: jax.Array  # float32[B], under the policy that acted
    value: jax.Array  # float32[B], the critic before the update
    advantage: jax.Array  # float32[B]
    target: jax.Array  # float32[B], what the critic should have said


def ppo_loss(
    params: dict[str, Any], network: ActorCritic, ppo: PPO, batch: Batch
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The clipped surrogate loss on B transitions, advantages normalised among them.

    Returns:
        float32[], and a dict of float32[]: policy_loss, value_loss, entropy, approx_kl (the low
        variance estimate of J. Schulman, Approximating KL Divergence, 2020), clip_fraction.

    Source: J. Schulman et al., Proximal Policy Optimization Algorithms, 2017, equations 7 and 9;
    the clipped value loss follows OpenAI Baselines.
    """
    log_prob, entropy = network.log_prob_and_entropy(params, batch.features, batch.action)
    log_ratio = log_prob - batch.log_prob
    ratio = jnp.exp(log_ratio)
    advantage = batch.advantage - batch.advantage.mean()
    advantage = advantage / (batch.advantage.std() + 1e-8)
    clipped_ratio = jnp.clip(ratio, 1 - ppo.clip, 1 + ppo.clip)
    policy_loss = -jnp.minimum(ratio * advantage, clipped_ratio * advantage).mean()

    value = network.value(params, batch.features)
    error = (value - batch.target) ** 2
    if ppo.clip_value:
        clipped_value = batch.value + jnp.clip(value - batch.value, -ppo.clip, ppo.clip)
        error = jnp.maximum(error, (clipped_value - batch.target) ** 2)
    value_loss = 0.5 * error.mean()

    loss = policy_loss + ppo.value_coefficient * value_loss
    loss -= ppo.entropy_coefficient * entropy.mean()
    return loss, {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy.mean(),
        "approx_kl": (ratio - 1 - log_ratio).mean(),
        "clip_fraction": (jnp.abs(ratio - 1) > ppo.clip).astype(jnp.float32).mean(),
    }
