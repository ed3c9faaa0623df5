"""What workers do: collect, and compute gradients. They run in threads as well as in Ray actors."""

import abc
import dataclasses
import functools
import math
import threading
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.bridge.xla import HostEnv
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.training.algorithms.base import Algorithm, Behaviour
from jaxenvs.training.anakin import Train, make_train, resolve
from jaxenvs.training.collecting import episode_metrics
from jaxenvs.training.schemes.crew import Crew, recruit
from jaxenvs.training.schemes.scheme import Central, Scheme
from jaxenvs.training.types import LearnerState, Unroll, Weights
from jaxenvs.vector.vectorize import VectorizedEnv

_PIECES = (4, 3, 2, 5, 7)  # that an unroll is collected in, if it may end early


@dataclasses.dataclass
class Collected:
    """An unroll, on its way to who learns from it."""

    pieces: list[Unroll]  # one, unless an unroll may end early
    updates: int  # that the learner had done when the weights were sent
    seconds: float  # that collecting took


@dataclasses.dataclass(frozen=True)
class Plan:
    """A scheme, and what all its workers need to know besides."""

    scheme: Scheme
    total_steps: int
    seed: int

    @property
    def pieces(self) -> int:
        """How many parts an unroll is collected in."""
        scheme = self.scheme
        if scheme.fraction_workers == 1 and scheme.fraction_samples == 1:
            return 1
        return next((p for p in _PIECES if scheme.unroll_length % p == 0), scheme.unroll_length)

    @property
    def first_workers(self) -> int:
        """How many synchronous collectors are waited for."""
        return math.ceil(self.scheme.fraction_workers * self.scheme.collection.n)

    @property
    def fewest_pieces(self) -> int:
        """How many each of the others must have, then."""
        return math.ceil(self.scheme.fraction_samples * self.pieces)

    @property
    def pieces_per_update(self) -> int:
        """Those that one who learns gets at a time."""
        if not self.scheme.collection.sync:
            return 1
        others = self.scheme.collection.n - self.first_workers
        return self.first_workers * self.pieces + others * self.fewest_pieces

    @functools.cached_property
    def train(self) -> Train:
        """The training whose `collect` the workers call, and whose `learn` those who learn.

        Its environments are those of the first collector of this process.
        """
        scheme = self.scheme
        env = self._environment()
        train = make_train(
            env,
            scheme.algorithm,
            actor=scheme.actor,
            storage=scheme.storage,
            num_envs=self._num_envs(env),
            unroll_length=scheme.unroll_length // self.pieces,
            total_steps=self.total_steps,
        )
        algorithm, learners = train.algorithm, scheme.gradients.n
        if scheme.gradients.sync:
            algorithm = algorithm.divided(learners)
        rows = train.env.num_envs * self.pieces_per_update
        algorithm.check_sizes(train.networks, rows, train.unroll_length)
        changes: dict[str, Any] = {
            "algorithm": algorithm,
            "collectors": self.pieces_per_update,
            "learners": learners,
        }
        train = dataclasses.replace(train, **changes)  # pyright: ignore[reportArgumentType]
        changes = {"num_updates": -(-self.total_steps // train.parts.steps_per_update)}
        return dataclasses.replace(train, **changes)  # pyright: ignore[reportArgumentType]

    def train_of(self, collector: int) -> Train:
        """The same with environments of a collector's own, where they cannot be shared."""
        train = self.train
        if collector == 0 or isinstance(train.env, VectorizedEnv):
            return train  # pure functions
        env = self._environment()
        own: Any = resolve(env, self._num_envs(env))
        return dataclasses.replace(train, env=own)  # pyright: ignore[reportArgumentType]

    def key(self, *numbers: int) -> Any:
        """A key of its own for each sequence of numbers."""
        return functools.reduce(jax.random.fold_in, numbers, jax.random.key(self.seed))

    def source(self, learner: int) -> "Source":
        """Where a learner's unrolls come from."""
        collection = self.scheme.collection
        first = learner * collection.n
        if isinstance(collection, Central):
            return Own(self, first)
        make_worker = functools.partial(_collects, self, first)
        crew = recruit(make_worker, collection.n, collection.resources)
        return Gathered(self, crew) if collection.sync else Streamed(self, crew)

    def _environment(self) -> Any:
        env = self.scheme.env
        return env() if callable(env) and not isinstance(env, Environment | VectorEnv) else env

    def _num_envs(self, env: Any) -> int | None:
        return None if isinstance(env, VectorEnv) else self.scheme.num_envs or 16

    def __reduce__(self) -> Any:
        return Plan, (self.scheme, self.total_steps, self.seed)  # without what is cached


class Collects:
    """Collects unrolls with the weights that it is given, in environments of its own."""

    def __init__(self, plan: Plan, index: int) -> None:
        self._plan, self._index = plan, index
        self._train = plan.train_of(index)
        self._collector: Any = None
        self._hurry = threading.Event()

    def collect(self, behaviour: Behaviour, number: int) -> Collected:
        """The unroll after the last one. No two calls have the same `number`."""
        start, plan = time.perf_counter(), self._plan
        self._hurry.clear()
        if self._collector is None:
            self._collector = _init(self._train, plan.key(0, self._index, number))
        pieces = []
        while len(pieces) < plan.pieces:
            if len(pieces) >= plan.fewest_pieces and self._hurry.is_set():
                break
            key = plan.key(1, self._index, number, len(pieces))
            self._collector, unroll = _collect(self._train, behaviour, self._collector, key)
            pieces.append(jax.block_until_ready(unroll))
        return Collected(
            pieces=pieces,
            updates=int(behaviour.updates),
            seconds=time.perf_counter() - start,
        )

    def change(self, algorithm: Algorithm) -> None:
        """Goes on with other hyper-parameters."""
        self._train = with_algorithm(self._train, algorithm)

    def hurry(self) -> None:
        """Ends the unroll under way as soon as it is long enough. Called from another thread."""
        self._hurry.set()

    def close(self) -> None:
        """Ends hosted environments."""
        if isinstance(self._train.env, HostEnv):
            self._train.env.close()


class Source(abc.ABC):
    """Where the unrolls of one learner come from."""

    def __init__(self) -> None:
        self.waited = self.collected = 0.0  # seconds, in all
        self.lag = 0.0  # updates done since the weights of the last unroll were sent

    @abc.abstractmethod
    def next(self, behaviour: Behaviour, number: int) -> Unroll:
        """An unroll to learn from, all collectors side by side."""

    @abc.abstractmethod
    def change(self, algorithm: Algorithm) -> None:
        """Has the collectors go on with other hyper-parameters."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the collectors."""

    def _joined(self, answers: Sequence[Collected], pieces: Sequence[Unroll], now: Any) -> Unroll:
        self.collected += sum(answer.seconds for answer in answers) / len(answers)
        self.lag = float(np.mean([int(now) - answer.updates for answer in answers]))
        return side_by_side(pieces)


class Own(Source):
    """Collects by itself."""

    def __init__(self, plan: Plan, index: int) -> None:
        super().__init__()
        self._worker = Collects(plan, index)

    def next(self, behaviour: Behaviour, number: int) -> Unroll:
        answer = self._worker.collect(behaviour, number)
        self.waited += answer.seconds
        return self._joined([answer], answer.pieces, behaviour.updates)

    def change(self, algorithm: Algorithm) -> None:
        self._worker.change(algorithm)

    def close(self) -> None:
        self._worker.close()


class Gathered(Source):
    """Has all workers collect with the same weights, and waits for them, or for most."""

    def __init__(self, plan: Plan, crew: Crew) -> None:
        super().__init__()
        self._plan, self._crew = plan, crew

    def next(self, behaviour: Behaviour, number: int) -> Unroll:
        start, plan, crew = time.perf_counter(), self._plan, self._crew
        futures = [crew.call(i, "collect", behaviour, number) for i in range(crew.size)]
        if plan.pieces > 1:
            pending = list(futures)
            while len(pending) > crew.size - plan.first_workers:
                pending.remove(crew.first(pending))
            for future in pending:
                crew.hurry(futures.index(future))
        answers = [crew.result(future) for future in futures]
        self.waited += time.perf_counter() - start
        return self._joined(answers, self._chosen(answers), behaviour.updates)

    def _chosen(self, answers: Sequence[Collected]) -> list[Unroll]:
        """As many pieces as programs are compiled for, all of the longest unrolls."""
        plan = self._plan
        unrolls = sorted((answer.pieces for answer in answers), key=len, reverse=True)
        whole = [piece for pieces in unrolls[: plan.first_workers] for piece in pieces]
        others = unrolls[plan.first_workers :]
        return whole + [piece for pieces in others for piece in pieces[: plan.fewest_pieces]]

    def change(self, algorithm: Algorithm) -> None:
        self._crew.all("change", algorithm)

    def close(self) -> None:
        self._crew.close()


class Streamed(Source):
    """Takes unrolls as they come. Who has delivered goes on at once, with the latest weights."""

    def __init__(self, plan: Plan, crew: Crew) -> None:
        super().__init__()
        self._crew = crew
        self._pending: dict[Any, int] = {}  # futures, and whose they are
        self._calls = 0

    def next(self, behaviour: Behaviour, number: int) -> Unroll:
        start, crew = time.perf_counter(), self._crew
        for worker in set(range(crew.size)) - set(self._pending.values()):
            self._send(worker, behaviour)
        future = crew.first(list(self._pending))
        worker = self._pending.pop(future)
        answer = crew.result(future)
        self._send(worker, behaviour)
        self.waited += time.perf_counter() - start
        return self._joined([answer], answer.pieces, behaviour.updates)

    def _send(self, worker: int, behaviour: Behaviour) -> None:
        self._calls += 1
        self._pending[self._crew.call(worker, "collect", behaviour, self._calls)] = worker

    def change(self, algorithm: Algorithm) -> None:
        self._crew.all("change", algorithm)

    def close(self) -> None:
        self._crew.close()


class Learns:
    """Computes gradients on unrolls of its own collectors, with the weights that it is given."""

    def __init__(self, plan: Plan, index: int) -> None:
        self._plan, self._index, self._train = plan, index, plan.train
        self._source = plan.source(index)
        self._state: Any = None
        self._work: Any = None
        self._step = self._begun = 0  # gradient steps on the unroll under way; unrolls so far
        self._weights: Any = None  # of a decentralised update

    def begin(self, weights: Weights, updates: int) -> dict[str, float]:
        """Gets the next unroll; returns what the episodes within it brought."""
        state = self._state
        if state is None:  # with weights that nobody asks for
            state = init_learner(self._train, self._plan.key(2, self._index))
        behaviour = Behaviour(
            params=weights.params,
            observation_statistics=None,
            updates=jnp.int32(updates),
        )
        self._begun += 1
        unroll = self._source.next(behaviour, self._begun)
        key = self._plan.key(3, self._index, self._begun)
        state = state.replace(weights=(), updates=jnp.int32(updates))
        storage, state = state.storage, state.replace(storage=())
        self._state, self._work = _begin(self._train, state, storage, weights, unroll, key)
        self._step, self._key = 0, key
        self._weights = weights
        return {**jax.device_get(_episodes(unroll)), "collection_lag": self._source.lag}

    def gradient(self, weights: Weights | None, updates: int) -> tuple[Any, Any]:
        """The next gradient on the unroll under way, and the losses; None while it waits.

        Without weights it is that of those that `apply` led to. After a restart another unroll is
        begun, or, without weights, none is there.
        """
        weights = self._weights if weights is None else weights
        if weights is None:
            return None, None
        if self._state is None:
            self.begin(weights, updates)
        state: Any = self._state
        key = jax.random.fold_in(self._key, self._step)
        storage, state = state.storage, state.replace(storage=())
        gradients, losses, waits, self._state = _gradient(
            self._train, state, storage, weights, self._work, self._step, key
        )
        self._step += 1
        return (None, None) if bool(waits) else (gradients, losses)

    def next_gradient(self, weights: Weights, updates: int) -> tuple[Any, Any, dict[str, Any]]:
        """`gradient`, after `begin` where the last unroll is used up; and what that brought."""
        news: dict[str, Any] = {}
        number = self._train.algorithm.gradient_steps_per_update
        if self._state is None or self._step >= number:
            news = self.begin(weights, updates)
        return *self.gradient(weights, updates), news

    def apply(self, gradients: Any) -> None:
        """Takes the gradient step that all of a decentralised update take."""
        if self._weights is not None:
            self._weights = apply_gradients(self._train, self._weights, gradients)

    def change(self, algorithm: Algorithm) -> None:
        """Goes on with other hyper-parameters, and so do the collectors."""
        self._train = with_algorithm(self._train, algorithm)
        self._source.change(algorithm)

    def hurry(self) -> None:
        """There is nothing to end early."""

    def close(self) -> None:
        """Ends the collectors."""
        self._source.close()


def side_by_side(unrolls: Sequence[Unroll]) -> Unroll:
    """Several unrolls as one of all their instances."""
    if len(unrolls) == 1:
        return unrolls[0]
    return _side_by_side(list(unrolls))


def with_algorithm(train: Train, algorithm: Algorithm) -> Train:
    """The same training with other hyper-parameters."""
    changes: dict[str, Any] = {"algorithm": algorithm}
    return dataclasses.replace(train, **changes)  # pyright: ignore[reportArgumentType]


def _collects(plan: Plan, first: int, index: int) -> Collects:
    return Collects(plan, first + index)


def learns(plan: Plan, index: int) -> Learns:
    """A worker that computes gradients."""
    return Learns(plan, index)


# Programs of all workers of a process: threads with the same training share what is compiled.
@jax.jit
def _init(train: Train, key: Any) -> Any:
    return train.init_collector(key)


@jax.jit
def init_learner(train: Train, key: Any) -> LearnerState:
    """The initial state of one who learns from what others collect."""
    like = jax.eval_shape(train.init_collector, key)
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), like.observation)
    nothing: Any = ()
    learner_state = train.init_learner(key, like.replace(observation=zeros))
    return learner_state.replace(collector=nothing)


@jax.jit
def _collect(train: Train, behaviour: Behaviour, collector: Any, key: Any) -> Any:
    return train.collect(behaviour, collector, key)


@jax.jit
def _side_by_side(unrolls: list[Unroll]) -> Unroll:
    def joined(axis: int, trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis), *trees)

    return Unroll(
        transition=joined(1, [unroll.transition for unroll in unrolls]),
        last_observation=joined(0, [unroll.last_observation for unroll in unrolls]),
        carry=joined(0, [unroll.carry for unroll in unrolls]),
        log_prob=joined(1, [unroll.log_prob for unroll in unrolls]),
        episodes=joined(1, [unroll.episodes for unroll in unrolls]),
    )


@jax.jit
def _episodes(unroll: Unroll) -> dict[str, jax.Array]:
    return episode_metrics(unroll)


@functools.partial(jax.jit, donate_argnames="storage")
def _begin(train: Train, state: Any, storage: Any, weights: Any, unroll: Unroll, key: Any) -> Any:
    state = state.replace(weights=weights, storage=storage)
    state, work = train.algorithm.begin(train.parts, state, unroll, key)
    return state.replace(weights=()), work


@functools.partial(jax.jit, donate_argnames="storage")
def _gradient(
    train: Train, state: Any, storage: Any, weights: Any, work: Any, step: Any, key: Any
) -> Any:
    algorithm, parts = train.algorithm, train.parts
    draw_key, gradient_key = jax.random.split(key)
    state = state.replace(weights=weights, storage=storage)
    waits = algorithm.waits(parts, state)
    batch = algorithm.draw(parts, state, work, step, draw_key)
    gradients, losses, error = algorithm.gradients(parts, weights, batch, gradient_key)
    if error is not None:
        error = jnp.where(waits, jnp.nan, error)
    state = algorithm.settle(parts, state, batch, error)
    return gradients, losses, waits, state.replace(weights=())


@jax.jit
def apply_gradients(train: Train, weights: Weights, gradients: Any) -> Weights:
    """One gradient step."""
    return train.algorithm.apply_gradients(train.parts, weights, gradients)
