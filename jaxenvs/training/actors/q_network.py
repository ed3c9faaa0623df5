"""Q-networks, for DQN and PQN."""

import dataclasses
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.training._validation import check_hidden_sizes
from jaxenvs.training.actors.actor import (
    Actor,
    Branch,
    Extractor,
    Features,
    Networks,
    extractor_for,
    policy_part,
)
from jaxenvs.training.distributions import Categorical
from jaxenvs.training.layers import NarrowDense


@dataclasses.dataclass(frozen=True)
class QNetwork(Actor):
    """A network for the values of all actions of a Discrete space; the policy takes the best."""

    extractor: Extractor = None  # None: the default for the space
    dueling: bool = False  # sums the value of the state and the advantage of each action
    hidden_sizes: tuple[int, ...] = (128, 128)  # of the default extractor for vectors
    activation: str = "relu"  # of the default extractor for vectors
    layer_norm: bool = False  # normalize the default extractor's layers, except ImpalaCNN's

    def build(self, observation_space: spaces.Space, action_space: spaces.Space) -> "QNetworks":
        if not isinstance(action_space, spaces.Discrete):
            raise TrainingError(
                f"QNetwork got the action space {action_space!r}; expected a Discrete space.  Use"
                " SAC or TD3 with ActorTwinQ for a Box, or PPO with ActorCritic."
            )
        check_hidden_sizes(self)
        seen, _ = policy_part(observation_space)
        settings = {
            "hidden_sizes": tuple(self.hidden_sizes),
            "activation": self.activation,
            "layer_norm": self.layer_norm,
        }
        head = Dueling(action_space.n) if self.dueling else NarrowDense(action_space.n)
        return QNetworks(
            observation_space=observation_space,
            distribution=Categorical(action_space),
            branch=Branch(seen, extractor_for(seen, self.extractor, **settings), head),
        )


class Dueling(nn.Module):
    """A head that adds the state's value to the centered advantage of each action.

    Source: Z. Wang et al., Dueling Network Architectures for Deep Reinforcement Learning, 2016,
    equation 9.
    """

    num_actions: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        value = NarrowDense(1, name="value")(x)
        advantage = NarrowDense(self.num_actions, name="advantage")(x)
        return value + advantage - advantage.mean(axis=-1, keepdims=True)


@dataclasses.dataclass(frozen=True, eq=False)
class QNetworks(Networks):
    """The networks of a `QNetwork`; `params` is {"q": ...}."""

    observation_space: spaces.Space
    distribution: Categorical
    branch: Branch

    def init(self, key: chex.PRNGKey, features: Features) -> dict[str, Any]:
        return {"q": self.branch.init(key, features.inputs)}

    def q(self, params: Any, features: Features) -> jax.Array:
        """Returns the values of all actions, float32[B, n]; masked ones are very negative."""
        _, values = self.branch.step(params["q"], (), features.inputs)
        return self.distribution.masked(values, features.action_mask)

    def value(self, params: Any, features: Features) -> jax.Array:
        """Returns the values of the best actions, float32[B]."""
        return self.q(params, features).max(axis=-1)

    def value_after(self, params: Any, carries: Any, features: Features) -> jax.Array:
        """Returns `value`, because there is no memory."""
        del carries  # ()
        return self.value(params, features)

    def mode(self, params: Any, carry: Any, features: Features) -> tuple[Any, jax.Array]:
        return carry, jnp.argmax(self.q(params, features), axis=-1).astype(jnp.int32)

    def random(self, features: Features, key: chex.PRNGKey) -> jax.Array:
        """Draws actions uniformly from the allowed ones, int32[N]."""
        size = jax.tree.leaves(features.inputs)[0].shape[0]
        logits = jnp.zeros((size, self.distribution.num_outputs), jnp.float32)
        logits = self.distribution.masked(logits, features.action_mask)
        return self.distribution.sample(logits, jnp.zeros(0), key)

    def to_action(self, action: jax.Array) -> jax.Array:
        return self.distribution.to_action(action)
