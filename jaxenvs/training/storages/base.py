"""What a storage is: one that judges an unroll, or one that keeps transitions to draw from."""

import abc
from typing import Any, ClassVar

import chex
import jax

from jaxenvs import struct
from jaxenvs.training.types import Sample, Segment, Transition


@struct.pytree_dataclass
class Storage(abc.ABC):
    """What becomes of experience between its collection and its use. Numbers are leaves."""


@struct.pytree_dataclass
class OnPolicyStorage(Storage):
    """Turns each unroll into advantages and targets, and keeps nothing beyond it."""

    corrects: ClassVar[bool] = False  # for actions of an older policy, through `log_ratio`

    @abc.abstractmethod
    def estimate(
        self, segment: Segment, *, gamma: chex.Numeric, gae_lambda: chex.Numeric
    ) -> tuple[jax.Array, jax.Array]:
        """float32[T, N] each: advantages for the policy, and targets for the critic."""


@struct.pytree_dataclass
class ReplayStorage(Storage):
    """Keeps transitions on the device, and draws batches of them. All methods are pure."""

    @abc.abstractmethod
    def init(self, transition: Transition) -> Any:
        """An empty memory for unrolls like `transition`, [T, N, ...], of which only shapes count."""

    @abc.abstractmethod
    def add(self, state: Any, unroll: Transition) -> Any:
        """Takes in [T, N, ...] transitions, in place of the oldest where it is full."""

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
        progress: chex.Numeric,
    ) -> Sample:
        """Draws `batch_size` rows with replacement; `progress` runs from 0 to 1 over the training."""

    def set_priorities(self, state: Any, index: Any, error: jax.Array) -> Any:
        """Tells how wrong the critic was about each row of a sample: float32[B], its TD error."""
        del index, error  # all rows are as likely
        return state
