"""What a storage is: one that judges an unroll, or one that keeps transitions to draw from."""

import abc
from typing import Any, ClassVar, Self

import chex
import jax

from jaxenvs import struct
from jaxenvs.training.types import Sample, Segment, Transition


@struct.pytree_dataclass
class Storage:
    """What becomes of experience between its collection and its use. Numbers are leaves."""


@struct.pytree_dataclass
class OnPolicyStorage(Storage, abc.ABC):
    """Turns each unroll into advantages and targets, and keeps nothing beyond it."""

    corrects: ClassVar[bool] = False  # for actions of an older policy, through `log_ratio`

    @abc.abstractmethod
    def estimate(
        self, segment: Segment, *, gamma: chex.Numeric, gae_lambda: chex.Numeric
    ) -> tuple[jax.Array, jax.Array]:
        """float32[T, N] each: advantages for the policy, and targets for the critic."""


@struct.pytree_dataclass
class ReplayStorage(Storage, abc.ABC):
    """Keeps transitions on the device, and draws batches of them. All methods are pure."""

    def bind(self, env: Any) -> Self:
        """This storage with what it needs to know of the environment, a single one if there is one.

        Raises:
            TrainingError: the environment lacks it.
        """
        del env  # nothing
        return self

    @abc.abstractmethod
    def init(self, transition: Transition) -> Any:
        """An empty memory for unrolls shaped like `transition`, [T, N, ...]."""

    @abc.abstractmethod
    def add(self, state: Any, unroll: Transition) -> Any:
        """Takes in [T, N, ...] transitions, in place of the oldest where it is full."""

    def cut(self, state: Any) -> Any:
        """Ends the episodes under way: what is added next are steps of others.

        For memories in which rows belong together; what an episode's last step led to is still
        worth what the critic says.
        """
        return state

    @abc.abstractmethod
    def size(self, state: Any) -> jax.Array:
        """int32[]: how many transitions can be drawn."""

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
        """Draws `batch_size` rows with replacement, after so many environment steps."""

    def set_priorities(self, state: Any, index: Any, error: jax.Array) -> Any:
        """Tells how wrong the critic was about each row of a sample: float32[B], its TD error.

        Where it is NaN nothing was learned from the row, and its priority stays.
        """
        del index, error  # all rows are as likely
        return state
