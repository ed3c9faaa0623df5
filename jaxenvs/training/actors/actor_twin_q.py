"""A policy and two action-value critics, for SAC and TD3."""

import dataclasses
from typing import Any, Literal

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
    apply,
    extractor_for,
    policy_part,
)
from jaxenvs.training.distributions import (
    ActionDistribution,
    Categorical,
    Deterministic,
    SquashedGaussian,
)
from jaxenvs.training.extractors import MLP
from jaxenvs.training.layers import NarrowDense


@dataclasses.dataclass(frozen=True)
class ActorTwinQ(Actor):
    """A policy and an ensemble of critics, each with its own extractor.

    In a Box the policy is a squashed Gaussian or deterministic, and the critics take the
    observation and the action. In a Discrete space the policy is categorical, and the critics
    return the values of all actions.
    """

    policy: Literal["stochastic", "deterministic"] = "stochastic"
    extractor: Extractor = None  # None: the default for the space; vectors need none
    num_critics: int = 2
    hidden_sizes: tuple[int, ...] = (256, 256)  # after the extractor, in policy and critics
    activation: str = "relu"  # of these layers

    def build(self, observation_space: spaces.Space, action_space: spaces.Space) -> "TwinQNetworks":
        if self.policy not in ("stochastic", "deterministic"):
            raise TrainingError(
                f'ActorTwinQ got policy="{self.policy}"; expected "stochastic" or "deterministic".'
            )
        is_discrete = isinstance(action_space, spaces.Discrete)
        if not isinstance(action_space, spaces.Discrete | spaces.Box):
            raise TrainingError(
                f"ActorTwinQ got the action space {action_space!r}; expected a bounded Box or a"
                " Discrete space.  Use PPO with ActorCritic for other spaces."
            )
        if is_discrete and self.policy == "deterministic":
            raise TrainingError(
                f"a deterministic policy got the action space {action_space!r}; expected a bounded"
                ' Box.  Use SAC, whose policy is "stochastic", or DQN.'
            )
        check_hidden_sizes(self)
        seen, _ = policy_part(observation_space)
        extractor = extractor_for(seen, self.extractor, hidden_sizes=(), activation=self.activation)
        distribution: ActionDistribution
        if isinstance(action_space, spaces.Discrete):
            distribution = Categorical(action_space)
        elif self.policy == "stochastic":
            distribution = SquashedGaussian(action_space)
        else:
            distribution = Deterministic(action_space)
        hidden = MLP(tuple(self.hidden_sizes), self.activation)
        num_values = distribution.num_outputs if is_discrete else 1
        head = nn.Sequential([hidden, NarrowDense(distribution.num_outputs)])
        return TwinQNetworks(
            observation_space=observation_space,
            actor=Branch(seen, extractor, head),
            critic=_Critic(extractor, nn.Sequential([hidden, NarrowDense(num_values)])),
            num_critics=self.num_critics,
            distribution=distribution,
            is_discrete=is_discrete,
        )


NO_PARAMETERS: Any = None  # these distributions have only the network's outputs


class _Critic(nn.Module):
    extractor: nn.Module
    head: nn.Module

    def __call__(self, inputs: chex.ArrayTree, action: jax.Array | None) -> jax.Array:
        x = self.extractor(inputs)
        if action is not None:
            x = jnp.concatenate([x, action.reshape((x.shape[0], -1))], axis=-1)
        return self.head(x)


@dataclasses.dataclass(frozen=True, eq=False)
class TwinQNetworks(Networks):
    """The networks of an `ActorTwinQ`; `params` is {"actor": ..., "critic": ...}.

    The critics' weights have a leading axis with one row per critic.
    """

    observation_space: spaces.Space
    actor: Branch
    critic: _Critic
    num_critics: int
    distribution: ActionDistribution
    is_discrete: bool

    @property
    def action_size(self) -> int:
        """The number of elements of a raw action in a Box."""
        return jax.eval_shape(lambda: self.distribution.mode(self._zeros(1))).shape[-1]

    def init(self, key: chex.PRNGKey, features: Features) -> dict[str, Any]:
        actor_key, critic_key = jax.random.split(key)
        size = jax.tree.leaves(features.inputs)[0].shape[0]
        action = None if self.is_discrete else self.distribution.mode(self._zeros(size))
        keys = jax.random.split(critic_key, self.num_critics)

        def draw(key):
            return self.critic.init(key, features.inputs, action)

        actor = self.actor.init(actor_key, features.inputs)
        return {"actor": actor, "critic": jax.lax.map(draw, keys)}  # see `initial_params`

    def policy(self, params: Any, features: Features) -> jax.Array:
        """Returns the policy's outputs, the input of the distribution: float32[B, ...]."""
        _, outputs = self.actor.step(params["actor"], (), features.inputs)
        return self.distribution.masked(outputs, features.action_mask)

    def q(self, params: Any, features: Features, action: jax.Array | None = None) -> jax.Array:
        """Returns each critic's values: float32[critics, B], or [critics, B, n] for all actions."""

        def estimate(weights):
            return apply(self.critic, weights, features.inputs, action)

        values = jax.vmap(estimate)(params["critic"])
        return values if self.is_discrete else values[..., 0]

    def sample(
        self, params: Any, carry: Any, features: Features, key: chex.PRNGKey
    ) -> tuple[Any, jax.Array]:
        """Samples N raw actions."""
        outputs = self.policy(params, features)
        return carry, self.distribution.sample(outputs, NO_PARAMETERS, key)

    def mode(self, params: Any, carry: Any, features: Features) -> tuple[Any, jax.Array]:
        return carry, self.distribution.mode(self.policy(params, features))

    def random(self, features: Features, key: chex.PRNGKey) -> jax.Array:
        """Draws N raw actions uniformly from the allowed ones."""
        size = jax.tree.leaves(features.inputs)[0].shape[0]
        if self.is_discrete:
            logits = self.distribution.masked(self._zeros(size), features.action_mask)
            return self.distribution.sample(logits, NO_PARAMETERS, key)
        shape = self.distribution.mode(self._zeros(size)).shape
        return jax.random.uniform(key, shape, jnp.float32, -1.0, 1.0)

    def to_action(self, action: jax.Array) -> jax.Array:
        return self.distribution.to_action(action)

    def _zeros(self, size: int) -> jax.Array:
        return jnp.zeros((size, self.distribution.num_outputs), jnp.float32)
