"""Actor-critic networks, for PPO, A2C and VPG."""

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
    without_mask,
)
from jaxenvs.training.distributions import ActionDistribution, distribution_for
from jaxenvs.training.layers import NarrowDense


@dataclasses.dataclass(frozen=True)
class ActorCritic(Actor):
    """A stochastic policy and a state-value critic.

    In Discrete, MultiDiscrete and MultiBinary spaces the policy outputs logits, and in a Box a
    diagonal Gaussian. An entry "action_mask" of Dict observations masks Discrete and MultiDiscrete
    actions.
    """

    extractor: Extractor = None  # of the policy; None: the default for the space
    critic_extractor: Extractor = None  # None: like the policy's, with separate weights
    memory: nn.RNNCellBase | None = None  # a cell such as flax.linen.GRUCell(128)
    shared: bool = False  # policy and critic are two heads on one extractor and memory
    hidden_sizes: tuple[int, ...] = (64, 64)  # of the default extractor for vectors
    activation: str = "tanh"  # of the default extractor for vectors

    def build(
        self, observation_space: spaces.Space, action_space: spaces.Space
    ) -> "ActorCriticNetworks":
        if self.shared and self.critic_extractor is not None:
            raise TrainingError(
                "ActorCritic got shared=True and a critic_extractor; a shared critic uses the"
                " policy's extractor.  Omit critic_extractor."
            )
        check_hidden_sizes(self)
        is_cell = hasattr(self.memory, "initialize_carry") and not isinstance(self.memory, type)
        if self.memory is not None and not is_cell:
            raise TrainingError(
                f"ActorCritic got memory={self.memory!r:.60}; expected a flax cell, such as"
                " flax.linen.GRUCell(64)."
            )
        seen, _ = without_mask(observation_space)
        settings = {"hidden_sizes": tuple(self.hidden_sizes), "activation": self.activation}
        distribution = distribution_for(action_space)
        policy_head, value_head = _head(distribution.num_outputs, 0.01), _head(1, 1.0)
        head = _TwoHeads(policy_head, value_head) if self.shared else policy_head
        extractor = extractor_for(seen, self.extractor, **settings)
        critic = None
        if not self.shared:
            own = self.critic_extractor
            chosen = extractor if own is None else extractor_for(seen, own, **settings)
            critic = Branch(seen, chosen, value_head, self.memory)
        return ActorCriticNetworks(
            observation_space=observation_space,
            actor=Branch(seen, extractor, head, self.memory),
            critic=critic,
            distribution=distribution,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class ActorCriticNetworks(Networks):
    """The networks of an `ActorCritic`.

    `params` is {"actor": ..., "critic": ..., "spread": float32[num_parameters]}, without "critic"
    if the critic's head is on the actor's branch. "spread" has the parameters of the distribution
    that do not depend on observations, such as the log standard deviations of a Gaussian.
    """

    observation_space: spaces.Space
    actor: Branch
    critic: Branch | None  # None: the actor's branch has both heads
    distribution: ActionDistribution

    @property
    def is_recurrent(self) -> bool:
        return self.actor.memory is not None

    def init(self, key: chex.PRNGKey, features: Features) -> dict[str, Any]:
        keys, inputs = jax.random.split(key), features.inputs
        spread = jnp.zeros(self.distribution.num_parameters, jnp.float32)
        if self.critic is None:
            return {"actor": self.actor.init(keys[0], inputs), "spread": spread}
        trunks: Any
        if self.critic.extractor is self.actor.extractor:
            # The trunks are equal, so one loop draws both, which halves the compile time.
            both = jax.lax.map(lambda key: self.actor.init_trunk(key, inputs), keys)
            trunks = [jax.tree.map(lambda x, i=i: x[i], both) for i in range(2)]
        else:
            branches = (self.actor, self.critic)
            trunks = [each.init_trunk(keys[i], inputs) for i, each in enumerate(branches)]
        return {
            "actor": self.actor.init_head(*trunks[0]),
            "critic": self.critic.init_head(*trunks[1]),
            "spread": spread,
        }

    def initial_carry(self, num_envs: int) -> Any:
        if not self.is_recurrent:
            return ()
        carry = {"actor": self.actor.initial_carry(num_envs)}
        if self.critic is not None:
            carry["critic"] = self.critic.initial_carry(num_envs)
        return carry

    def to_action(self, action: jax.Array) -> jax.Array:
        return self.distribution.to_action(action)

    def sample(
        self, params: Any, carry: Any, features: Features, key: chex.PRNGKey
    ) -> tuple[Any, jax.Array]:
        """Returns the carry and N sampled raw actions."""
        carry, outputs = self._act(params, carry, features)
        return carry, self.distribution.sample(outputs, params["spread"], key)

    def mode(self, params: Any, carry: Any, features: Features) -> tuple[Any, jax.Array]:
        carry, outputs = self._act(params, carry, features)
        return carry, self.distribution.mode(outputs)

    def log_prob_and_entropy(
        self, params: Any, features: Features, action: jax.Array, memory: Any = None
    ) -> tuple[jax.Array, jax.Array]:
        """Returns the log-probability of raw actions and the policy's entropy.

        Feed-forward networks take [B, ...] and return float32[B]. Recurrent networks take sequences
        [T, N, ...] and return float32[T, N]; `memory` is the pair of the carry at the start and
        `first`, bool[T, N].
        """
        outputs = self._policy(params, features, memory)
        return self.distribution.log_prob_and_entropy(outputs, params["spread"], action)

    def value(self, params: Any, features: Features, memory: Any = None) -> jax.Array:
        """Returns the critic's values, with the shapes of `log_prob_and_entropy`."""
        return self.value_and_carry(params, features, memory)[0]

    def value_and_carry(
        self, params: Any, features: Features, memory: Any = None
    ) -> tuple[jax.Array, Any]:
        """Returns `value` and the carry after each step of a sequence."""
        name = "actor" if self.critic is None else "critic"
        branch = self.actor if self.critic is None else self.critic
        carries, outputs = _run_branch(branch, params[name], features.inputs, memory, name)
        if self.critic is None:
            _, outputs = outputs
        return outputs[..., 0], {name: carries}

    def value_after(self, params: Any, carries: Any, features: Features) -> jax.Array:
        """Returns the critic's values, float32[B], of observations after `carries`, [B, ...]."""
        name = "actor" if self.critic is None else "critic"
        branch = self.actor if self.critic is None else self.critic
        carry = carries[name] if self.is_recurrent else ()
        _, outputs = branch.step(params[name], carry, features.inputs)
        if self.critic is None:
            _, outputs = outputs
        return outputs[..., 0]

    def _act(self, params: Any, carry: Any, features: Features) -> tuple[Any, jax.Array]:
        if not self.is_recurrent:
            return carry, self._policy(params, features, None)
        after, outputs = self.actor.step(params["actor"], carry["actor"], features.inputs)
        carry = {**carry, "actor": after}
        if self.critic is None:
            outputs, _ = outputs
        else:  # keeps the critic's memory up to date, although only learning needs its values
            carry["critic"], _ = self.critic.step(
                params["critic"], carry["critic"], features.inputs
            )
        return carry, self.distribution.masked(outputs, features.action_mask)

    def _policy(self, params: Any, features: Features, memory: Any) -> jax.Array:
        _, outputs = _run_branch(self.actor, params["actor"], features.inputs, memory, "actor")
        if self.critic is None:
            outputs, _ = outputs
        return self.distribution.masked(outputs, features.action_mask)


class _TwoHeads(nn.Module):
    policy: nn.Module
    value: nn.Module

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        return self.policy(x), self.value(x)


def _head(num_outputs: int, scale: float) -> NarrowDense:
    return NarrowDense(num_outputs, kernel_init=nn.initializers.orthogonal(scale))


def _run_branch(
    branch: Branch, params: Any, inputs: Any, memory: Any, name: str
) -> tuple[Any, Any]:
    if memory is None:
        return branch.step(params, (), inputs)
    carry, first = memory
    return branch.unroll(params, carry[name], inputs, first)
