"""Environments with the parallel interface of PettingZoo."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from jaxenvs.bridge.foreign.adapter import Adapter, unbounded
from jaxenvs.bridge.memory.layout import leaves_of, tree_of
from jaxenvs.errors import PoolError

AGENT_FIELDS = ("agent_reward", "agent_terminated", "agent_truncated", "agent_alive")
_DTYPES = (np.float64, np.bool_, np.bool_, np.bool_)


class ParallelEnvAdapter(Adapter):
    """A parallel environment of PettingZoo as one environment with `Dict` spaces, keyed by agent.

    A is the number of `possible_agents`. `info` contains, with arrays in the order of
    `possible_agents`:

    - `agent_reward`: float64[A]; the reward of the step is their sum;
    - `agent_terminated`, `agent_truncated`: bool[A], for agents that have left;
    - `agent_alive`: bool[A], the agents that act next;
    - each agent's own info, under the agent's name.

    An absent agent observes zeros, and its action is ignored. The episode ends when no agent is
    left. It is truncated if any of the agents that left last was truncated, otherwise terminated.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        agents = self._agents = list(env.possible_agents)
        # Pairs, so that agents stay in their order.
        self.observation_space = spaces.Dict([(a, env.observation_space(a)) for a in agents])
        self.action_space = spaces.Dict([(a, env.action_space(a)) for a in agents])
        space = self.observation_space
        zeros = (np.zeros(leaf.shape, leaf.dtype) for leaf in leaves_of(space))
        self._zeros: dict[str, Any] = tree_of(space, zeros)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        found = self.env.reset(seed=seed, options=options)
        observations, infos = found if isinstance(found, tuple) else (found, {})
        self._terminated: dict[str, bool] = {}
        self._truncated: dict[str, bool] = {}
        return self._all(observations), self._info({}, infos)

    def step(self, action: Mapping[str, Any]) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        alive = self.env.agents
        observations, rewards, terminated, truncated, infos = self.env.step(
            {agent: action[agent] for agent in alive}
        )
        over, cut = not self.env.agents, any(truncated.values())
        self._terminated.update(terminated)
        self._truncated.update(truncated)
        info = self._info(rewards, infos)
        reward = float(sum(rewards.values()))
        return self._all(observations), reward, over and not cut, over and cut, info

    def _all(self, observations: Mapping[str, Any]) -> dict[str, Any]:
        return {agent: observations.get(agent, zeros) for agent, zeros in self._zeros.items()}

    def _info(self, rewards: Mapping[str, float], infos: Mapping[str, Any]) -> dict[str, Any]:
        alive = dict.fromkeys(self.env.agents, True)
        found = rewards, self._terminated, self._truncated, alive
        numbers = zip(AGENT_FIELDS, _DTYPES, found, strict=True)
        return {
            **{
                name: np.array([of.get(agent, 0) for agent in self._agents], dtype)
                for name, dtype, of in numbers
            },
            **{agent: info for agent, info in infos.items() if info},
        }


def agents_of(env: Any) -> tuple[str, ...]:
    """Returns the agents of a `ParallelEnvAdapter`, in the order of its infos, else ()."""
    return tuple(env._agents) if isinstance(env, ParallelEnvAdapter) else ()


def without_rewards(info: Any) -> Any:
    """Returns the info of a step as the info of a finished episode that no longer steps."""
    if not info or "agent_reward" not in info:
        return info
    return {**info, "agent_reward": np.zeros_like(info["agent_reward"])}


def agent_fields(agents: Sequence[str]) -> dict[str, spaces.Space]:
    """Returns the spaces of the numbers of each agent in the info of a `ParallelEnvAdapter`."""
    fields = zip(AGENT_FIELDS, _DTYPES, strict=True) if agents else ()
    return {name: unbounded((len(agents),), dtype) for name, dtype in fields}


def parallel(env: Any) -> Any:
    if not hasattr(env, "agent_iter"):
        return env
    if not getattr(env, "metadata", {}).get("is_parallelizable", False):
        raise PoolError(
            f"{env} takes turns: its agents cannot act at the same time.  A pool needs PettingZoo's"
            " parallel API, parallel_env(), or a wrapper that exposes one agent's view of the game"
            " as an environment."
        )
    from pettingzoo.utils.conversions import aec_to_parallel

    return aec_to_parallel(env)
