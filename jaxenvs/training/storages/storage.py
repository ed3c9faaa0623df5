"""Base classes of storages."""

import abc
from typing import Any, ClassVar, Self

import chex
import jax

from jaxenvs import struct
from jaxenvs.training.types import Sample, Transition, ValuedUnroll


@struct.pytree_dataclass
class Storage:
    """Processes experience between its collection and its use. Numbers are leaves."""


@struct.pytree_dataclass
class OnPolicyStorage(Storage, abc.ABC):
    """Turns each unroll into advantages and targets, and keeps nothing."""

    corrects: ClassVar[bool] = False  # for actions of an older policy, through `log_ratio`

    @abc.abstractmethod
    def estimate(
        self, unroll: ValuedUnroll, *, gamma: chex.Numeric, gae_lambda: chex.Numeric
    ) -> tuple[jax.Array, jax.Array]:
        """Returns advantages for the policy and targets for the critic, float32[T, N] each."""


@struct.pytree_dataclass
class ReplayStorage(Storage, abc.ABC):
    """Keeps transitions on the device and samples batches of them. All methods are pure."""

    def bind(self, env: Any) -> Self:
        """Returns this storage with what it needs from the environment.

        Raises:
            TrainingError: the environment lacks it.
        """
        del env  # nothing
        return self

    @abc.abstractmethod
    def init(self, transition: Transition) -> Any:
        """Returns an empty memory for unrolls shaped like `transition`, [T, N, ...]."""

    @abc.abstractmethod
    def add(self, state: Any, unroll: Transition) -> Any:
        """Adds [T, N, ...] transitions, which replace the oldest if the memory is full."""

    def truncate(self, state: Any) -> Any:
        """Truncates the current episodes: the next transitions belong to others.

        This matters to memories that relate rows to each other.
        """
        return state

    @abc.abstractmethod
    def size(self, state: Any) -> jax.Array:
        """Returns the number of transitions that can be drawn, int32[]."""

    @abc.abstractmethod
    def sample(
        self,
        state: Any,
        key: chex.PRNGKey,
        batch_size: int,
        *,
        gamma: chex.Numeric,
        steps: chex.Numeric,
    ) -> Sample:
        """Draws `batch_size` rows with replacement, after `steps` environment steps."""

    def set_priorities(self, state: Any, index: Any, error: jax.Array) -> Any:
        """Sets priorities by the TD error of each row of a sample, float32[B].

        A row with NaN keeps its priority: nothing was learned from it.
        """
        del index, error  # all rows are equally likely
        return state
