"""Wrappers that change rewards, actions, and the ends of episodes."""

import abc
from collections.abc import Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import prng, struct
from jaxenvs.core import TimeStep
from jaxenvs.envs.minigrid import cells
from jaxenvs.envs.minigrid.level import FORWARD, MiniGridState
from jaxenvs.envs.minigrid.wrappers._level import LevelWrapper
from jaxenvs.errors import WrapperError

_TYPES = {  # sets of kinds that can be in a cell, by minigrid's names
    "wall": cells.set_of(cells.kind(cells.WALL)),
    "floor": cells.set_of(cells.FLOOR),
    "door": cells.IS_DOOR,
    "key": cells.set_of(cells.KEY),
    "ball": cells.set_of(cells.BALL),
    "box": cells.set_of(cells.BOX),
    "lava": cells.set_of(cells.kind(cells.LAVA)),
}


@chex.dataclass(frozen=True)
class BonusState:
    """The wrapped state and how often each case occurred in the episode."""

    inner: chex.ArrayTree  # the wrapped state
    counts: jax.Array  # int32[H, W] or int32[H, W, 4, number of actions]


class _BonusWrapper(LevelWrapper):
    """A wrapper that adds a bonus to the reward and counts how often each case occurred."""

    @property
    @abc.abstractmethod
    def _count_shape(self) -> tuple[int, ...]:
        """The shape of the counts."""

    @abc.abstractmethod
    def _case(self, state: MiniGridState, action: jax.Array) -> tuple[jax.Array, ...]:
        """Returns the index of the case, given the state after the action."""

    def _bonus(self, count: jax.Array) -> jax.Array:
        """Returns the bonus for a case, given how often it occurred so far."""
        return 1 / jnp.sqrt(count.astype(jnp.float32))

    def inner(self, state: BonusState) -> Any:
        return state.inner

    def reset(self, key: chex.PRNGKey) -> tuple[BonusState, TimeStep]:
        inner, timestep = self.env.reset(key)
        return BonusState(inner=inner, counts=jnp.zeros(self._count_shape, jnp.int32)), timestep

    def step(
        self, state: BonusState, action: Any, key: chex.PRNGKey
    ) -> tuple[BonusState, TimeStep]:
        inner, timestep = self.env.step(state.inner, action, key)
        after = self.level_state(BonusState(inner=inner, counts=state.counts))
        case = self._case(after, jnp.asarray(action, jnp.int32))
        # A scatter, because a selection would copy all counts.
        counts = state.counts.at[case].add(1)
        bonus = self._bonus(counts[case]).astype(timestep.reward.dtype)
        after = BonusState(inner=inner, counts=counts)
        return after, timestep.replace(reward=timestep.reward + bonus)


class ActionBonus(_BonusWrapper):
    """Adds 1 / sqrt(n) to the reward, the n-th time that an action leads to a place and direction.

    minigrid counts over all episodes of an instance. These counts are part of the state, and start
    again with each episode.

    Source: minigrid's ActionBonus.
    """

    @property
    def _count_shape(self) -> tuple[int, ...]:
        return self.minigrid.height, self.minigrid.width, 4, self.minigrid.action_space.n

    def _case(self, state: MiniGridState, action: jax.Array) -> tuple[jax.Array, ...]:
        return state.y, state.x, state.direction, action


class PositionBonus(_BonusWrapper):
    """Adds scale / sqrt(n) to the reward, the n-th time that a step ends in a cell.

    minigrid counts over all episodes of an instance. These counts are part of the state, and start
    again with each episode.

    Source: minigrid's PositionBonus.
    """

    scale: chex.Numeric = 1.0

    @property
    def _count_shape(self) -> tuple[int, ...]:
        return self.minigrid.height, self.minigrid.width

    def _case(self, state: MiniGridState, action: jax.Array) -> tuple[jax.Array, ...]:
        return state.y, state.x

    def _bonus(self, count: jax.Array) -> jax.Array:
        return super()._bonus(count) * self.scale


class StochasticAction(LevelWrapper):
    """Takes the given action with probability `prob`, and else a random one.

    Raises:
        WrapperError: `prob` is not between 0 and 1.

    Source: minigrid's StochasticActionWrapper.
    """

    prob: chex.Numeric = 0.9
    random_action: chex.Numeric | None = None  # instead of any action, all equally likely

    def __post_init__(self) -> None:
        super().__post_init__()
        prob: Any = self.prob
        if not struct.is_traced(prob) and not np.all((prob >= 0) & (prob <= 1)):
            raise WrapperError(f"StochasticAction got prob={prob}; it must be from 0 to 1.")

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self.env.reset(key)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        key, keep_key, action_key = jax.random.split(key, 3)
        if self.random_action is None:
            other = prng.randint(action_key, (), np.int32(self.minigrid.action_space.n))
        else:
            other = jnp.asarray(self.random_action, jnp.int32)
        keeps = jax.random.uniform(keep_key, (), jnp.float32) < self.prob
        return self.env.step(state, jnp.where(keeps, jnp.asarray(action, jnp.int32), other), key)


class NoDeath(LevelWrapper):
    """Adds `death_cost` to the reward where an episode would end in a cell with certain objects.

    The episode goes on. The objects are those in front of an agent that moves forward, and those in
    its cell after the step. `no_death_types` names them, such as "lava" or "ball".

    Raises:
        WrapperError: `no_death_types` is not a list of types of objects, or has "goal".

    Source: minigrid's NoDeath.
    """

    no_death_types: Sequence[str] = struct.static()
    death_cost: chex.Numeric = -1.0

    def __post_init__(self) -> None:
        names = self.no_death_types
        if isinstance(names, str) or not set(names) <= set(_TYPES):
            raise WrapperError(
                f"NoDeath got no_death_types={names!r}; it must be a list of types of objects, out"
                f" of {', '.join(_TYPES)}."
            )
        object.__setattr__(self, "no_death_types", tuple(names))  # hashable
        super().__post_init__()

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self.env.reset(key)

    def step(self, state: Any, action: Any, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        deadly = sum(_TYPES[name] for name in set(self.no_death_types))
        before = self.level_state(state)
        enters = (action == FORWARD) & cells.is_in(deadly, self.minigrid.front_cell(before))
        state, timestep = self.env.step(state, action, key)
        after = self.level_state(state)
        dies = timestep.terminated & (enters | cells.is_in(deadly, after.grid[after.y, after.x]))
        cost = jnp.where(dies, self.death_cost, 0).astype(timestep.reward.dtype)
        return state, timestep.replace(
            reward=timestep.reward + cost, terminated=timestep.terminated & ~dies
        )
