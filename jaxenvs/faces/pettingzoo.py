"""Native environments with several agents as PettingZoo environments, single or in batches."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import gymnasium
import jax
import numpy as np

from jaxenvs import spaces
from jaxenvs._forks import check_not_forked
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import ActionError, ParameterError, check_choice, describe, missing_extra
from jaxenvs.faces._host_timestep import HostTimeStep
from jaxenvs.faces._pickling import EzPickleMixin
from jaxenvs.faces._runner import BatchRunner, parse_device
from jaxenvs.faces._single import only_row, step_single, take_rows
from jaxenvs.faces.gym_vector_env import RENDER_FPS
from jaxenvs.factory import is_native, make_from
from jaxenvs.multi_agent import MASK, STATE, TO_ACT
from jaxenvs.rendering.window import Window, mosaic
from jaxenvs.vector.vectorize import vectorize

_ParallelEnv: Any = object
_AECEnv: Any = object
try:
    from pettingzoo.utils.env import AECEnv as _AECEnv
    from pettingzoo.utils.env import ParallelEnv as _ParallelEnv
except ImportError:  # make_pettingzoo raises MissingExtraError
    pass

_RENDER_MODES = ("human", "rgb_array")


def make_pettingzoo(
    id: str | Environment,
    num_envs: int | None = None,
    *,
    api: Literal["parallel", "aec"] = "parallel",
    seed: int | Sequence[int] | None = None,
    render_mode: Literal["human", "rgb_array"] | None = None,
    device: jax.Device | str | None = None,
    time_limit: int | None | Literal["default"] = "default",
    **params: Any,
) -> Any:
    """Makes an environment with several agents for programs that use PettingZoo and NumPy.

    Args:
        id: an `Environment` with several agents or its id, such as "pgx/connect_four" or
            "jaxmarl/MPE_simple_spread_v3".
        num_envs: N for a batch; None for a single environment.
        api: "parallel", in which all agents act at once, or "aec", in which one agent acts after
            the other. A batch is parallel.
        seed: the seed of the first `reset` if `reset` gets none.
        render_mode: "rgb_array", "human" or None.
        device: the device that the environment runs on, a `jax.Device` or "cpu", "gpu"; None is
            the CPU.
        time_limit: the number of steps after which an episode is truncated; None for no limit,
            "default" for the limit of the id.
        **params: parameters of the environment.

    Returns:
        A `PettingZooParallelEnv`, a `PettingZooAECEnv`, or with `num_envs` a `PettingZooVectorEnv`.

    Raises:
        ParameterError: the environment has a single agent, or is not a native one; or an option has
            an invalid value.
        UnknownEnvironmentError: there is no such id; the message names the closest one.
        SeedError: a seed is invalid, or the number of seeds is not N.
        MissingExtraError: PettingZoo is not installed. A batch does not need it.
        ForkError: this process was forked from one that had used JAX.
    """
    if api not in ("parallel", "aec") or (api == "aec" and num_envs is not None):
        raise ParameterError(
            f'make_pettingzoo got api="{api}", num_envs={num_envs}; expected "parallel", or "aec"'
            " without num_envs."
        )
    check_choice("make_pettingzoo got render_mode", render_mode, (None, *_RENDER_MODES))
    if num_envs is None and _ParallelEnv is object:
        raise missing_extra("make_pettingzoo", "pettingzoo", "pettingzoo")
    if not is_native(id):
        raise ParameterError(
            f"make_pettingzoo got {id!r:.80}; expected the id of a native environment or an"
            " Environment.  For environments of PettingZoo itself in batches, use make_vec."
        )
    check_not_forked()
    env = make_from(id, time_limit=time_limit, **params)
    if not env.agents:
        raise ParameterError(
            f"make_pettingzoo got {env!r:.80}, which has a single agent.  Use jaxenvs.make_gym."
        )
    options = {
        "seed": seed,
        "render_mode": render_mode,
        "device": parse_device(device),
        "name": id if isinstance(id, str) else type(id.unwrapped).__name__,
    }
    if num_envs is not None:
        return PettingZooVectorEnv(vectorize(env, num_envs), **options)
    cls = PettingZooParallelEnv if api == "parallel" else PettingZooAECEnv
    return cls(vectorize(env, 1, autoreset_mode="disabled"), **options)


class _Base(EzPickleMixin):
    """The common part of the three classes."""

    agents: list[str]

    def __init__(
        self,
        env: VectorEnv,
        *,
        seed: int | Sequence[int] | None = None,
        render_mode: str | None = None,
        device: jax.Device | None = None,
        name: str = "jaxenvs",
    ) -> None:
        self.runner = BatchRunner(env, device=device)
        self.runner.parse_seeds(seed)  # raises early
        self._seed = seed
        self.possible_agents = [*env.agents]
        self.render_mode = render_mode
        self.metadata = {
            "name": name,
            "render_modes": [*_RENDER_MODES],
            "render_fps": RENDER_FPS,
        }
        self._window = Window(RENDER_FPS)

    @property
    def env(self) -> VectorEnv:
        """The native environment, a batch."""
        return self.runner.env

    def close(self) -> None:
        """Drops the state and the window."""
        self.runner.close()
        self._window.close()

    def _start_episodes(self, seed: Any) -> HostTimeStep:
        timestep = self.runner.reset(self._seed if seed is None else seed)
        self._seed = None
        self._show()
        return timestep

    def _show(self) -> None:
        if self.render_mode == "human":
            self._window.show(mosaic(self.runner.render()))

    def _spaces(self, name: str) -> dict[str, gymnasium.Space]:
        """Returns the spaces of the agents, in their order."""
        space: Any = getattr(self.env, name)
        return {agent: _to_gymnasium(space.spaces[agent]) for agent in self.possible_agents}

    def _of_agent(self, info: Mapping[str, Any], agent: str) -> dict[str, Any]:
        """Returns the agent's own part of each entry that is keyed by agent, and all others."""
        return {
            name: value[agent]
            if isinstance(value, dict) and value.keys() == {*self.possible_agents}
            else value
            for name, value in info.items()
        }


class _SingleBase(_Base):
    """The common part of the classes for one instance, which is a batch of one."""

    def __init__(self, env: VectorEnv, **options: Any) -> None:
        super().__init__(env, **options)
        self.agents: list[str] = []
        self.observation_spaces = self._spaces("single_observation_space")
        self.action_spaces = self._spaces("single_action_space")
        self._action_space = gymnasium.spaces.Dict(self.action_spaces)
        ignored = spaces.to_gymnasium(env.single_action_space)
        ignored.seed(0)
        self._ignored = ignored.sample()  # actions of agents that are not to act
        info = jax.eval_shape(env.reset, jax.random.key(0))[1].info
        if STATE in info:
            shape, dtype = info[STATE].shape[1:], info[STATE].dtype
            self.state_space = spaces.to_gymnasium(spaces.Box(-np.inf, np.inf, shape, dtype))

    def observation_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's observations, always the same object."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's actions, always the same object."""
        return self.action_spaces[agent]

    def state(self) -> np.ndarray:
        """Returns what all agents together observe, `info["world_state"]` of the environment.

        Raises:
            NotImplementedError: the environment has no such entry; there is no `state_space`.
        """
        if not hasattr(self, "state_space"):
            raise NotImplementedError(f'{self.env!r} has no "world_state" in its info.')
        return self._info[STATE].copy()

    def render(self) -> np.ndarray | None:
        """Returns a frame, uint8[H, W, 3]; under "human", shows it in a window."""
        if self.render_mode is None:
            return gymnasium.logger.warn(
                "render was called without a render_mode.  Pass render_mode='rgb_array' to"
                " make_pettingzoo to get frames."
            )
        if self.render_mode == "human":
            return self._show()
        return self.runner.render()[0]

    def _begin(self, seed: int | None) -> None:
        seeds = None if seed is None else self.runner.parse_seeds([seed])
        self._take(self._start_episodes(seeds))
        self.agents = [*self.possible_agents]

    def _play(self, actions: Mapping[str, Any]) -> None:
        """Takes one step of the environment with the actions of some agents."""
        actions = {**self._ignored, **actions}
        self._take(step_single(self.runner.step, self._action_space, actions))
        self._show()

    def _take(self, timestep: HostTimeStep) -> None:
        self._timestep, self._info = timestep, take_rows(timestep.info)

    def _read(self, name: str, kind: type, agents: Sequence[str]) -> dict[str, Any]:
        values = getattr(self._timestep, name)
        return {agent: kind(values[agent][0]) for agent in agents}

    def _observation(self, agent: str) -> Any:
        space, batch = self.observation_spaces[agent], self._timestep.observation[agent]
        return _with_int_mask(only_row(space, batch))

    def _infos(self, agents: Sequence[str]) -> dict[str, dict[str, Any]]:
        return {agent: self._of_agent(self._info, agent) for agent in agents}


class PettingZooParallelEnv(_SingleBase, _ParallelEnv):
    """One native instance as a `pettingzoo.ParallelEnv`. `make_pettingzoo` makes it.

    `reset(seed=s)` starts the same trajectory as in an instance of a `PettingZooVectorEnv` with
    seed s. Agents leave `agents` when they end. If they take turns, `infos[agent]["to_act"]` tells
    whether the next step uses the agent's action.

    An observation with legal actions is a dict with the entries "observation" and "action_mask",
    int8[n], as in PettingZoo. `infos[agent]` has the environment's info; of entries that are keyed
    by agent, the agent's own. A copied or unpickled environment is a new one, which has to be reset
    first.
    """

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Starts an episode.

        Args:
            seed: makes this episode and all later ones reproducible; None continues with the random
                numbers of the last seed.
            options: ignored; no environment has any. (PettingZoo's own tests pass one.)

        Returns:
            The observations and the infos, keyed by agent.

        Raises:
            SeedError: the seed is invalid.
        """
        del options
        self._begin(seed)
        return self._observations(self.agents), self._infos(self.agents)

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Takes one step with an action for each of `agents`. Without agents, nothing happens.

        Returns:
            The observations, rewards, terminations, truncations and infos of these agents.

        Raises:
            ActionError: agents are missing or too many, or an action does not fit.
            ResetNeeded: there was no reset.
        """
        agents = self.agents
        if not isinstance(actions, Mapping) or {*actions} != {*agents}:
            given = [*actions] if isinstance(actions, Mapping) else describe(actions)
            raise ActionError(
                f"step got actions of {given}; expected a dict with an action for each of {agents},"
                " the agents that have not ended."
            )
        if self.runner.has_state and not agents:
            return {}, {}, {}, {}, {}
        self._play(actions)
        terminated = self._read("terminated", bool, agents)
        truncated = self._read("truncated", bool, agents)
        self.agents = [agent for agent in agents if not (terminated[agent] or truncated[agent])]
        return (
            self._observations(agents),
            self._read("reward", float, agents),
            terminated,
            truncated,
            self._infos(agents),
        )

    def _observations(self, agents: Sequence[str]) -> dict[str, Any]:
        return {agent: self._observation(agent) for agent in agents}


class PettingZooAECEnv(_SingleBase, _AECEnv):
    """One native instance as a `pettingzoo.AECEnv`. `make_pettingzoo(..., api="aec")` makes it.

    If several agents are to act at the same time, each gives its action in turn, all of them from
    the same observations; the environment takes a step when the last has given its own. Seeds,
    observations and infos are as in `PettingZooParallelEnv`.
    """

    def __init__(self, env: VectorEnv, **options: Any) -> None:
        super().__init__(env, **options)
        self.rewards: dict[str, float] = {}
        self.terminations: dict[str, bool] = {}
        self.truncations: dict[str, bool] = {}
        self.infos: dict[str, dict[str, Any]] = {}
        self._cumulative_rewards: dict[str, float] = {}

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Starts an episode.

        Args:
            seed: makes this episode and all later ones reproducible; None continues with the random
                numbers of the last seed.
            options: ignored; no environment has any. (PettingZoo's own tests pass one.)

        Raises:
            SeedError: the seed is invalid.
        """
        del options
        self._begin(seed)
        self._update()
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self._skip_agent_selection = None
        self._begin_round()

    def step(self, action: Any) -> None:
        """Takes the action of `agent_selection`; with None, removes it after it has ended.

        Raises:
            ActionError: the action does not fit.
            ValueError: the agent has ended, and the action is not None.
            ResetNeeded: there was no reset, or all agents have left.
        """
        if not self.agents:
            raise gymnasium.error.ResetNeeded(
                "step was called before reset, or after all agents have left.  Call reset first."
            )
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        self._actions[agent] = self._checked(agent, action)
        self._cumulative_rewards[agent] = 0.0
        self._clear_rewards()
        if len(self._actions) < len(self._acting):
            self.agent_selection = self._acting[len(self._actions)]
            return
        self._play(self._actions)
        self._update()
        self._accumulate_rewards()
        self._begin_round()

    def observe(self, agent: str) -> Any:
        """Returns the agent's observation."""
        return self._observation(agent)

    def _update(self) -> None:
        self.rewards = self._read("reward", float, self.agents)
        self.terminations = self._read("terminated", bool, self.agents)
        self.truncations = self._read("truncated", bool, self.agents)
        self.infos = self._infos(self.agents)

    def _begin_round(self) -> None:
        """Selects the agents that give the actions of the next step, one after the other."""
        alive = [
            agent
            for agent in self.agents
            if not (self.terminations[agent] or self.truncations[agent])
        ]
        self._actions: dict[str, Any] = {}
        self._acting = [agent for agent in alive if self._info[TO_ACT][agent]] or alive
        self.agent_selection = (self._acting or self.agents)[0]
        self._deads_step_first()

    def _checked(self, agent: str, action: Any) -> Any:
        space = self.action_spaces[agent]
        if isinstance(space, gymnasium.spaces.Box):
            action = np.array(action, space.dtype)  # the caller may write to it before the step
        if action not in space:
            raise ActionError(f"step got {action!r:.80} for {agent}; expected a member of {space}.")
        return action


class PettingZooVectorEnv(_Base):
    """N native instances like one `pettingzoo.ParallelEnv`, with [N, ...] arrays by agent.

    PettingZoo has no interface for batches. All agents are in `agents` always. An agent that has
    ended keeps its flags until all have; then the instance starts its next episode in the same
    step. `infos[agent]["to_act"]`, bool[N], tells where the next step uses the agent's action.
    Legal actions are in `observations[agent]["action_mask"]`, int8[N, n].

    Returned arrays never change later, and callers may write to them. A copied or unpickled
    environment is a new one, which has to be reset first.
    """

    def __init__(self, env: VectorEnv, **options: Any) -> None:
        super().__init__(env, **options)
        self.num_envs = env.num_envs
        self.agents = [*self.possible_agents]
        self.single_observation_spaces = self._spaces("single_observation_space")
        self.single_action_spaces = self._spaces("single_action_space")
        batch_space, n = gymnasium.vector.utils.batch_space, self.num_envs
        self.observation_spaces, self.action_spaces = (
            {agent: batch_space(space, n) for agent, space in each.items()}
            for each in (self.single_observation_spaces, self.single_action_spaces)
        )

    def single_observation_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's observations in one instance."""
        return self.single_observation_spaces[agent]

    def single_action_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's actions in one instance."""
        return self.single_action_spaces[agent]

    def observation_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's observations in N instances."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gymnasium.Space:
        """Returns the space of the agent's actions in N instances."""
        return self.action_spaces[agent]

    def reset(
        self,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts an episode in every instance.

        Args:
            seed: an int s gives instance i the seed s + i. A sequence has one seed per instance, in
                which None draws a random one. None continues with the random numbers of the last
                seed.
            options: ignored; no environment has any. (PettingZoo's own tests pass one.)

        Returns:
            The observations and the infos, keyed by agent.

        Raises:
            SeedError: a seed is invalid, or the number of seeds is not N.
        """
        del options
        timestep = self._start_episodes(seed)
        infos = self._infos(timestep, None)
        return self._observations(timestep.observation), infos

    def step(self, actions: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
        """Takes one step in every instance.

        Args:
            actions: [N, ...] for each agent; those of agents that are not to act are ignored, but
                must be valid.

        Returns:
            Observations [N, ...], rewards float32[N], terminations bool[N], truncations bool[N] and
            infos, keyed by agent. Where episodes ended, `infos[agent]["final_obs"]` and
            `infos[agent]["final_info"]` are what the step itself led to, [N, ...], and the masks
            `_final_obs` and `_final_info`, bool[N], tell which instances those are.

        Raises:
            ActionError: the actions do not fit; no step was taken.
        """
        timestep = self.runner.step(dict(actions))
        self._show()
        done = None
        if timestep.any_done:
            ended = [timestep.terminated[a] | timestep.truncated[a] for a in self.agents]
            done = np.logical_and.reduce(ended)
        infos = self._infos(timestep, done)
        parts = (timestep.reward, timestep.terminated, timestep.truncated)
        return (self._observations(timestep.observation), *map(self._ordered, parts), infos)

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Returns N frames, uint8[H, W, 3]; under "human", shows them in a window."""
        if self.render_mode == "human":
            return self._show()
        return tuple(self.runner.render())

    def _ordered(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {agent: values[agent] for agent in self.agents}

    def _observations(self, observations: Mapping[str, Any]) -> dict[str, Any]:
        return {agent: _with_int_mask(observations[agent]) for agent in self.agents}

    def _infos(self, timestep: HostTimeStep, done: np.ndarray | None) -> dict[str, Any]:
        info = timestep.info
        infos = {agent: self._of_agent(info, agent) for agent in self.agents}
        if done is not None:
            final, final_info = self._observations(timestep.final_observation), timestep.final_info
            for agent in self.agents:
                infos[agent].update(
                    final_obs=final[agent],
                    _final_obs=done.copy(),
                    final_info=self._of_agent(final_info, agent),
                    _final_info=done.copy(),
                )
        return infos


def _to_gymnasium(space: spaces.Space) -> gymnasium.Space:
    found: Any = spaces.to_gymnasium(space)
    if isinstance(space, spaces.Dict) and MASK in space.spaces:
        found[MASK] = gymnasium.spaces.Box(0, 1, found[MASK].shape, np.int8)
    return found


def _with_int_mask(observation: Any) -> Any:
    """Returns an observation whose mask has the dtype that Gymnasium's `sample(mask)` requires."""
    if not isinstance(observation, dict) or MASK not in observation:
        return observation
    return {**observation, MASK: observation[MASK].astype(np.int8)}
