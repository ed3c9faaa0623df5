"""Base classes of storages."""

import abc
from typing import Any, ClassVar, Self

import chex
import jax

from jaxenvs import struct
from jaxenvs.training.types import Sample, Transition, ValuedUnroll


@struct.pytree_dataclass
class Storage:
    """The base class of storages, pytrees that prepare collected experience for learning."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        struct.check_annotations(cls)  # also if it is not decorated


@struct.pytree_dataclass
class OnPolicyStorage(Storage, abc.ABC):
    """A storage that turns each unroll into advantages and targets, and keeps no data."""

    corrects: ClassVar[bool] = False  # whether `log_ratio` corrects for an older policy

    @abc.abstractmethod
    def estimate(
        self, unroll: ValuedUnroll, *, gamma: chex.Numeric, gae_lambda: chex.Numeric
    ) -> tuple[jax.Array, jax.Array]:
        """Returns advantages for the policy and targets for the critic, float32[T, N] each."""


@struct.pytree_dataclass
class ReplayStorage(Storage, abc.ABC):
    """A memory that keeps transitions on the device and samples batches. All methods are pure."""

    def bind(self, env: Any) -> Self:
        """Returns a copy with the functions and numbers that it needs from the environment.

        Raises:
            TrainingError: the environment lacks one.
        """
        del env  # nothing is needed
        return self

    @abc.abstractmethod
    def init(self, transition: Transition) -> Any:
        """Returns an empty memory for unrolls shaped like `transition`, [T, N, ...]."""

    @abc.abstractmethod
    def add(self, state: Any, unroll: Transition) -> Any:
        """Adds [T, N, ...] transitions, which replace the oldest if the memory is full."""

    def truncate(self, state: Any) -> Any:
        """Truncates the current episodes, because the next transitions belong to others.

        Only memories that relate rows to each other need this.
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

        A row with NaN keeps its priority, because its gradient step was skipped.
        """
        del index, error  # all rows are equally likely
        return state
