"""Data types shared by actors, storages and algorithms.

T is the length of an unroll, N the number of instances, B the rows of a batch in any order.
"""

from typing import TYPE_CHECKING, Any, Self

import chex
import jax
import optax

from jaxenvs.wrappers.statistics import RunningStatistics


class _Replaceable:
    """Shows type checkers the method that chex adds at run time."""

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


@chex.dataclass(frozen=True)
class Transition(_Replaceable):
    """One step; leading axes are [T, N] in an unroll and [B] in a batch.

    At the end of an episode, `next_observation` is its final observation, never the first
    observation of the next episode.
    """

    observation: chex.ArrayTree
    action: chex.ArrayTree  # a raw action of the actor's distribution
    reward: jax.Array  # float32
    terminated: jax.Array  # bool
    truncated: jax.Array  # bool
    next_observation: chex.ArrayTree

    @property
    def done(self) -> jax.Array:
        """bool: True if the episode terminated or was truncated."""
        return self.terminated | self.truncated


@chex.dataclass(frozen=True)
class RunningEpisodes(_Replaceable):
    """Running sums of the current episode of each instance."""

    episode_return: jax.Array  # float32[N], since the last reset
    episode_length: jax.Array  # int32[N]
    discounted_return: jax.Array  # float32[N], to normalize rewards
    is_whole: jax.Array | None = None  # bool[N], whether it has the first step; None: all True


@chex.dataclass(frozen=True)
class CollectorState(_Replaceable):
    """The state of collection: N instances in mid-episode."""

    env_state: chex.ArrayTree
    observation: chex.ArrayTree  # [N, ...], the input for the next action
    carry: Any  # the memory of a recurrent actor
    episodes: RunningEpisodes


@chex.dataclass(frozen=True)
class Unroll:
    """T steps of N instances, with all data that learning needs."""

    transition: Transition  # [T, N, ...]
    last_observation: chex.ArrayTree  # [N, ...], the first of the next unroll
    carry: Any  # the memory of a recurrent actor at the start
    log_prob: jax.Array | None  # float32[T, N], of the actions under the policy that acted
    episodes: RunningEpisodes  # [T, N], as of each step
    ended: jax.Array  # bool[T, N], whether a whole episode ended
    info: dict[str, jax.Array]  # [T, N], entries of `info` to log


@chex.dataclass(frozen=True)
class Weights(_Replaceable):
    """The part of a learner state that gradient steps update."""

    params: dict[str, Any]  # weights of the networks and other trained parameters
    target_params: Any  # weights of target networks, or () without target networks
    optimizer_state: optax.OptState
    gradient_steps: jax.Array  # int32[], taken so far


@chex.dataclass(frozen=True)
class LearnerState(_Replaceable):
    """The complete state of a training run between two updates."""

    weights: Weights
    updates: jax.Array  # int32[], done so far
    steps_per_update: jax.Array  # int32[], environment steps in each of these updates
    key: chex.PRNGKey
    storage: Any  # the content of a replay memory, or () for other storages
    collector: CollectorState
    observation_statistics: RunningStatistics | None  # None: observations are not normalized
    return_statistics: RunningStatistics | None  # None: rewards are not normalized
    recent_episodes: jax.Array  # float32[3 + I, K], see `collection.add_episodes`
    curriculum: Any = ()  # the state of a curriculum, or () without one

    @property
    def params(self) -> dict[str, Any]:
        """The networks' weights."""
        return self.weights.params


@chex.dataclass(frozen=True)
class ValuedUnroll(_Replaceable):
    """T steps of N instances with a critic's values, the input of advantage estimators."""

    reward: jax.Array  # float32[T, N], of step t
    value: jax.Array  # float32[T, N], of the observation before step t
    next_value: jax.Array  # float32[T, N], of the observation after step t; unused if terminated
    terminated: jax.Array  # bool[T, N]
    truncated: jax.Array  # bool[T, N]
    log_ratio: jax.Array  # float32[T, N], log pi(a) - log mu(a), where mu is the policy that acted


@chex.dataclass(frozen=True)
class Sample(_Replaceable):
    """A batch of B rows from a replay memory.

    The value target is `reward + discount * value(next_observation)`.
    """

    observation: chex.ArrayTree
    action: chex.ArrayTree
    reward: jax.Array  # float32[B], discounted sum over the steps of the window
    discount: jax.Array  # float32[B], gamma to the number of these steps; 0 where terminated
    next_observation: chex.ArrayTree
    weight: jax.Array  # float32[B], weights of the losses; 1 if all rows are equally likely
    index: chex.ArrayTree  # indices of the rows, for `set_priorities`
