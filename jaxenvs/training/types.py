"""Data types shared by actors, storages and algorithms.

T is the length of an unroll, N the number of instances, B the rows of a batch in any order.
"""

from typing import TYPE_CHECKING, Any, Self

import chex
import jax
import optax

from jaxenvs.wrappers.statistics import RunningStatistics


@chex.dataclass(frozen=True)
class Transition:
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

    if TYPE_CHECKING:  # chex adds `replace` at run time; type checkers do not see it

        def replace(self, **changes: Any) -> Self: ...

    @property
    def done(self) -> jax.Array:
        """bool: True if the episode terminated or was truncated."""
        return self.terminated | self.truncated


@chex.dataclass(frozen=True)
class RunningEpisodes:
    """Running sums of the current episode of each instance."""

    episode_return: jax.Array  # float32[N], since the last reset
    episode_length: jax.Array  # int32[N]
    discounted_return: jax.Array  # float32[N], to normalize rewards
    is_whole: jax.Array | None = None  # bool[N], whether it has the first step; None: all True

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


@chex.dataclass(frozen=True)
class CollectorState:
    """The state of collection: N instances in mid-episode."""

    env_state: chex.ArrayTree
    observation: chex.ArrayTree  # [N, ...], the input for the next action
    carry: Any  # the memory of a recurrent actor
    episodes: RunningEpisodes

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


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
class Weights:
    """Everything that gradient steps change."""

    params: dict[str, Any]  # of the networks, and others with gradients
    target_params: Any  # of target networks; () without any
    optimizer_state: optax.OptState
    gradient_steps: jax.Array  # int32[], taken so far

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


@chex.dataclass(frozen=True)
class LearnerState:
    """Everything that a training carries from one update to the next."""

    weights: Weights
    updates: jax.Array  # int32[], done so far
    key: chex.PRNGKey
    storage: Any  # the contents of a replay storage; () for others
    collector: CollectorState
    observation_statistics: RunningStatistics | None  # None: observations are not normalized
    return_statistics: RunningStatistics | None  # None: rewards are not normalized
    recent_episodes: jax.Array  # float32[3 + I, K], see `collecting.add_episodes`

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...

    @property
    def params(self) -> dict[str, Any]:
        """The networks' weights."""
        return self.weights.params


@chex.dataclass(frozen=True)
class ValuedUnroll:
    """T steps of N instances with a critic's values, from which advantages are estimated."""

    reward: jax.Array  # float32[T, N], of step t
    value: jax.Array  # float32[T, N], of the observation before step t
    next_value: jax.Array  # float32[T, N], of the observation after step t; unused if terminated
    terminated: jax.Array  # bool[T, N]
    truncated: jax.Array  # bool[T, N]
    log_ratio: jax.Array  # float32[T, N], log pi(a) - log mu(a): the policy now, the one that acted

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


@chex.dataclass(frozen=True)
class Sample:
    """A batch from a replay storage: B rows to regress a value on.

    The target is `reward + discount * value(next_observation)`.
    """

    observation: chex.ArrayTree
    action: chex.ArrayTree
    reward: jax.Array  # float32[B], discounted sum over the steps in between
    discount: jax.Array  # float32[B], gamma to the number of these steps; 0 where terminated
    next_observation: chex.ArrayTree
    weight: jax.Array  # float32[B], of the row's loss; 1 if all are equally likely
    index: chex.ArrayTree  # of the rows, for `set_priorities`

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...
