"""Workers that compute gradients, in threads or Ray actors."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from jaxenvs.training.algorithms.algorithm import Algorithm, BehaviorPolicy
from jaxenvs.training.collection import sum_ended_episodes
from jaxenvs.training.schemes.sources import UnrollSource, make_source
from jaxenvs.training.schemes.spec import TrainingSpec
from jaxenvs.training.storages.storage import ReplayStorage
from jaxenvs.training.train_program import Train
from jaxenvs.training.types import LearnerState, Unroll, Weights


class GradientWorker:
    """A worker that computes gradients on its own collectors' unrolls, with received weights."""

    def __init__(self, spec: TrainingSpec, index: int) -> None:
        self._spec, self._index, self._train = spec, index, spec.train
        self._source = make_source(spec, index)
        self._truncates = needs_truncation(self._train, self._source)
        self._state: Any = None
        self._work: Any = None
        self._step = self._num_unrolls = 0  # gradient steps on this unroll; unrolls so far
        self._num_steps = 0  # gradient steps on this unroll that are not skipped
        self._should_stop = False  # whether to skip the remaining steps on this unroll
        self._weights: Any = None  # for a decentralized update

    def start_unroll(self, algorithm: Algorithm, weights: Weights, updates: int) -> dict[str, Any]:
        """Fetches the next unroll. Returns its finished episodes and its metrics."""
        state, self._train = self._state, self._train.replace(algorithm=algorithm)
        if state is None:  # its weights are not used
            state = init_learner(self._train, self._spec.key(2, self._index))
        behavior = BehaviorPolicy(
            params=weights.params,
            observation_statistics=None,
            updates=jnp.int32(updates),
        )
        self._num_unrolls += 1
        unroll = self._source.next_unroll(algorithm, behavior)
        key = self._spec.key(3, self._index, updates, self._num_unrolls)
        state = state.replace(weights=(), updates=jnp.int32(updates))
        storage, state = state.storage, state.replace(storage=())
        self._state, self._work, metrics = _process(
            self._train, state, storage, weights, unroll, key, self._truncates
        )
        self._step, self._key, self._should_stop = 0, key, False
        is_sync = self._spec.scheme.gradients.sync
        steps = self._train.context.steps_per_update // (1 if is_sync else self._train.learners)
        turn = updates if is_sync else self._num_unrolls - 1
        self._num_steps = int(algorithm.gradient_steps_of(steps, turn))
        self._weights = weights
        report = jax.device_get({"ended": _ended(unroll), **metrics})
        return {**report, "collection_lag": self._source.lag}

    def compute_gradient(
        self, algorithm: Algorithm, weights: Weights | None, updates: int
    ) -> tuple[Any, Any]:
        """Returns the next gradient on this unroll and the losses, or None for a skipped step.

        Without `weights`, it uses those that `apply` has updated. After a restart, it starts a new
        unroll, or returns None if `weights` are not given.
        """
        weights = self._weights if weights is None else weights
        if weights is None:
            return None, None
        if self._state is None:
            self.start_unroll(algorithm, weights, updates)
        if self._step >= self._num_steps:
            self._step += 1
            return None, None
        state: Any = self._state
        key = jax.random.fold_in(self._key, self._step)
        storage, state = state.storage, state.replace(storage=())
        gradients, losses, is_warming_up, should_stop, self._state = _gradient(
            self._train, state, storage, weights, self._work, self._step, key
        )
        self._step += 1
        if algorithm.may_skip_steps:
            self._should_stop = bool(should_stop)
        return (None, None) if bool(is_warming_up) else (gradients, losses)

    def next_gradient(
        self, algorithm: Algorithm, weights: Weights, updates: int
    ) -> tuple[Any, Any, dict[str, Any]]:
        """Calls `compute_gradient`, after `start_unroll` if the last unroll is used up.

        Returns None for steps after `should_stop`, which count but are skipped.
        """
        report: dict[str, Any] = {}
        if self._state is None or self._step >= gradient_steps_per_worker(self._train):
            report = self.start_unroll(algorithm, weights, updates)
        if self._should_stop:
            self._step += 1
            return None, None, report
        return *self.compute_gradient(algorithm, weights, updates), report

    def apply(self, gradients: Any) -> None:
        """Applies the mean gradient of a decentralized update."""
        if self._weights is not None:
            self._weights, _ = apply_gradients(self._train, self._weights, gradients)

    def discard(self) -> None:
        """Drops the current unroll and empties the replay memory."""
        self._source.discard()
        self._state = self._work = self._weights = None

    def finish_early(self, number: int) -> None:
        """Does nothing, because a gradient step cannot end early."""

    def close(self) -> None:
        """Closes the collectors."""
        self._source.close()


def gradient_steps_per_worker(train: Train) -> int:
    """Returns the gradient steps on one worker's unroll if each applies its own gradients."""
    return train.algorithm.gradient_steps(train.context.steps_per_update // train.learners)


def needs_truncation(train: Train, source: UnrollSource) -> bool:
    """Returns whether episodes in memory must be truncated, because the next unroll has others."""
    return isinstance(train.storage, ReplayStorage) and not source.is_continuous


def truncate_unroll(unroll: Unroll) -> Unroll:
    """Truncates every episode at the end of the unroll.

    Replay memories sum rewards and choose goals along a column, which another instance may
    continue.
    """
    steps = unroll.transition
    last = jnp.zeros_like(steps.truncated).at[-1].set(True)
    truncated = steps.truncated | (last & ~steps.terminated)
    return dataclasses.replace(unroll, transition=steps.replace(truncated=truncated))


@jax.jit
def init_learner(train: Train, key: Any) -> LearnerState:
    """Returns the initial state of a learner without a collector of its own."""
    like = jax.eval_shape(train.init_collector, key)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like.observation)
    nothing: Any = ()
    learner_state = train.init_learner(key, like.replace(observation=zeros))
    return learner_state.replace(collector=nothing)


_ended = jax.jit(sum_ended_episodes)


@functools.partial(jax.jit, donate_argnames="storage", static_argnames="truncates")
def _process(
    train: Train, state: Any, storage: Any, weights: Any, unroll: Unroll, key: Any, truncates: bool
) -> Any:
    state = state.replace(weights=weights, storage=storage)
    unroll = truncate_unroll(unroll) if truncates else unroll
    state, work = train.algorithm.process_unroll(train.context, state, unroll, key)
    return state.replace(weights=()), work, train.algorithm.unroll_metrics(train.context, work)


@functools.partial(jax.jit, donate_argnames="storage")
def _gradient(
    train: Train, state: Any, storage: Any, weights: Any, work: Any, step: Any, key: Any
) -> Any:
    algorithm, context = train.algorithm, train.context
    draw_key, gradient_key = jax.random.split(key)
    state = state.replace(weights=weights, storage=storage)
    is_warming_up = algorithm.is_warming_up(context, state)
    batch = algorithm.draw_batch(context, state, work, step, draw_key)
    gradients, losses, error = algorithm.compute_gradients(context, weights, batch, gradient_key)
    if error is not None:
        error = jnp.where(is_warming_up, jnp.nan, error)
    state = algorithm.update_priorities(context, state, batch, error)
    should_stop = algorithm.should_stop(losses)
    return gradients, losses, is_warming_up, should_stop, state.replace(weights=())


@functools.partial(jax.jit, static_argnames="share")
def apply_gradients(train: Train, weights: Weights, gradients: Any, share: int = 1) -> Any:
    """Applies a gradient and returns the new weights and metrics.

    Schedules expect one gradient where there are `share`.
    """
    context = train.context
    context = dataclasses.replace(context, num_updates=context.num_updates * share)  # for schedules
    reported = train.algorithm.gradient_metrics(context, weights, gradients)
    return train.algorithm.apply_gradients(context, weights, gradients), reported
