"""The networks that act and judge."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.errors import TrainingError, closest
from jaxenvs.training.distributions import ActionDistribution, distribution_for

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "tanh": nn.tanh,
    "relu": nn.relu,
    "gelu": nn.gelu,
    "silu": nn.silu,
}


class MLP(nn.Module):
    """Dense layers with an activation between them, orthogonally initialised.

    `output_scale` is the gain of the last layer: small for an actor, so that it starts out close
    to uniform; 1 for a critic.
    """

    hidden_sizes: Sequence[int]
    num_outputs: int
    activation: Callable[[jax.Array], jax.Array] = nn.tanh
    output_scale: float = 1.0

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for size in self.hidden_sizes:
            x = nn.Dense(size, kernel_init=nn.initializers.orthogonal(2**0.5))(x)
            x = self.activation(x)
        init = nn.initializers.orthogonal(self.output_scale)
        return nn.Dense(self.num_outputs, kernel_init=init)(x)


@dataclasses.dataclass(frozen=True, eq=False)
class ActorCritic:
    """An actor and a critic that share no weights.

    `params` is {"actor": ..., "critic": ..., "spread": float32[num_parameters]}; the spread holds
    what the distribution learns apart from observations, such as a normal's log-deviations.
    """

    observation_space: spaces.Space
    actor: MLP
    critic: MLP
    distribution: ActionDistribution

    def flatten(self, observation: chex.ArrayTree) -> jax.Array:
        """N observations of any structure as float32[N, F]; discrete parts become one-hot."""
        return jax.vmap(self.observation_space.flatten)(observation).astype(jnp.float32)

    def init(self, key: chex.PRNGKey, features: jax.Array) -> dict[str, Any]:
        """Draws the initial weights for observations like `features`, float32[..., F]."""
        actor_key, critic_key = jax.random.split(key)
        return {
            "actor": self.actor.init(actor_key, features),
            "critic": self.critic.init(critic_key, features),
            "spread": jnp.zeros(self.distribution.num_parameters, jnp.float32),
        }

    def sample(self, params: dict[str, Any], features: jax.Array, key: chex.PRNGKey) -> jax.Array:
        """Draws raw actions."""
        outputs = _apply(self.actor, params["actor"], features)
        return self.distribution.sample(outputs, params["spread"], key)

    def mode(self, params: dict[str, Any], features: jax.Array) -> jax.Array:
        """The most likely raw actions."""
        return self.distribution.mode(_apply(self.actor, params["actor"], features))

    def log_prob_and_entropy(
        self, params: dict[str, Any], features: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """float32[...] each: log-probability of raw actions, and the policy's entropy."""
        outputs = _apply(self.actor, params["actor"], features)
        return self.distribution.log_prob_and_entropy(outputs, params["spread"], action)

    def value(self, params: dict[str, Any], features: jax.Array) -> jax.Array:
        """float32[...]: the critic's estimate of the return to come."""
        return _apply(self.critic, params["critic"], features)[..., 0]


def make_actor_critic(
    observation_space: spaces.Space,
    action_space: spaces.Space,
    *,
    hidden_sizes: Sequence[int],
    activation: str,
) -> ActorCritic:
    """Builds the two networks for the spaces of one instance.

    Raises:
        TrainingError: the activation is unknown, or no distribution fits the space.
    """
    if activation not in ACTIVATIONS:
        raise TrainingError(
            f'there is no activation "{activation}".{closest(activation, ACTIVATIONS)}'
            f"  Choose one of {', '.join(ACTIVATIONS)}."
        )
    distribution = distribution_for(action_space)
    sizes, function = tuple(hidden_sizes), ACTIVATIONS[activation]
    return ActorCritic(
        observation_space=observation_space,
        actor=MLP(sizes, distribution.num_outputs, function, output_scale=0.01),
        critic=MLP(sizes, 1, function),
        distribution=distribution,
    )


def _apply(network: nn.Module, params: Any, features: jax.Array) -> jax.Array:
    return network.apply(params, features)  # pyright: ignore[reportReturnType] nothing is mutable
