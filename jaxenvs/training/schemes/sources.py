"""Sources of unrolls: collection in the calling thread, or in workers."""

import abc
import functools
import time
from collections.abc import Mapping, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.training.algorithms.algorithm import Algorithm, BehaviorPolicy
from jaxenvs.training.schemes.scheme import Central
from jaxenvs.training.schemes.spec import TrainingSpec
from jaxenvs.training.schemes.worker_group import WorkerGroup, make_workers
from jaxenvs.training.train_program import Train
from jaxenvs.training.types import Unroll


@chex.dataclass(frozen=True)
class CollectedUnroll:
    """An unroll that a worker returns."""

    chunks: list[Unroll]  # one, unless an unroll may end early
    updates: Any  # int32[], the learner's updates when it sent the weights
    seconds: float  # duration of the collection


class CollectionWorker:
    """A worker that collects unrolls in its own environments, with the weights it receives.

    Its number among the collectors of all learners is `first + index`.
    """

    def __init__(self, spec: TrainingSpec, first: int, index: int) -> None:
        self._spec, self._index = spec, first + index
        self._train = spec.train_of(self._index)
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
        while len(chunks) < spec.scheme.chunks:
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
        return chunks[0] if len(chunks) == 1 else _concatenate(list(chunks))


class LocalSource(UnrollSource):
    """A source that collects in the calling thread."""

    def __init__(self, spec: TrainingSpec, index: int) -> None:
        super().__init__()
        self._worker = CollectionWorker(spec, index, 0)

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
        return self._spec.scheme.chunks == 1 and not _may_restart(self._spec)

    def next_unroll(self, algorithm: Algorithm, behavior: BehaviorPolicy) -> Unroll:
        start, spec, group = time.perf_counter(), self._spec, self._group
        self._calls += 1
        call = "collect", algorithm, behavior, self._calls
        futures = [group.call(i, *call) for i in range(group.size)]
        if spec.scheme.chunks > 1:
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


def make_source(spec: TrainingSpec, learner: int = 0) -> UnrollSource:
    """Returns the source of a learner's unrolls."""
    collection = spec.scheme.collection
    first = learner * collection.n
    if isinstance(collection, Central):
        return LocalSource(spec, first)
    make_worker = functools.partial(CollectionWorker, spec, first)
    group = make_workers(make_worker, collection.n, collection.resources)
    return SyncSource(spec, group) if collection.sync else AsyncSource(spec, group)


def _may_restart(spec: TrainingSpec) -> bool:
    return isinstance(spec.scheme.collection.resources, Mapping)


# Compiled programs that all worker threads of a process share.
@jax.jit
def _init(train: Train, key: Any) -> Any:
    return train.init_collector(key)


@jax.jit
def _collect(train: Train, behavior: BehaviorPolicy, collector: Any, key: Any) -> Any:
    return train.collect(behavior, collector, key)


@jax.jit
def _concatenate(unrolls: list[Unroll]) -> Unroll:
    """Concatenates the instances of several unrolls."""
    axes = {"last_observation": 0, "carry": 0}  # [N, ...]; the others are [T, N, ...]

    def joined(name: str) -> Any:
        parts = [getattr(unroll, name) for unroll in unrolls]
        return jax.tree.map(lambda *x: jnp.concatenate(x, axes.get(name, 1)), *parts)

    return Unroll(**{name: joined(name) for name in vars(unrolls[0])})
