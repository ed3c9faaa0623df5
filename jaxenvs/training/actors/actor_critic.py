"""Actor-critic networks, for PPO, A2C and VPG."""

import dataclasses
import math
from typing import Any

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxenvs import spaces
from jaxenvs.errors import TrainingError
from jaxenvs.multi_agent import AGENT, MASK
from jaxenvs.training._validation import check_hidden_sizes
from jaxenvs.training.actors.actor import (
    Actor,
    Branch,
    BranchPerAgent,
    Extractor,
    Features,
    Networks,
    critic_space_of,
    extractor_for,
    has_mask,
    policy_part,
    without_entries,
)
from jaxenvs.training.distributions import ActionDistribution, distribution_for
from jaxenvs.training.layers import NarrowDense


@dataclasses.dataclass(frozen=True)
class ActorCritic(Actor):
    """A stochastic policy and a state-value critic.

    In Discrete, MultiDiscrete and MultiBinary spaces the policy outputs logits, and in a Box a
    diagonal Gaussian. An entry "action_mask" of Dict observations masks Discrete and MultiDiscrete
    actions. If it is over the combinations of MultiDiscrete choices, each has a logit. An entry
    "critic_observation" is the input of the critic instead of all other entries.
    """

    extractor: Extractor = None  # of the policy; None: the default for the space
    critic_extractor: Extractor = None  # None: like the policy's, with separate weights
    memory: nn.RNNCellBase | None = None  # a cell such as flax.linen.GRUCell(128)
    shared: bool = False  # policy and critic are two heads on one extractor and memory
    per_agent: bool = False  # own weights for each agent, see `IndependentAgents(agent_id=True)`
    hidden_sizes: tuple[int, ...] = (64, 64)  # of the default extractor for vectors
    activation: str = "tanh"  # of the default extractor for vectors
    initial_std: float = 1.0  # of the Gaussian at the start; 1 is half of a bounded Box

    def build(
        self, observation_space: spaces.Space, action_space: spaces.Space
    ) -> "ActorCriticNetworks":
        if self.shared and self.critic_extractor is not None:
            raise TrainingError(
                "ActorCritic got shared=True and a critic_extractor; a shared critic uses the"
                " policy's extractor.  Omit critic_extractor."
            )
        check_hidden_sizes(self)
        if not self.initial_std > 0:
            raise TrainingError(
                f"ActorCritic got initial_std={self.initial_std}; expected a positive number."
            )
        is_cell = hasattr(self.memory, "initialize_carry") and not isinstance(self.memory, type)
        if self.memory is not None and not is_cell:
            raise TrainingError(
                f"ActorCritic got memory={self.memory!r:.60}; expected a flax cell, such as"
                " flax.linen.GRUCell(64)."
            )
        seen, _ = policy_part(observation_space)
        critic_space = critic_space_of(observation_space)
        if self.shared and critic_space is not None:
            raise TrainingError(
                'ActorCritic got shared=True and observations with "critic_observation"; a shared'
                " critic sees what the policy sees.  Omit shared."
            )
        num_agents = None
        if self.per_agent:
            num_agents, seen = _split_agent(seen)
        settings = {"hidden_sizes": tuple(self.hidden_sizes), "activation": self.activation}
        mask = observation_space.spaces[MASK] if has_mask(observation_space) else None
        distribution = distribution_for(action_space, mask)
        policy_head, value_head = _head(distribution.num_outputs, 0.01), _head(1, 1.0)
        head = _TwoHeads(policy_head, value_head) if self.shared else policy_head
        extractor = extractor_for(seen, self.extractor, **settings)
        critic = None
        if not self.shared:
            own, space = self.critic_extractor, seen if critic_space is None else critic_space
            same = own is None and space == seen
            chosen = extractor if same else extractor_for(space, own, **settings)
            critic = Branch(space, chosen, value_head, self.memory)
        actor = Branch(seen, extractor, head, self.memory)
        return ActorCriticNetworks(
            observation_space=observation_space,
            actor=actor if num_agents is None else BranchPerAgent(actor, num_agents),
            critic=critic
            if num_agents is None or critic is None or critic_space is not None
            else BranchPerAgent(critic, num_agents),
            distribution=distribution,
            initial_std=self.initial_std,
        )


@dataclasses.dataclass(frozen=True, eq=False)
class ActorCriticNetworks(Networks):
    """The networks of an `ActorCritic`.

    `params` is {"actor": ..., "critic": ..., "spread": float32[num_parameters]}, without "critic"
    if the critic's head is on the actor's branch. "spread" has the parameters of the distribution
    that do not depend on observations, such as the log standard deviations of a Gaussian.
    """

    observation_space: spaces.Space
    actor: Branch | BranchPerAgent
    critic: Branch | BranchPerAgent | None  # None: the actor's branch has both heads
    distribution: ActionDistribution
    initial_std: float

    @property
    def is_recurrent(self) -> bool:
        return self.actor.memory is not None

    def init(self, key: chex.PRNGKey, features: Features) -> dict[str, Any]:
        keys, inputs = jax.random.split(key), features.inputs
        critic_inputs = _critic_inputs(features)
        log_std = math.log(self.initial_std)
        spread = jnp.full(self.distribution.num_parameters, log_std, jnp.float32)
        actor, critic = self.actor, self.critic
        if critic is None:
            return {"actor": actor.init(keys[0], inputs), "spread": spread}
        is_same = critic_inputs is inputs and critic.extractor is actor.extractor
        if not (is_same and isinstance(actor, Branch) and isinstance(critic, Branch)):
            return {
                "actor": actor.init(keys[0], inputs),
                "critic": critic.init(keys[1], critic_inputs),
                "spread": spread,
            }
        # The trunks are equal, so one loop draws both, which halves the compile time.
        both = jax.lax.map(lambda key: actor.init_trunk(key, inputs), keys)
        trunks: Any = [jax.tree.map(lambda x, i=i: x[i], both) for i in range(2)]
        return {
            "actor": actor.init_head(*trunks[0]),
            "critic": critic.init_head(*trunks[1]),
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
        carries, outputs = _run_branch(branch, params[name], _critic_inputs(features), memory, name)
        if self.critic is None:
            _, outputs = outputs
        return outputs[..., 0], {name: carries}

    def value_after(self, params: Any, carries: Any, features: Features) -> jax.Array:
        """Returns the critic's values, float32[B], of observations after `carries`, [B, ...]."""
        name = "actor" if self.critic is None else "critic"
        branch = self.actor if self.critic is None else self.critic
        carry = carries[name] if self.is_recurrent else ()
        _, outputs = branch.step(params[name], carry, _critic_inputs(features))
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
                params["critic"], carry["critic"], _critic_inputs(features)
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


def _critic_inputs(features: Features) -> Any:
    return features.inputs if features.critic_inputs is None else features.critic_inputs


def _split_agent(space: spaces.Space) -> tuple[int, spaces.Space]:
    """Returns the number of agents and the space of the rest of the observation."""
    if not isinstance(space, spaces.Dict) or AGENT not in space.spaces:
        raise TrainingError(
            f'ActorCritic got per_agent=True and observations without the entry "agent", {space!r}.'
            "  Add it: IndependentAgents(env, agent_id=True)."
        )
    shape: Any = space.spaces[AGENT].shape
    return shape[0], without_entries(space, (AGENT,))[0]


def _run_branch(
    branch: Branch | BranchPerAgent, params: Any, inputs: Any, memory: Any, name: str
) -> tuple[Any, Any]:
    if memory is None:
        return branch.step(params, (), inputs)
    carry, first = memory
    return branch.unroll(params, carry[name], inputs, first)
