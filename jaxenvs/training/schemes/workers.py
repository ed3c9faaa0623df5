"""Workers that collect or compute gradients, in threads or Ray actors."""

import abc
import contextlib
import dataclasses
import functools
import inspect
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.bridge.jit import HostEnv
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.training.algorithms.algorithm import Algorithm, BehaviorPolicy
from jaxenvs.training.assembly import assemble, default_algorithm, resolve
from jaxenvs.training.collection import sum_ended_episodes
from jaxenvs.training.schemes.scheme import Central, Scheme
from jaxenvs.training.schemes.worker_group import WorkerGroup, make_workers
from jaxenvs.training.storages.storage import ReplayStorage
from jaxenvs.training.train_program import Train
from jaxenvs.training.types import LearnerState, Unroll, Weights
from jaxenvs.vector.vectorize import VectorizedEnv
from jaxenvs.wrappers.independent_agents import batch_of
from jaxenvs.wrappers.vector import OuterVectorEnv

_NUM_ENVS = 16  # the default of a scheme


@chex.dataclass(frozen=True)
class CollectedUnroll:
    """An unroll that a worker returns."""

    chunks: list[Unroll]  # one, unless an unroll may end early
    updates: Any  # int32[], the learner's updates when it sent the weights
    seconds: float  # duration of the collection


@dataclasses.dataclass(frozen=True)
class TrainingSpec:
    """A scheme and the objects that its workers derive from it."""

    scheme: Scheme
    total_steps: int
    seed: int

    @property
    def chunks(self) -> int:
        """The number of chunks in which an unroll is collected."""
        return self.scheme.chunks

    @property
    def awaited_workers(self) -> int:
        """The number of synchronous collectors that must finish their unrolls."""
        return math.ceil(self.scheme.fraction_workers * self.scheme.collection.n)

    @property
    def min_chunks(self) -> int:
        """The number of chunks that each of the other collectors needs by then."""
        return math.ceil(self.scheme.fraction_samples * self.chunks)

    @property
    def chunks_per_update(self) -> int:
        """The number of chunks per update."""
        if not self.scheme.collection.sync:
            return 1
        others = self.scheme.collection.n - self.awaited_workers
        return self.awaited_workers * self.chunks + others * self.min_chunks

    @functools.cached_property
    def algorithm(self) -> Algorithm:
        """The scheme's algorithm; by default PPO with settings for the spaces."""
        scheme = self.scheme
        if scheme.algorithm is not None:
            return scheme.algorithm
        return default_algorithm(
            self._env,
            scheme.actor,
            scheme.unroll_length // self.chunks,
            # Gradient workers cannot share normalization statistics.
            normalize=isinstance(scheme.gradients, Central),
        )

    @functools.cached_property
    def train(self) -> Train:
        """The training program whose `collect` and `learn` the workers and the learner call.

        Its environments are those of the first collector in this process.
        """
        scheme, algorithm, learners = self.scheme, self.algorithm, self.scheme.gradients.n
        train = assemble(
            self._env,
            algorithm,
            actor=scheme.actor,
            storage=scheme.storage,
            unroll_length=scheme.unroll_length // self.chunks,
            total_steps=self.total_steps,
            log_info=scheme.log_info,
        )
        if scheme.gradients.sync:
            algorithm = algorithm.per_device(learners)
        rows = train.env.num_envs * self.chunks_per_update
        algorithm.check_sizes(train.networks, rows, train.unroll_length)
        train = train.replace(
            algorithm=algorithm, collectors=self.chunks_per_update, learners=learners
        )
        return train.replace(num_updates=-(-self.total_steps // train.context.steps_per_update))

    def train_of(self, collector: int) -> Train:
        """Returns a collector's training program, with separate environments if they are hosted."""
        train = self.train
        if isinstance(batch_of(train.env), VectorizedEnv):
            return train  # native environments can be shared
        if vars(self).setdefault("first_collector", collector) == collector:
            return train
        return train.replace(env=self._make_env())

    def key(self, *numbers: int) -> Any:
        """Returns a different key for each sequence of numbers."""
        return functools.reduce(jax.random.fold_in, numbers, jax.random.key(self.seed))

    def source(self, learner: int) -> "UnrollSource":
        """Returns the source of a learner's unrolls."""
        collection = self.scheme.collection
        first = learner * collection.n
        if isinstance(collection, Central):
            return LocalSource(self, first)
        make_worker = functools.partial(_make_collection_worker, self, first)
        group = make_workers(make_worker, collection.n, collection.resources)
        return SyncSource(self, group) if collection.sync else AsyncSource(self, group)

    def close_env(self, env: VectorEnv) -> None:
        """Closes hosted environments, unless the user passed them and has to close them."""
        hosts = find_host_env(env)
        if hosts is not None and not isinstance(self.scheme.env, VectorEnv):
            hosts.close()

    @contextlib.contextmanager
    def closing_on_error(self) -> Iterator[None]:
        """Closes the environments if making an executor fails."""
        try:
            yield
        except BaseException:
            if "_env" in vars(self):
                self.close_env(self._env)
            raise

    def close_unused_env(self) -> None:
        """Closes the hosted environments of this process if other processes collect."""
        places = (self.scheme.collection, self.scheme.gradients)
        if any(isinstance(place.resources, Mapping) for place in places):
            self.close_env(self._env)

    @functools.cached_property
    def _env(self) -> VectorEnv:
        """The environments of the first collector in this process."""
        return self._make_env()

    def _make_env(self) -> VectorEnv:
        env, number = call_env_factory(self.scheme.env), self.scheme.num_envs
        if number is None and not isinstance(env, VectorEnv):
            number = _NUM_ENVS
        return resolve(env, number)

    def __reduce__(self) -> Any:
        return TrainingSpec, (self.scheme, self.total_steps, self.seed)  # no cached properties


class CollectionWorker:
    """A worker that collects unrolls in its own environments, with the weights it receives."""

    def __init__(self, spec: TrainingSpec, index: int) -> None:
        self._spec, self._index = spec, index
        self._train = spec.train_of(index)
        self._collector: Any = None
        self._finish_early = 0  # the number of the last call that should end early

    def collect(
        self, algorithm: Algorithm, behavior: BehaviorPolicy, number: int
    ) -> CollectedUnroll:
        """Returns the next unroll. Each call has a higher `number`."""
        start, spec = time.perf_counter(), self._spec
        train = self._train.replace(algorithm=algorithm)
        # A restart resets the number of calls, but not the number of updates.
        call = self._index, int(behavior.updates), number
        if self._collector is None:
            self._collector = _init(train, spec.key(0, *call))
        chunks = []
        while len(chunks) < spec.chunks:
            if len(chunks) >= spec.min_chunks and self._finish_early >= number:
                break
            key = spec.key(1, *call, len(chunks))
            self._collector, unroll = _collect(train, behavior, self._collector, key)
            chunks.append(jax.block_until_ready(unroll))
        return CollectedUnroll(
            chunks=chunks, updates=behavior.updates, seconds=time.perf_counter() - start
        )

    def finish_early(self, number: int) -> None:
        """Ends an unroll once it is long enough. Other threads call this, possibly too late."""
        self._finish_early = max(self._finish_early, number)

    def close(self) -> None:
        """Closes hosted environments."""
        self._spec.close_env(self._train.env)


class UnrollSource(abc.ABC):
    """The base class of sources, which provide the unrolls of one learner."""

    def __init__(self) -> None:
        self.waited = self.collected = 0.0  # total seconds
        self.lag = 0.0  # updates done since the weights of the last unroll were sent
        self._calls = 0

    @property
    @abc.abstractmethod
    def is_continuous(self) -> bool:
        """Whether each column of an unroll continues the same column of the previous unroll."""

    @abc.abstractmethod
    def next_unroll(self, algorithm: Algorithm, behavior: BehaviorPolicy) -> Unroll:
        """Returns an unroll with the instances of all collectors side by side."""

    def discard(self) -> None:  # noqa: B027
        """Drops unrolls in progress, because their weights are outdated."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes the collectors."""

    def _merge(
        self, answers: Sequence[CollectedUnroll], chunks: Sequence[Unroll], now: Any
    ) -> Unroll:
        self.collected += sum(answer.seconds for answer in answers) / len(answers)
        self.lag = float(np.mean([int(now) - int(answer.updates) for answer in answers]))
        return concatenate_instances(chunks)


class LocalSource(UnrollSource):
    """A source that collects in the calling thread."""

    def __init__(self, spec: TrainingSpec, index: int) -> None:
        super().__init__()
        self._worker = CollectionWorker(spec, index)

    @property
    def is_continuous(self) -> bool:
        return True

    def next_unroll(self, algorithm: Algorithm, behavior: BehaviorPolicy) -> Unroll:
        self._calls += 1
        answer = self._worker.collect(algorithm, behavior, self._calls)
        self.waited += answer.seconds
        return self._merge([answer], answer.chunks, behavior.updates)

    def close(self) -> None:
        self._worker.close()


class SyncSource(UnrollSource):
    """A source whose workers use the same weights; it waits for all or most of them."""

    def __init__(self, spec: TrainingSpec, group: WorkerGroup) -> None:
        super().__init__()
        self._spec, self._group = spec, group

    @property
    def is_continuous(self) -> bool:
        return self._spec.chunks == 1 and not _may_restart(self._spec)

    def next_unroll(self, algorithm: Algorithm, behavior: BehaviorPolicy) -> Unroll:
        start, spec, group = time.perf_counter(), self._spec, self._group
        self._calls += 1
        call = "collect", algorithm, behavior, self._calls
        futures = [group.call(i, *call) for i in range(group.size)]
        if spec.chunks > 1:
            pending = list(futures)
            while len(pending) > group.size - spec.awaited_workers:
                pending.remove(group.wait_any(pending))
            for future in pending:
                group.finish_early(futures.index(future), self._calls)
        answers = group.wait_all(futures)
        self.waited += time.perf_counter() - start
        return self._merge(answers, self._select_chunks(answers), behavior.updates)

    def _select_chunks(self, answers: Sequence[CollectedUnroll]) -> list[Unroll]:
        """Returns as many chunks as programs are compiled for, longest unrolls first."""
        spec = self._spec
        unrolls = sorted((answer.chunks for answer in answers), key=len, reverse=True)
        whole = [chunk for chunks in unrolls[: spec.awaited_workers] for chunk in chunks]
        others = unrolls[spec.awaited_workers :]
        return whole + [chunk for chunks in others for chunk in chunks[: spec.min_chunks]]

    def close(self) -> None:
        self._group.close()


class AsyncSource(UnrollSource):
    """A source that returns unrolls as they arrive, then sends the worker the latest weights."""

    def __init__(self, spec: TrainingSpec, group: WorkerGroup) -> None:
        super().__init__()
        self._spec, self._group = spec, group
        self._pending: dict[Any, int] = {}  # the worker of each future

    @property
    def is_continuous(self) -> bool:
        return self._group.size == 1 and not _may_restart(self._spec)

    def next_unroll(self, algorithm: Algorithm, behavior: BehaviorPolicy) -> Unroll:
        start, group = time.perf_counter(), self._group
        for worker in set(range(group.size)) - set(self._pending.values()):
            self._send(worker, algorithm, behavior)
        future = group.wait_any(list(self._pending))
        worker = self._pending.pop(future)
        answer = group.wait(future)
        self._send(worker, algorithm, behavior)
        self.waited += time.perf_counter() - start
        return self._merge([answer], answer.chunks, behavior.updates)

    def discard(self) -> None:
        while self._pending:
            future, _ = self._pending.popitem()
            self._group.wait(future)

    def _send(self, worker: int, algorithm: Algorithm, behavior: BehaviorPolicy) -> None:
        self._calls += 1
        call = "collect", algorithm, behavior, self._calls
        self._pending[self._group.call(worker, *call)] = worker

    def close(self) -> None:
        self._group.close()


class GradientWorker:
    """A worker that computes gradients on its own collectors' unrolls, with received weights."""

    def __init__(self, spec: TrainingSpec, index: int) -> None:
        self._spec, self._index, self._train = spec, index, spec.train
        self._source = spec.source(index)
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


def concatenate_instances(unrolls: Sequence[Unroll]) -> Unroll:
    """Concatenates the instances of several unrolls."""
    if len(unrolls) == 1:
        return unrolls[0]
    return _concatenate(list(unrolls))


def call_env_factory(env: Any) -> Any:
    """Returns `env()` if `env` is a function that makes an environment, otherwise `env`."""
    if not callable(env) or isinstance(env, Environment | VectorEnv):
        return env
    try:
        inspect.signature(env).bind()
    except TypeError as error:  # it has parameters
        raise TrainingError(
            f"the scheme got env={env!r:.80}, which needs arguments: {error}.  Pass a function"
            " without parameters; each collector calls it."
        ) from error
    except ValueError:  # its signature is unknown
        pass
    return env()


def find_host_env(env: Any) -> HostEnv | None:
    """Returns the hosted environments inside wrappers, or None for native environments."""
    while isinstance(env, OuterVectorEnv):
        env = env.env
    return env if isinstance(env, HostEnv) else None


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


def _may_restart(spec: TrainingSpec) -> bool:
    return isinstance(spec.scheme.collection.resources, Mapping)


def _make_collection_worker(spec: TrainingSpec, first: int, index: int) -> CollectionWorker:
    return CollectionWorker(spec, first + index)


def make_gradient_worker(spec: TrainingSpec, index: int) -> GradientWorker:
    """Returns a worker that computes gradients."""
    return GradientWorker(spec, index)


# Compiled programs that all worker threads of a process share.
@jax.jit
def _init(train: Train, key: Any) -> Any:
    return train.init_collector(key)


@jax.jit
def init_learner(train: Train, key: Any) -> LearnerState:
    """Returns the initial state of a learner without a collector of its own."""
    like = jax.eval_shape(train.init_collector, key)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like.observation)
    nothing: Any = ()
    learner_state = train.init_learner(key, like.replace(observation=zeros))
    return learner_state.replace(collector=nothing)


@jax.jit
def _collect(train: Train, behavior: BehaviorPolicy, collector: Any, key: Any) -> Any:
    return train.collect(behavior, collector, key)


@jax.jit
def _concatenate(unrolls: list[Unroll]) -> Unroll:
    def joined(axis: int, trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis), *trees)

    axes = {"last_observation": 0, "carry": 0}  # [N, ...]; the others are [T, N, ...]
    names = [field.name for field in dataclasses.fields(Unroll)]  # pyright: ignore[reportArgumentType]
    return Unroll(
        **{
            name: joined(axes.get(name, 1), [getattr(unroll, name) for unroll in unrolls])
            for name in names
        }
    )


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
