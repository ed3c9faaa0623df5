"""Environments with several agents: the contract of `core` with dicts keyed by agent."""

import abc
import functools
import operator
from collections.abc import Mapping
from typing import Any, TypeVar

import chex
import jax
import jax.numpy as jnp

from jaxenvs.core import Environment, TimeStep

S = TypeVar("S")

TO_ACT = "to_act"  # the entry of `info` with the agents whose actions the next step uses
STATE = "world_state"  # the entry of `info` with what all agents together observe, if there is one
# Entries of Dict observations that learners treat in a special way.
MASK = "action_mask"  # the legal actions
AGENT = "agent"  # the index of the agent, one-hot
CRITIC_OBSERVATION = "critic_observation"  # the input of the critic instead of all other entries


@chex.dataclass(frozen=True)
class MultiAgentTimeStep(TimeStep):
    """The result of `reset` or `step` for several agents.

    `observation`, `reward`, `terminated` and `truncated` are dicts keyed by agent, in which every
    agent has an entry on every step. An agent that has ended stays so until all have, which is the
    end of the episode. `info` belongs to all agents.
    """

    @property
    def ended(self) -> dict[str, jax.Array]:
        """bool[] for each agent: True if it has terminated or was truncated."""
        return jax.tree.map(operator.or_, self.terminated, self.truncated)

    @property
    def done(self) -> jax.Array:
        """bool[]: True if every agent has ended."""
        return functools.reduce(operator.and_, self.ended.values())

    @property
    def discount(self) -> dict[str, jax.Array]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """float32[] for each agent: 0 if it has terminated, otherwise 1."""
        return jax.tree.map(lambda flag: 1 - flag.astype(jnp.float32), self.terminated)

    @property
    def to_act(self) -> dict[str, jax.Array]:
        """bool[] for each agent: True if the next step uses its action.

        False for an agent that waits for its turn or has ended. In a batch with automatic resets,
        this belongs to the new episode, like `observation`.
        """
        return self.info[TO_ACT]

    def truncate(self, when: jax.Array) -> "MultiAgentTimeStep":
        """Returns the timestep, with all agents truncated where `when`, bool[], is true."""
        acts = {agent: flag & ~when for agent, flag in self.to_act.items()}
        truncated: Any = jax.tree.map(lambda flag: flag | when, self.truncated)
        return self.replace(truncated=truncated, info={**self.info, TO_ACT: acts})

    def of(self, agent: str) -> TimeStep:
        """Returns the timestep of one agent, with the `info` of all."""
        return TimeStep(
            observation=self.observation[agent],
            reward=self.reward[agent],
            terminated=self.terminated[agent],
            truncated=self.truncated[agent],
            info=self.info,
        )

    @classmethod
    def first(
        cls,
        observation: Mapping[str, chex.ArrayTree],
        *,
        to_act: Mapping[str, chex.Numeric] | None = None,
        info: Mapping[str, chex.ArrayTree] | None = None,
    ) -> "MultiAgentTimeStep":
        """Returns the first timestep of an episode: rewards 0, flags false.

        Args:
            observation: a dict keyed by agent.
            to_act: a dict keyed by agent; None if all agents act.
            info: entries of `info`.
        """
        return cls.transition(observation, reward=0.0, terminated=False, to_act=to_act, info=info)

    @classmethod
    def transition(
        cls,
        observation: Mapping[str, chex.ArrayTree],
        *,
        reward: Mapping[str, chex.Numeric] | chex.Numeric,
        terminated: Mapping[str, chex.Numeric] | chex.Numeric,
        truncated: Mapping[str, chex.Numeric] | chex.Numeric = False,
        to_act: Mapping[str, chex.Numeric] | None = None,
        info: Mapping[str, chex.ArrayTree] | None = None,
    ) -> "MultiAgentTimeStep":
        """Returns the timestep that follows an action.

        Args:
            observation: a dict keyed by agent.
            reward: a dict keyed by agent, or the reward of each. They become float32 arrays.
            terminated: likewise.
            truncated: likewise.
            to_act: a dict keyed by agent; None if all agents act. Those that have ended never do.
            info: entries of `info`.
        """

        def of_each(value: Any, dtype: Any) -> dict[str, jax.Array]:
            values = value if isinstance(value, Mapping) else dict.fromkeys(observation, value)
            return {agent: jnp.asarray(values[agent], dtype) for agent in observation}

        terminated, truncated = of_each(terminated, bool), of_each(truncated, bool)
        acts = of_each(True if to_act is None else to_act, bool)
        acts = {agent: acts[agent] & ~(terminated[agent] | truncated[agent]) for agent in acts}
        return cls(
            observation=dict(observation),
            reward=of_each(reward, jnp.float32),  # pyright: ignore[reportArgumentType]
            terminated=terminated,  # pyright: ignore[reportArgumentType]
            truncated=truncated,  # pyright: ignore[reportArgumentType]
            info={**(info or {}), TO_ACT: acts},
        )


class MultiAgentEnvironment(Environment[S]):
    """One instance of a task for several agents.

    `reset` and `step` are those of `Environment`. They return a `MultiAgentTimeStep`, and `action`
    is a dict with an action for every agent; those of agents that are not to act are ignored. The
    spaces are `Dict`s keyed by agent. An agent may observe `{"observation": ..., "action_mask":
    bool[n]}` to mark its legal actions. While it waits, one action is legal, and ignored.

    Everything that works on an `Environment` works on it: `vectorize`, automatic resets, meshes,
    and rollouts, whose statistics have the return of each agent. Wrap it with `env.wrap(...)`.
    """

    @property
    @abc.abstractmethod
    def agents(self) -> tuple[str, ...]:
        """The names of all agents, in a fixed order."""


def sample_legal(observation: chex.ArrayTree, key: chex.PRNGKey) -> Any:
    """Draws a random legal action for each observation; a policy for `rollout` and `evaluate`.

    Args:
        observation: a dict with the entry "action_mask", bool[..., n]; or a dict of such dicts
            keyed by agent.
        key: a random key.

    Returns:
        int32[...], uniform over the legal actions; or a dict of such actions.
    """
    if MASK in observation:
        logits = jnp.where(observation[MASK], 0.0, -jnp.inf)
        return jax.random.categorical(key, logits).astype(jnp.int32)
    keys = jax.random.split(key, len(observation))
    # `jit` sorts dicts.
    return {
        agent: sample_legal(observation[agent], keys[i])
        for i, agent in enumerate(sorted(observation))
    }
