"""What flows between environments, actors, storages and algorithms.

T is the length of an unroll, N the number of instances, B the rows of a batch in any order.
"""

from typing import TYPE_CHECKING, Any, Self

import chex
import jax
import optax

from jaxenvs.wrappers.statistics import RunningStatistics


@chex.dataclass(frozen=True)
class Transition:
    """One step as it happened; leading axes are [T, N] in an unroll and [B] in a batch.

    Where an episode ended, `next_observation` is what the step itself led to, never the first
    observation of the episode after it.
    """

    observation: chex.ArrayTree
    action: chex.ArrayTree  # raw, as the actor's distribution has it
    reward: jax.Array  # float32
    terminated: jax.Array  # bool
    truncated: jax.Array  # bool
    next_observation: chex.ArrayTree

    if TYPE_CHECKING:  # chex adds it, unseen by type checkers

        def replace(self, **changes: Any) -> Self: ...

    @property
    def done(self) -> jax.Array:
        """bool: the episode is over, for either reason."""
        return self.terminated | self.truncated


@chex.dataclass(frozen=True)
class EpisodesUnderWay:
    """What the current episode of each instance has brought so far."""

    episode_return: jax.Array  # float32[N], since the last reset
    episode_length: jax.Array  # int32[N]
    discounted_return: jax.Array  # float32[N], what normalized rewards are scaled by
    is_whole: jax.Array | None = None  # bool[N], from its first step on; None: all are

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


@chex.dataclass(frozen=True)
class Collector:
    """Where collecting stands: N instances in mid-episode."""

    env_state: chex.ArrayTree
    observation: chex.ArrayTree  # [N, ...], what to act on next
    carry: Any  # what a recurrent actor remembers
    episodes: EpisodesUnderWay

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


@chex.dataclass(frozen=True)
class Unroll:
    """T steps of N instances, as they happened, and what is needed to judge them."""

    transition: Transition  # [T, N, ...]
    last_observation: chex.ArrayTree  # [N, ...], what the next unroll starts from
    carry: Any  # what the actor remembered at the start
    log_prob: jax.Array | None  # float32[T, N], of the actions under the policy that acted
    episodes: EpisodesUnderWay  # [T, N], as of each step
    ended: jax.Array  # bool[T, N], whole episodes that ended with the step
    info: dict[str, jax.Array]  # [T, N], what is logged of the environments' `info`


@chex.dataclass(frozen=True)
class Weights:
    """What gradient steps change."""

    params: dict[str, Any]  # of the networks, and what else is learned by gradients
    target_params: Any  # slow copies of some; () without any
    optimizer_state: optax.OptState
    gradient_steps: jax.Array  # int32[], taken so far

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


@chex.dataclass(frozen=True)
class LearnerState:
    """All that a training carries from one update to the next."""

    weights: Weights
    updates: jax.Array  # int32[], done so far
    key: chex.PRNGKey
    storage: Any  # what a replay storage holds; () for others
    collector: Collector
    observation_statistics: RunningStatistics | None  # None: observations are not normalized
    return_statistics: RunningStatistics | None  # None: rewards are not normalized
    recent_episodes: jax.Array  # float32[3 + I, K], see `collecting.noted`

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...

    @property
    def params(self) -> dict[str, Any]:
        """The networks' weights."""
        return self.weights.params


@chex.dataclass(frozen=True)
class Segment:
    """What advantages are estimated from: T steps of N instances, judged by a critic."""

    reward: jax.Array  # float32[T, N], what step t paid
    value: jax.Array  # float32[T, N], the critic at the observation that step t acted on
    next_value: jax.Array  # float32[T, N], at what step t led to; not read where terminated
    terminated: jax.Array  # bool[T, N]
    truncated: jax.Array  # bool[T, N]
    log_ratio: jax.Array  # float32[T, N], log pi(a) - log mu(a): the policy now, the one that acted

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...


@chex.dataclass(frozen=True)
class Sample:
    """What a replay storage gives to an algorithm: B rows to regress a value on.

    The target is `reward + discount * value(next_observation)`.
    """

    observation: chex.ArrayTree
    action: chex.ArrayTree
    reward: jax.Array  # float32[B], discounted sum over the steps that lie between
    discount: jax.Array  # float32[B], gamma to the number of these steps; 0 where terminated
    next_observation: chex.ArrayTree
    weight: jax.Array  # float32[B], of the row's loss; 1 unless some are drawn more often
    index: chex.ArrayTree  # where the rows lie, for `set_priorities`

    if TYPE_CHECKING:

        def replace(self, **changes: Any) -> Self: ...
