"""What algorithms share that draw transitions from a memory."""

import abc
import warnings
from fractions import Fraction
from typing import Any, Self

import chex
import jax
import jax.numpy as jnp

from jaxenvs.errors import TrainingError
from jaxenvs.training.actors.base import Features, Networks
from jaxenvs.training.algorithms.base import Algorithm, Behavior, Parts
from jaxenvs.training.storages.base import ReplayStorage, Storage
from jaxenvs.training.storages.replay import Replay
from jaxenvs.training.types import LearnerState, Sample, Unroll


class OffPolicyAlgorithm(Algorithm):
    """Adds each unroll to a memory and takes gradient steps on what is drawn from there.

    A subclass has the fields that are named here, an `optimizer`, `explore` and `gradients`. With a
    `replay_ratio` of 0.25 it takes one gradient step for every four environment steps. If an unroll
    does not come to a whole number of gradient steps, some unrolls get one more than others.
    """

    storage_type = ReplayStorage

    gamma: float
    batch_size: int
    replay_ratio: float
    learning_starts: int

    def default_storage(self) -> Storage:
        return Replay()

    @abc.abstractmethod
    def explore(
        self, parts: Parts, behavior: Behavior, features: Features, key: chex.PRNGKey
    ) -> jax.Array:
        """N raw actions, after the first ones, which are random."""

    def divided(self, share: int) -> Self:
        if self.batch_size % share:
            raise TrainingError(
                f"{type(self).__name__} got batch_size={self.batch_size} for {share} devices."
                "  Choose one that they divide."
            )
        return self.replace(batch_size=self.batch_size // share)

    def check_steps(self, total_steps: int) -> None:
        starts = self.learning_starts
        if not isinstance(starts, jax.Array) and total_steps < starts:  # else a sweep over them
            warnings.warn(
                f"{type(self).__name__} got learning_starts={starts} and total_steps={total_steps}:"
                " it learns nothing.  Train for longer, or choose a smaller learning_starts.",
                stacklevel=4,
            )

    def act(
        self,
        parts: Parts,
        behavior: Behavior,
        carry: Any,
        features: Features,
        key: chex.PRNGKey,
    ) -> tuple[Any, jax.Array]:
        random_key, explore_key = jax.random.split(key)
        action = self.explore(parts, behavior, features, explore_key)
        starts = steps_of(parts, behavior.updates) < self.learning_starts
        random = parts.networks.random(features, random_key)
        return carry, jnp.where(starts, random, action)

    def gradient_steps(self, environment_steps: int) -> int:
        whole, part = self._gradient_steps(environment_steps)
        return whole + (part > 0)

    def gradient_steps_of(self, environment_steps: int, update: Any) -> Any:
        whole, part = self._gradient_steps(environment_steps)
        turn = update % part.denominator
        steps, turns = part.numerator, part.denominator
        return whole + (turn + 1) * steps // turns - turn * steps // turns

    def _gradient_steps(self, environment_steps: int) -> tuple[int, Fraction]:
        """Returns the whole steps that follow each unroll, and the fraction that is left."""
        steps = Fraction(self.replay_ratio).limit_denominator(10_000) * environment_steps
        return steps // 1, steps % 1

    @property
    def may_stop(self) -> bool:
        return True

    def waits(self, parts: Parts, learner_state: LearnerState) -> jax.Array:
        collected = steps_of(parts, learner_state.updates + 1)
        is_empty = parts.storage.size(learner_state.storage) == 0
        return (collected < self.learning_starts) | is_empty

    def begin(
        self, parts: Parts, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, None]:
        del key  # adding draws nothing
        storage = parts.storage.add(learner_state.storage, unroll.transition)
        return learner_state.replace(storage=storage), None

    def draw(
        self, parts: Parts, learner_state: LearnerState, work: None, index: Any, key: chex.PRNGKey
    ) -> Sample:
        del work, index  # all are drawn alike
        return parts.storage.sample(
            learner_state.storage,
            key,
            self.batch_size,
            gamma=self.gamma,
            steps=steps_of(parts, learner_state.updates),
        )

    def settle(
        self, parts: Parts, learner_state: LearnerState, batch: Sample, error: Any
    ) -> LearnerState:
        storage = parts.storage.set_priorities(learner_state.storage, batch.index, error)
        return learner_state.replace(storage=storage)


def steps_of(parts: Parts, updates: jax.Array) -> jax.Array:
    """float32[]: environment steps of so many updates, which int32 might not hold."""
    return updates.astype(jnp.float32) * parts.steps_per_update


def features_of(networks: Networks, sample: Sample) -> tuple[Features, Features]:
    """Those of the observations and of the next ones."""
    return networks.features(sample.observation), networks.features(sample.next_observation)
