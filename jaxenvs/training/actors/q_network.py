"""The value of each of a few actions: what DQN learns."""

import dataclasses
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.training._validation import check_hidden_sizes
from jaxenvs.training.actors.base import (
    Actor,
    Branch,
    Extractor,
    Features,
    Networks,
    extractor_for,
    without_mask,
)
from jaxenvs.training.distributions import Categorical
from jaxenvs.training.head import Head


@dataclasses.dataclass(frozen=True)
class QNetwork(Actor):
    """Values of all actions of a Discrete space; the best one is taken."""

    extractor: Extractor = None  # None takes what suits the space
    dueling: bool = False  # the value of the state and the advantage of each action, summed
    hidden_sizes: tuple[int, ...] = (128, 128)  # of the extractor that is chosen for vectors
    activation: str = "relu"  # its

    def build(self, observation_space: spaces.Space, action_space: spaces.Space) -> "QNetworks":
        if not isinstance(action_space, spaces.Discrete):
            raise TrainingError(
                f"QNetwork got the action space {action_space!r}; it has a value for each action of"
                " a Discrete space.  Take SAC or TD3 with ActorTwinQ for a Box, or PPO with"
                " ActorCritic."
            )
        check_hidden_sizes(self)
        seen, _ = without_mask(observation_space)
        settings = {"hidden_sizes": tuple(self.hidden_sizes), "activation": self.activation}
        head = Dueling(action_space.n) if self.dueling else Head(action_space.n)
        return QNetworks(
            observation_space=observation_space,
            distribution=Categorical(action_space),
            branch=Branch(seen, extractor_for(seen, self.extractor, **settings), head),
        )


class Dueling(nn.Module):
    """The value of a state plus the advantage of each action, whose mean is taken away.

    Source: Z. Wang et al., Dueling Network Architectures for Deep Reinforcement Learning, 2016,
    equation 9.
    """

    num_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        value = Head(1, name="value")(x)
        advantage = Head(self.num_actions, name="advantage")(x)
        return value + advantage - advantage.mean(axis=-1, keepdims=True)


@dataclasses.dataclass(frozen=True, eq=False)
class QNetworks(Networks):
    """`QNetwork`, built; `params` is {"q": ...}."""

    observation_space: spaces.Space
    distribution: Categorical
    branch: Branch

    def init(self, key: chex.PRNGKey, features: Features) -> dict[str, Any]:
        return {"q": self.branch.init(key, features.inputs)}

    def q(self, params: Any, features: Features) -> jax.Array:
        """float32[B, n]: the values of all actions; hugely negative where not allowed."""
        _, values = self.branch.step(params["q"], (), features.inputs)
        return self.distribution.masked(values, features.action_mask)

    def mode(self, params: Any, carry: Any, features: Features) -> tuple[Any, jax.Array]:
        return carry, jnp.argmax(self.q(params, features), axis=-1).astype(jnp.int32)

    def random(self, features: Features, key: chex.PRNGKey) -> jax.Array:
        """int32[N]: actions drawn uniformly among those allowed."""
        size = jax.tree.leaves(features.inputs)[0].shape[0]
        logits = jnp.zeros((size, self.distribution.num_outputs), jnp.float32)
        logits = self.distribution.masked(logits, features.action_mask)
        return self.distribution.sample(logits, jnp.zeros(0), key)

    def to_action(self, action: jax.Array) -> jax.Array:
        return self.distribution.to_action(action)
