"""The agents of a batch as instances of their own, for learners that know a single agent."""

from collections.abc import Mapping
from typing import Any, Self, cast

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces, struct
from jaxenvs.core import TimeStep, VectorEnv
from jaxenvs.errors import WrapperError
from jaxenvs.multi_agent import AGENT, CRITIC_OBSERVATION, MASK, MultiAgentTimeStep
from jaxenvs.wrappers.vector import OuterVectorEnv


@struct.pytree_dataclass
class IndependentAgents(OuterVectorEnv):
    """A batch of N instances with A agents each as a batch of N * A instances with one agent.

    Instance n * A + a is agent a of instance n. All agents of an instance finish together, when the
    last one has ended. Until then, an agent that has ended, or waits for its turn, goes on to
    receive observations and rewards, and its actions are ignored. It terminates if all agents have
    terminated, otherwise it is truncated. So rewards that a team earns later count for all.

    The spaces of the agents must be equal, apart from the lengths of vectors, which are padded with
    zeros, the numbers of discrete actions, for which an "action_mask" is added, and the bounds of
    vectors. If agents have different bounds of actions, all actions are in [-1, 1], which maps
    linearly onto the bounds of each agent.

    Learners can share one policy among the agents, or see which agent they act for:

    - `agent_id` adds the entry "agent", float32[A], one-hot. `ActorCritic` concatenates it with
      the observation, or with `per_agent=True` has weights of its own for each agent.
    - `central_critic` adds the entry "critic_observation": the observations of all agents, the own
      one first, concatenated along the last axis. Only critics see it, as in MAPPO.

    With either, observations become dicts that have the agent's own one as "observation", unless it
    already is a dict.

    Raises:
        WrapperError: the environment has a single agent, or the spaces differ otherwise.

    Source: C. Yu et al., The Surprising Effectiveness of PPO in Cooperative, Multi-Agent Games,
    2022, for the central critic.
    """

    env: VectorEnv  # N instances with A agents each
    agent_id: bool = struct.static(False)  # adds the entry "agent"
    central_critic: bool = struct.static(False)  # adds the entry "critic_observation"

    def __post_init__(self) -> None:
        if not getattr(self.env, "agents", ()):
            raise WrapperError(
                f"IndependentAgents got {self.env!r:.80}; expected a batch of an environment with"
                " several agents, such as vectorize(env, num_envs)."
            )
        _ = self.single_observation_space, self.single_action_space  # fail at construction

    def __repr__(self) -> str:
        return f"IndependentAgents({self.env!r})"

    @property
    def num_envs(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.env.num_envs * self._num_agents

    @property
    def agents(self) -> tuple[str, ...]:
        return ()  # each is an instance

    def with_env(self, env: VectorEnv) -> Self:
        """Returns the agents of another batch of the same environment."""
        return struct.replace(self, env=env)

    @property
    def single_observation_space(self) -> spaces.Space:
        agents = [_entries(space) for space in self._of_agents("observation")]
        if any(entries.keys() != agents[0].keys() for entries in agents):
            raise WrapperError("IndependentAgents got agents whose observations differ in entries.")
        entries = {
            name: _common([each[name] for each in agents], "observations") for name in agents[0]
        }
        if MASK not in entries and self._pads_choices:
            entries[MASK] = spaces.Box(False, True, (self._most_choices,), np.bool_)
        if self.agent_id:
            entries[AGENT] = spaces.Box(0.0, 1.0, (self._num_agents,))
        if self.central_critic:
            entries[CRITIC_OBSERVATION] = _repeated(entries["observation"], self._num_agents)
        return spaces.Dict(entries) if len(entries) > 1 else entries["observation"]

    @property
    def single_action_space(self) -> spaces.Space:
        found = self._of_agents("action")
        common = _common(found, "actions")
        if not _differ_in_bounds(found):
            return common
        if not np.issubdtype(common.dtype, np.floating) or not all(
            np.isfinite(bound).all() for box in found for bound in cast("spaces.Box", box).bounds
        ):
            raise _different("actions", found, "only finite bounds of floats may differ")
        return spaces.Box(-1.0, 1.0, common.shape, cast("Any", common.dtype))

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        state, timestep = self.env.reset(key)
        return state, self._split(timestep)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        rows = jnp.reshape(action, (self.env.num_envs, self._num_agents, *action.shape[1:]))
        actions = {}
        found = self._of_agents("action")
        is_scaled = _differ_in_bounds(found)
        for i, (agent, space) in enumerate(zip(self.env.agents, found, strict=True)):
            own = rows[:, i]
            if isinstance(space, spaces.Discrete):
                own = jnp.minimum(own, space.start + space.n - 1)  # a padded choice is ignored
            elif space.shape:
                own = own[..., : space.shape[-1]]
            actions[agent] = _scale(cast("spaces.Box", space), own) if is_scaled else own
        state, timestep = self.env.step(state, actions, key)
        return state, self._split(timestep)

    def render(self, state: Any, index: int = 0) -> jax.Array:
        """Draws the environment of instance `index`."""
        return self.env.render(state, index // self._num_agents)

    def _split(self, timestep: TimeStep) -> TimeStep:
        timestep = cast("MultiAgentTimeStep", timestep)
        terminated = jnp.stack([*timestep.terminated.values()]).all(axis=0)  # pyright: ignore
        final = timestep.final_observation
        return TimeStep(
            observation=self._observe(timestep.observation),
            reward=self._merge(timestep.reward),
            terminated=self._repeat(terminated),
            truncated=self._repeat(timestep.done & ~terminated),
            info=self._split_info(timestep.info),
            final_observation=None if final is None else self._observe(final),
            final_info=None if final is None else self._split_info(timestep.final_info),
        )

    def _observe(self, observation: Any) -> Any:
        agents = [_entries(observation[agent]) for agent in self.env.agents]
        entries = {name: _stacked([each[name] for each in agents]) for name in agents[0]}
        number = self._num_agents
        if MASK not in entries and self._pads_choices:
            choices = np.array([cast("Any", space).n for space in self._of_agents("action")])
            legal = np.arange(self._most_choices) < choices[:, None]
            entries[MASK] = jnp.broadcast_to(legal, (self.env.num_envs, *legal.shape))
        if self.agent_id:
            ids = np.eye(number, dtype=np.float32)
            entries[AGENT] = jnp.broadcast_to(ids, (self.env.num_envs, number, number))
        if self.central_critic:
            own = entries["observation"]
            entries[CRITIC_OBSERVATION] = jnp.concatenate(
                [jnp.roll(own, -i, axis=1) for i in range(number)], axis=-1
            )
        merged = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), entries)
        return merged if len(merged) > 1 else merged["observation"]

    def _split_info(self, info: Any) -> Any:
        if isinstance(info, dict) and info.keys() == {*self.env.agents}:
            return self._merge(info)
        if isinstance(info, dict):
            return {name: self._split_info(each) for name, each in info.items()}
        return jax.tree.map(self._repeat, info)

    def _merge(self, values: Any) -> Any:
        """Returns a dict of [N, ...] trees as one of [N * A, ...] arrays."""
        rows = [values[agent] for agent in self.env.agents]
        return jax.tree.map(lambda *x: jnp.stack(x, axis=1).reshape((-1, *x[0].shape[1:])), *rows)

    def _repeat(self, x: jax.Array) -> jax.Array:
        return jnp.repeat(x, self._num_agents, axis=0)

    def _of_agents(self, kind: str) -> list[spaces.Space]:
        space = getattr(self.env, f"single_{kind}_space")
        return [space.spaces[agent] for agent in self.env.agents]

    @property
    def _num_agents(self) -> int:
        return len(self.env.agents)

    @property
    def _pads_choices(self) -> bool:
        space = self.single_action_space
        return isinstance(space, spaces.Discrete) and any(
            cast("Any", own).n != space.n for own in self._of_agents("action")
        )

    @property
    def _most_choices(self) -> int:
        return cast("Any", self.single_action_space).n


def split_agents(env: VectorEnv) -> VectorEnv:
    """Returns `IndependentAgents(env)` if there are several agents, otherwise `env`."""
    return IndependentAgents(env) if env.agents else env


def batch_of(env: VectorEnv) -> VectorEnv:
    """Returns the batch whose agents are the instances of `env`, or `env` itself."""
    return env.env if isinstance(env, IndependentAgents) else env


def _entries(value: Any) -> dict[str, Any]:
    """Returns the entries of a Dict space or a dict; of others, one entry "observation"."""
    value = value.spaces if isinstance(value, spaces.Dict) else value
    return dict(value) if isinstance(value, Mapping) else {"observation": value}


def _common(found: list[spaces.Space], what: str) -> spaces.Space:
    """Returns one space that contains those of all agents, after vectors are padded."""
    first = found[0]
    if all(space == first for space in found):
        return first
    if all(isinstance(space, spaces.Discrete) and space.start == 0 for space in found):
        return spaces.Discrete(max(cast("Any", space).n for space in found))
    if all(isinstance(space, spaces.Box) for space in found):
        shapes: list[Any] = [space.shape for space in found]
        if len({space.dtype for space in found}) == 1 and all(len(shape) == 1 for shape in shapes):
            size = max(shapes)[0]
            lows, highs = zip(*(cast("Any", space).bounds for space in found), strict=True)
            low = np.min([np.pad(x, (0, size - len(x))) for x in lows], axis=0)
            high = np.max([np.pad(x, (0, size - len(x))) for x in highs], axis=0)
            return spaces.Box(low, high, dtype=cast("Any", first.dtype))
    raise _different(what, found, "only vectors of one dtype and numbers of choices may differ")


def _different(what: str, found: list[spaces.Space], rule: str) -> WrapperError:
    """Returns the error for agents whose observations or actions cannot be merged."""
    fix = ", such as env.wrap(FlattenObservation)" if what == "observations" else ""
    return WrapperError(
        f"IndependentAgents got agents with different {what}:"
        f" {', '.join(map(repr, dict.fromkeys(found)))!s:.300}; {rule}.  Wrap the environment so"
        f" that they are equal{fix}."
    )


def _differ_in_bounds(found: list[spaces.Space]) -> bool:
    """Returns whether an element of a vector has other bounds in another agent."""
    if not all(isinstance(space, spaces.Box) and len(space.shape) == 1 for space in found):
        return False
    longest = max(found, key=lambda space: cast("Any", space).shape)
    return not all(
        np.array_equal(own, bound[: len(own)])
        for space in found
        for own, bound in zip(
            cast("spaces.Box", space).bounds, cast("spaces.Box", longest).bounds, strict=True
        )
    )


def _scale(box: spaces.Box, actions: jax.Array) -> jax.Array:
    """Maps N actions from [-1, 1] to the bounds of a Box; the ends are exact."""
    low, high = (bound[None] for bound in box.bounds)
    slope = 2 / (high - low)  # division, for the same reason as in `RescaleAction`
    return jnp.where(actions < 0, low + (actions + 1) / slope, high + (actions - 1) / slope)


def _stacked(rows: list[jax.Array]) -> jax.Array:
    """Returns the observations of A agents, [N, ...] each, as [N, A, ...], with padded vectors."""
    if rows[0].ndim == 2:
        size = max(x.shape[1] for x in rows)
        rows = [jnp.pad(x, ((0, 0), (0, size - x.shape[1]))) for x in rows]
    return jnp.stack(rows, axis=1)


def _repeated(space: spaces.Space, number: int) -> spaces.Box:
    """Returns the space of `number` observations, concatenated along the last axis."""
    if not isinstance(space, spaces.Box) or not space.shape:
        raise WrapperError(
            f"IndependentAgents got central_critic=True and observations in {space!r:.80}; only"
            " those of a Box can be concatenated.  Wrap the environment: "
            "env.wrap(FlattenObservation)."
        )
    low, high = (np.concatenate([bound] * number, axis=-1) for bound in space.bounds)
    return spaces.Box(low, high, dtype=space.dtype)
