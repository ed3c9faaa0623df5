"""The base class of off-policy algorithms, which learn from a replay memory."""

import abc
import warnings
from fractions import Fraction
from typing import Annotated, Any, Self

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.errors import TrainingError
from jaxenvs.training.actors.actor import Features, Networks
from jaxenvs.training.algorithms.algorithm import Algorithm, BehaviorPolicy, TrainContext, steps_of
from jaxenvs.training.ranges import Range
from jaxenvs.training.storages.replay import Replay
from jaxenvs.training.storages.storage import ReplayStorage, Storage
from jaxenvs.training.types import LearnerState, Sample, Unroll

ReplayRatio = Annotated[
    float, Range("must be 1e-4 or more", lambda value: (value >= 1e-4) & (value < np.inf))
]


class OffPolicyAlgorithm(Algorithm):
    """An algorithm that adds each unroll to a replay memory and learns from samples of it.

    A subclass has the fields below and defines `optimizer`, `explore` and `gradients`. With a
    `replay_ratio` of 0.25 it takes one gradient step for every four environment steps. If that is
    not a whole number for each unroll, some unrolls get one more step than others.
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
        self, context: TrainContext, behavior: BehaviorPolicy, features: Features, key: chex.PRNGKey
    ) -> jax.Array:
        """Returns N raw actions. Called once the initial random actions are over."""

    def per_device(self, share: int) -> Self:
        if self.batch_size % share:
            raise TrainingError(
                f"{type(self).__name__} got batch_size={self.batch_size} for {share} devices."
                f"  Pass a multiple of {share}."
            )
        return self.replace(batch_size=self.batch_size // share)

    def check_steps(self, total_steps: int) -> None:
        starts = self.learning_starts
        if not isinstance(starts, jax.Array) and total_steps < starts:  # a sweep has an array
            warnings.warn(
                f"{type(self).__name__} got learning_starts={starts} and total_steps={total_steps}:"
                " it learns nothing.  Increase total_steps, or decrease learning_starts.",
                stacklevel=4,
            )

    def act(
        self,
        context: TrainContext,
        behavior: BehaviorPolicy,
        carry: Any,
        features: Features,
        key: chex.PRNGKey,
    ) -> tuple[Any, jax.Array]:
        random_key, explore_key = jax.random.split(key)
        action = self.explore(context, behavior, features, explore_key)
        starts = steps_of(context, behavior.updates) < self.learning_starts
        random = context.networks.random(features, random_key)
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
        """Returns the whole gradient steps after each unroll and the remaining fraction."""
        steps = Fraction(self.replay_ratio).limit_denominator(10_000) * environment_steps
        return steps // 1, steps % 1

    @property
    def may_skip_steps(self) -> bool:
        return True

    def is_warming_up(self, context: TrainContext, learner_state: LearnerState) -> jax.Array:
        collected = steps_of(context, learner_state.updates + 1)
        is_empty = context.storage.size(learner_state.storage) == 0
        return (collected < self.learning_starts) | is_empty

    def process_unroll(
        self, context: TrainContext, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, None]:
        del key  # adding is deterministic
        storage = context.storage.add(learner_state.storage, unroll.transition)
        return learner_state.replace(storage=storage), None

    def draw_batch(
        self,
        context: TrainContext,
        learner_state: LearnerState,
        work: None,
        index: Any,
        key: chex.PRNGKey,
    ) -> Sample:
        del work, index  # all batches are drawn the same way
        return context.storage.sample(
            learner_state.storage,
            key,
            self.batch_size,
            gamma=self.gamma,
            steps=steps_of(context, learner_state.updates),
        )

    def update_priorities(
        self, context: TrainContext, learner_state: LearnerState, batch: Sample, error: Any
    ) -> LearnerState:
        storage = context.storage.set_priorities(learner_state.storage, batch.index, error)
        return learner_state.replace(storage=storage)


def sample_features(networks: Networks, sample: Sample) -> tuple[Features, Features]:
    """Returns the features of the observations and of the next observations."""
    return networks.features(sample.observation), networks.features(sample.next_observation)
