"""What algorithms share that draw transitions from a memory."""

from typing import Any

import chex
import jax
import jax.numpy as jnp

from jaxenvs.training.actors.base import Features, Networks
from jaxenvs.training.algorithms.base import Algorithm, Behaviour, Metrics, Parts
from jaxenvs.training.storages.base import ReplayStorage, Storage
from jaxenvs.training.storages.replay import Replay
from jaxenvs.training.types import LearnerState, Sample, Unroll


class OffPolicyAlgorithm(Algorithm):
    """Adds each unroll to a memory and takes gradient steps on what is drawn from there.

    A subclass has the fields that are named here, an `optimiser`, `explore` and `gradients`.
    """

    storage_type = ReplayStorage

    gamma: float
    batch_size: int
    gradient_steps: int
    learning_starts: int

    def default_storage(self) -> Storage:
        return Replay()

    def explore(
        self, parts: Parts, behaviour: Behaviour, features: Features, key: chex.PRNGKey
    ) -> jax.Array:
        """N raw actions, after the first ones, which are random."""
        raise NotImplementedError

    def act(
        self,
        parts: Parts,
        behaviour: Behaviour,
        carry: Any,
        features: Features,
        key: chex.PRNGKey,
    ) -> tuple[Any, jax.Array]:
        random_key, explore_key = jax.random.split(key)
        action = self.explore(parts, behaviour, features, explore_key)
        starts = behaviour.updates * parts.steps_per_update < self.learning_starts
        random = parts.networks.random(features, random_key)
        return carry, jnp.where(starts, random, action)

    def learn(
        self, parts: Parts, learner_state: LearnerState, unroll: Unroll, key: chex.PRNGKey
    ) -> tuple[LearnerState, Metrics]:
        storage_state = parts.storage.add(learner_state.storage, unroll.transition)
        collected = (learner_state.updates + 1) * parts.steps_per_update
        starts = (collected < self.learning_starts) | (parts.storage.size(storage_state) == 0)
        progress = progress_of(parts, learner_state.updates)

        def gradient_step(carry, key):
            weights, storage_state = carry
            sample_key, gradient_key = jax.random.split(key)
            sample = parts.storage.sample(
                storage_state,
                sample_key,
                self.batch_size,
                gamma=self.gamma,
                progress=progress,
            )

            def learn():
                gradients, losses, error = self.gradients(parts, weights, sample, gradient_key)
                return self.apply_gradients(parts, weights, gradients), losses, error

            def wait():
                _, *unknown = jax.eval_shape(learn)
                losses, error = jax.tree.map(lambda x: jnp.full(x.shape, jnp.nan), unknown)
                return weights, losses, error

            # Only the weights pass through the branches: a memory would be copied there.
            weights, losses, error = jax.lax.cond(starts, wait, learn)
            storage_state = parts.storage.set_priorities(storage_state, sample.index, error)
            return (weights, storage_state), losses

        (weights, storage_state), losses = jax.lax.scan(
            gradient_step,
            (learner_state.weights, storage_state),
            jax.random.split(key, self.gradient_steps),
        )
        learner_state = learner_state.replace(weights=weights, storage=storage_state)
        return learner_state, jax.tree.map(jnp.nanmean, losses)  # NaN: not computed in that step


def progress_of(parts: Parts, updates: jax.Array) -> jax.Array:
    """float32[]: how much of the training is over, from 0 to 1."""
    return jnp.minimum(updates.astype(jnp.float32) / parts.num_updates, 1.0)


def features_of(networks: Networks, sample: Sample) -> tuple[Features, Features]:
    """Those of the observations and of the next ones."""
    return networks.features(sample.observation), networks.features(sample.next_observation)
