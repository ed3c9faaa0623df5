"""The base class of tasks with a finite number of states and known transition probabilities."""

import abc
from typing import Any, ClassVar, Generic, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import spaces
from jaxenvs.core import Environment, TimeStep

S = TypeVar("S")


@chex.dataclass(frozen=True)
class TransitionTable:
    """All transitions of a task, [num_states, num_actions, num_outcomes].

    Outcomes that a state and an action do not have, have probability 0.
    """

    probability: jax.Array  # float32
    next_state: jax.Array  # int32
    reward: jax.Array  # float32
    terminated: jax.Array  # bool


@chex.dataclass(frozen=True)
class TabularState:
    """The index of the state."""

    s: jax.Array  # int32[]


class Tabular(Environment[S], Generic[S]):
    """A task with states 0 to num_states - 1, where each action has a few possible outcomes.

    A subclass defines `num_states`, `num_actions`, `initial_state`, `transition` and, if there is
    more than one outcome, `num_outcomes` and `probabilities`. `table` then gives all transitions,
    for planning.
    """

    num_actions: ClassVar[int]

    @property
    @abc.abstractmethod
    def num_states(self) -> int:
        """The number of states."""

    @property
    def num_outcomes(self) -> int:
        """The largest number of outcomes of an action. With 1, a step is deterministic."""
        return 1

    @abc.abstractmethod
    def initial_state(self, key: chex.PRNGKey) -> jax.Array:
        """Draws the index of the state in which an episode begins, int32[]."""

    @abc.abstractmethod
    def transition(
        self, s: jax.Array, action: jax.Array, which: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Returns the next state, int32[], the reward, float32[], and bool[], terminated.

        `which`, int32[], is the index of the outcome.
        """

    def probabilities(self, s: jax.Array, action: jax.Array) -> jax.Array:
        """Returns the probability of each outcome, float32[num_outcomes]."""
        del s, action
        return jnp.ones(1, jnp.float32)

    @property
    def table(self) -> TransitionTable:
        """All transitions: arrays of shape [num_states, num_actions, num_outcomes]."""

        def row(s: jax.Array, action: jax.Array) -> TransitionTable:
            which = jnp.arange(self.num_outcomes, dtype=jnp.int32)
            outcomes = jax.vmap(self.transition, (None, None, 0))(s, action, which)
            next_state, reward, terminated = outcomes
            return TransitionTable(
                probability=self.probabilities(s, action),
                next_state=next_state,
                reward=reward,
                terminated=terminated,
            )

        states = jnp.arange(self.num_states, dtype=jnp.int32)
        actions = jnp.arange(self.num_actions, dtype=jnp.int32)
        return jax.vmap(jax.vmap(row, (None, 0)), (0, None))(states, actions)

    @property
    def observation_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.num_states)

    @property
    def action_space(self) -> spaces.Discrete:
        return spaces.Discrete(self.num_actions)

    def reset(self, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        s = self.initial_state(key)
        return TabularState(s=s), TimeStep.first(s, info={"prob": jnp.float32(1)})

    def draw(self, state: Any, key: chex.PRNGKey) -> Any:
        """Draws the number in [0, 1) that selects the outcome; None if there is only one."""
        del state
        if self.num_outcomes == 1:
            return None
        return jax.random.uniform(key, (), jnp.float32)

    def apply(self, state: Any, action: chex.Array, draws: Any) -> tuple[Any, TimeStep]:
        """Takes a step whose outcome is selected by `draws`, the result of `draw`."""
        s, reward, terminated, probability = self._transition_at(state.s, action, draws)
        timestep = TimeStep.transition(
            s, reward=reward, terminated=terminated, info={"prob": probability}
        )
        return TabularState(s=s), timestep

    def step(self, state: Any, action: chex.Array, key: chex.PRNGKey) -> tuple[Any, TimeStep]:
        return self.apply(state, action, self.draw(state, key))

    def _transition_at(
        self, s: jax.Array, action: chex.Array, u: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
        """Returns next state, reward, termination, and probability of the outcome at `u`."""
        action = jnp.asarray(action, jnp.int32)
        if u is None:
            return *self.transition(s, action, jnp.int32(0)), jnp.float32(1)
        probabilities = self.probabilities(s, action)
        # The last sum is left out, because it may be rounded to less than u.
        which = (jnp.cumsum(probabilities)[:-1] <= u).sum(dtype=jnp.int32)
        chosen = np.arange(self.num_outcomes, dtype=np.int32) == which
        probability = jnp.where(chosen, probabilities, 0).sum()
        return *self.transition(s, action, which), probability

    def _observe(self, state: TabularState) -> jax.Array:
        return state.s


def move(
    row: jax.Array, column: jax.Array, down: jax.Array, right: jax.Array, shape: tuple[int, int]
) -> tuple[jax.Array, jax.Array]:
    """Returns the cell after a move on a board of `shape`, at whose edge it stops."""
    return jnp.clip(row + down, 0, shape[0] - 1), jnp.clip(column + right, 0, shape[1] - 1)


def sign(positive: jax.Array, negative: jax.Array) -> jax.Array:
    """Returns 1, -1, or 0 as int32, for two masks that are never both true."""
    return positive.astype(jnp.int32) - negative.astype(jnp.int32)
