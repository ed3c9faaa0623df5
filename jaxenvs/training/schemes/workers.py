"""What workers do: collect, and compute gradients. They run in threads as well as in Ray actors."""

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

from jaxenvs.bridge.xla import HostEnv
from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.training.algorithms.base import Algorithm, Behavior
from jaxenvs.training.anakin import Train, assemble, default_algorithm, resolve
from jaxenvs.training.collecting import ended_episodes
from jaxenvs.training.schemes.crew import Crew, recruit
from jaxenvs.training.schemes.scheme import Central, Scheme
from jaxenvs.training.storages.base import ReplayStorage
from jaxenvs.training.types import LearnerState, Unroll, Weights
from jaxenvs.vector.vectorize import VectorizedEnv
from jaxenvs.wrappers.vector import WrappedVectorEnv

_NUM_ENVS = 16  # unless a scheme says otherwise


@chex.dataclass(frozen=True)
class Collected:
    """An unroll, on its way to who learns from it."""

    pieces: list[Unroll]  # one, unless an unroll may end early
    updates: Any  # int32[], that the learner had done when the weights were sent
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
        return self.scheme.pieces

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
    def algorithm(self) -> Algorithm:
        """The scheme's algorithm; by default PPO with settings for the spaces."""
        scheme = self.scheme
        if scheme.algorithm is not None:
            return scheme.algorithm
        algorithm = default_algorithm(self._env, scheme.actor, scheme.unroll_length // self.pieces)
        if isinstance(scheme.gradients, Central):
            return algorithm
        return algorithm.replace(normalize_observations=False, normalize_rewards=False)

    @functools.cached_property
    def train(self) -> Train:
        """The training whose `collect` the workers call, and whose `learn` those who learn.

        Its environments are those of the first collector of this process.
        """
        scheme, algorithm, learners = self.scheme, self.algorithm, self.scheme.gradients.n
        train = assemble(
            self._env,
            algorithm,
            actor=scheme.actor,
            storage=scheme.storage,
            unroll_length=scheme.unroll_length // self.pieces,
            total_steps=self.total_steps,
            log_info=scheme.log_info,
        )
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
        if isinstance(train.env, VectorizedEnv):
            return train  # pure functions
        if vars(self).setdefault("first_collector", collector) == collector:  # whoever comes first
            return train
        own: Any = self._environment()
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

    def release(self, env: VectorEnv) -> None:
        """Ends hosted environments, unless they were given: those are ended by who made them."""
        hosts = hosted(env)
        if hosts is not None and not isinstance(self.scheme.env, VectorEnv):
            hosts.close()

    @contextlib.contextmanager
    def released_on_error(self) -> Iterator[None]:
        """Leaves no environments behind where what was to use them cannot be made."""
        try:
            yield
        except BaseException:
            if "_env" in vars(self):
                self.release(self._env)
            raise

    def release_unless_used(self) -> None:
        """Ends the hosted environments of this process where other processes collect."""
        places = (self.scheme.collection, self.scheme.gradients)
        if any(isinstance(place.resources, Mapping) for place in places):
            self.release(self._env)

    @functools.cached_property
    def _env(self) -> VectorEnv:
        """The environments of the first collector of this process."""
        return self._environment()

    def _environment(self) -> VectorEnv:
        env, number = made(self.scheme.env), self.scheme.num_envs
        if number is None and not isinstance(env, VectorEnv):
            number = _NUM_ENVS
        return resolve(env, number)

    def __reduce__(self) -> Any:
        return Plan, (self.scheme, self.total_steps, self.seed)  # without what is cached


class Collects:
    """Collects unrolls with the weights that it is given, in environments of its own."""

    def __init__(self, plan: Plan, index: int) -> None:
        self._plan, self._index = plan, index
        self._train = plan.train_of(index)
        self._collector: Any = None
        self._hurried = 0  # the last call that was told to end early

    def collect(self, algorithm: Algorithm, behavior: Behavior, number: int) -> Collected:
        """The unroll after the last one. Each call has a higher `number`."""
        start, plan = time.perf_counter(), self._plan
        train = with_algorithm(self._train, algorithm)
        # After a restart numbers begin anew, but not those of updates.
        call = self._index, int(behavior.updates), number
        if self._collector is None:
            self._collector = _init(train, plan.key(0, *call))
        pieces = []
        while len(pieces) < plan.pieces:
            if len(pieces) >= plan.fewest_pieces and self._hurried >= number:
                break
            key = plan.key(1, *call, len(pieces))
            self._collector, unroll = _collect(train, behavior, self._collector, key)
            pieces.append(jax.block_until_ready(unroll))
        return Collected(
            pieces=pieces, updates=behavior.updates, seconds=time.perf_counter() - start
        )

    def hurry(self, number: int) -> None:
        """Ends an unroll as soon as it is long enough. Called from another thread, maybe late."""
        self._hurried = max(self._hurried, number)

    def close(self) -> None:
        """Ends hosted environments."""
        self._plan.release(self._train.env)


class Source(abc.ABC):
    """Where the unrolls of one learner come from."""

    def __init__(self) -> None:
        self.waited = self.collected = 0.0  # seconds, in all
        self.lag = 0.0  # updates done since the weights of the last unroll were sent
        self._calls = 0

    @property
    @abc.abstractmethod
    def is_continuous(self) -> bool:
        """Whether each column of an unroll goes on where that of the last one ended."""

    @abc.abstractmethod
    def next(self, algorithm: Algorithm, behavior: Behavior) -> Unroll:
        """An unroll to learn from, all collectors side by side."""

    def forget(self) -> None:  # noqa: B027
        """Drops what is under way: it is of weights that are no more."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends the collectors."""

    def _joined(self, answers: Sequence[Collected], pieces: Sequence[Unroll], now: Any) -> Unroll:
        self.collected += sum(answer.seconds for answer in answers) / len(answers)
        self.lag = float(np.mean([int(now) - int(answer.updates) for answer in answers]))
        return side_by_side(pieces)


class Own(Source):
    """Collects by itself."""

    def __init__(self, plan: Plan, index: int) -> None:
        super().__init__()
        self._worker = Collects(plan, index)

    @property
    def is_continuous(self) -> bool:
        return True

    def next(self, algorithm: Algorithm, behavior: Behavior) -> Unroll:
        self._calls += 1
        answer = self._worker.collect(algorithm, behavior, self._calls)
        self.waited += answer.seconds
        return self._joined([answer], answer.pieces, behavior.updates)

    def close(self) -> None:
        self._worker.close()


class Gathered(Source):
    """Has all workers collect with the same weights, and waits for them, or for most."""

    def __init__(self, plan: Plan, crew: Crew) -> None:
        super().__init__()
        self._plan, self._crew = plan, crew

    @property
    def is_continuous(self) -> bool:
        return self._plan.pieces == 1 and not _may_restart(self._plan)

    def next(self, algorithm: Algorithm, behavior: Behavior) -> Unroll:
        start, plan, crew = time.perf_counter(), self._plan, self._crew
        self._calls += 1
        call = "collect", algorithm, behavior, self._calls
        futures = [crew.call(i, *call) for i in range(crew.size)]
        if plan.pieces > 1:
            pending = list(futures)
            while len(pending) > crew.size - plan.first_workers:
                pending.remove(crew.first(pending))
            for future in pending:
                crew.hurry(futures.index(future), self._calls)
        answers = crew.results(futures)
        self.waited += time.perf_counter() - start
        return self._joined(answers, self._chosen(answers), behavior.updates)

    def _chosen(self, answers: Sequence[Collected]) -> list[Unroll]:
        """As many pieces as programs are compiled for, all of the longest unrolls."""
        plan = self._plan
        unrolls = sorted((answer.pieces for answer in answers), key=len, reverse=True)
        whole = [piece for pieces in unrolls[: plan.first_workers] for piece in pieces]
        others = unrolls[plan.first_workers :]
        return whole + [piece for pieces in others for piece in pieces[: plan.fewest_pieces]]

    def close(self) -> None:
        self._crew.close()


class Streamed(Source):
    """Takes unrolls as they come. Who has delivered goes on at once, with the latest weights."""

    def __init__(self, plan: Plan, crew: Crew) -> None:
        super().__init__()
        self._plan, self._crew = plan, crew
        self._pending: dict[Any, int] = {}  # futures, and whose they are

    @property
    def is_continuous(self) -> bool:
        return self._crew.size == 1 and not _may_restart(self._plan)

    def next(self, algorithm: Algorithm, behavior: Behavior) -> Unroll:
        start, crew = time.perf_counter(), self._crew
        for worker in set(range(crew.size)) - set(self._pending.values()):
            self._send(worker, algorithm, behavior)
        future = crew.first(list(self._pending))
        worker = self._pending.pop(future)
        answer = crew.result(future)
        self._send(worker, algorithm, behavior)
        self.waited += time.perf_counter() - start
        return self._joined([answer], answer.pieces, behavior.updates)

    def forget(self) -> None:
        while self._pending:
            future, _ = self._pending.popitem()
            self._crew.result(future)

    def _send(self, worker: int, algorithm: Algorithm, behavior: Behavior) -> None:
        self._calls += 1
        call = "collect", algorithm, behavior, self._calls
        self._pending[self._crew.call(worker, *call)] = worker

    def close(self) -> None:
        self._crew.close()


class Learns:
    """Computes gradients on unrolls of its own collectors, with the weights that it is given."""

    def __init__(self, plan: Plan, index: int) -> None:
        self._plan, self._index, self._train = plan, index, plan.train
        self._source = plan.source(index)
        self._cuts = cuts(self._train, self._source)
        self._state: Any = None
        self._work: Any = None
        self._step = self._begun = 0  # gradient steps on the unroll under way; unrolls so far
        self._taken = 0  # how many of these steps are not left out
        self._is_enough = False  # the others on this unroll are left out
        self._weights: Any = None  # of a decentralized update

    def begin(self, algorithm: Algorithm, weights: Weights, updates: int) -> dict[str, Any]:
        """Gets the next unroll; returns the episodes that ended in it, and what it is like."""
        state, self._train = self._state, with_algorithm(self._train, algorithm)
        if state is None:  # with weights that nobody asks for
            state = init_learner(self._train, self._plan.key(2, self._index))
        behavior = Behavior(
            params=weights.params,
            observation_statistics=None,
            updates=jnp.int32(updates),
        )
        self._begun += 1
        unroll = self._source.next(algorithm, behavior)
        key = self._plan.key(3, self._index, updates, self._begun)
        state = state.replace(weights=(), updates=jnp.int32(updates))
        storage, state = state.storage, state.replace(storage=())
        self._state, self._work, overview = _begin(
            self._train, state, storage, weights, unroll, key, self._cuts
        )
        self._step, self._key, self._is_enough = 0, key, False
        is_sync = self._plan.scheme.gradients.sync
        steps = self._train.parts.steps_per_update // (1 if is_sync else self._train.learners)
        turn = updates if is_sync else self._begun - 1
        self._taken = int(algorithm.gradient_steps_of(steps, turn))
        self._weights = weights
        news = jax.device_get({"ended": _ended(unroll), **overview})
        return {**news, "collection_lag": self._source.lag}

    def gradient(
        self, algorithm: Algorithm, weights: Weights | None, updates: int
    ) -> tuple[Any, Any]:
        """The next gradient on the unroll under way, and the losses; None while it waits.

        Without weights it is that of those that `apply` led to. After a restart another unroll is
        begun, or, without weights, none is there.
        """
        weights = self._weights if weights is None else weights
        if weights is None:
            return None, None
        if self._state is None:
            self.begin(algorithm, weights, updates)
        if self._step >= self._taken:
            self._step += 1
            return None, None
        state: Any = self._state
        key = jax.random.fold_in(self._key, self._step)
        storage, state = state.storage, state.replace(storage=())
        gradients, losses, waits, is_enough, self._state = _gradient(
            self._train, state, storage, weights, self._work, self._step, key
        )
        self._step += 1
        if algorithm.may_stop:
            self._is_enough = bool(is_enough)
        return (None, None) if bool(waits) else (gradients, losses)

    def next_gradient(
        self, algorithm: Algorithm, weights: Weights, updates: int
    ) -> tuple[Any, Any, dict[str, Any]]:
        """`gradient`, after `begin` where the last unroll is used up; and what that brought.

        None, too, from the gradient on that was enough: they count as steps, and are left out.
        """
        news: dict[str, Any] = {}
        if self._state is None or self._step >= steps_on_own_unrolls(self._train):
            news = self.begin(algorithm, weights, updates)
        if self._is_enough:
            self._step += 1
            return None, None, news
        return *self.gradient(algorithm, weights, updates), news

    def apply(self, gradients: Any) -> None:
        """Takes the gradient step that all of a decentralized update take."""
        if self._weights is not None:
            self._weights, _ = apply_gradients(self._train, self._weights, gradients)

    def forget(self) -> None:
        """Begins anew with the next unroll, and an empty memory."""
        self._source.forget()
        self._state = self._work = self._weights = None

    def hurry(self, number: int) -> None:
        """There is nothing to end early."""

    def close(self) -> None:
        """Ends the collectors."""
        self._source.close()


def steps_on_own_unrolls(train: Train) -> int:
    """Gradient steps on the unrolls of one learner, where each applies those of its own."""
    return train.algorithm.gradient_steps(train.parts.steps_per_update // train.learners)


def side_by_side(unrolls: Sequence[Unroll]) -> Unroll:
    """Several unrolls as one of all their instances."""
    if len(unrolls) == 1:
        return unrolls[0]
    return _side_by_side(list(unrolls))


def made(env: Any) -> Any:
    """What a function makes that was given in place of an environment; else what was given."""
    if not callable(env) or isinstance(env, Environment | VectorEnv):
        return env
    try:
        inspect.signature(env).bind()
    except TypeError as error:  # it takes something
        raise TrainingError(
            f"a scheme got env={env!r:.80}, which is called without arguments: {error}.  Pass a"
            " function without any; each collector calls it."
        ) from error
    except ValueError:  # nobody knows what it takes
        pass
    return env()


def hosted(env: Any) -> HostEnv | None:
    """The hosted environments within wrappers, if these are some."""
    while isinstance(env, WrappedVectorEnv):
        env = env.env
    return env if isinstance(env, HostEnv) else None


def cuts(train: Train, source: Source) -> bool:
    """Whether a memory must be told that the next unroll is of other episodes."""
    return isinstance(train.storage, ReplayStorage) and not source.is_continuous


def cut(unroll: Unroll) -> Unroll:
    """The unroll with every episode cut at its end, so that none goes on in the next one.

    Memories sum rewards and choose goals along a column, which other instances may go on with.
    """
    steps = unroll.transition
    last = jnp.zeros_like(steps.truncated).at[-1].set(True)
    truncated = steps.truncated | (last & ~steps.terminated)
    return dataclasses.replace(unroll, transition=steps.replace(truncated=truncated))


def with_algorithm(train: Train, algorithm: Algorithm) -> Train:
    """The same training with other hyper-parameters."""
    changes: dict[str, Any] = {"algorithm": algorithm}
    return dataclasses.replace(train, **changes)  # pyright: ignore[reportArgumentType]


def _may_restart(plan: Plan) -> bool:
    return isinstance(plan.scheme.collection.resources, Mapping)


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
def _collect(train: Train, behavior: Behavior, collector: Any, key: Any) -> Any:
    return train.collect(behavior, collector, key)


@jax.jit
def _side_by_side(unrolls: list[Unroll]) -> Unroll:
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


_ended = jax.jit(ended_episodes)


@functools.partial(jax.jit, donate_argnames="storage", static_argnames="cuts")
def _begin(
    train: Train, state: Any, storage: Any, weights: Any, unroll: Unroll, key: Any, cuts: bool
) -> Any:
    state = state.replace(weights=weights, storage=storage)
    unroll = cut(unroll) if cuts else unroll
    state, work = train.algorithm.begin(train.parts, state, unroll, key)
    return state.replace(weights=()), work, train.algorithm.overview(train.parts, work)


@functools.partial(jax.jit, donate_argnames="storage")
def _gradient(
    train: Train, state: Any, storage: Any, weights: Any, work: Any, step: Any, key: Any
) -> Any:
    algorithm, parts = train.algorithm, train.parts
    draw_key, gradient_key = jax.random.split(key)
    state = state.replace(weights=weights, storage=storage)
    waits = algorithm.waits(parts, state)
    batch = algorithm.draw(parts, state, work, step, draw_key)
    gradients, losses, error = algorithm.checked_gradients(parts, weights, batch, gradient_key)
    if error is not None:
        error = jnp.where(waits, jnp.nan, error)
    state = algorithm.settle(parts, state, batch, error)
    return gradients, losses, waits, algorithm.is_enough(losses), state.replace(weights=())


@functools.partial(jax.jit, static_argnames="share")
def apply_gradients(train: Train, weights: Weights, gradients: Any, share: int = 1) -> Any:
    """One gradient step, or one of `share` that are taken where others take one, and its report."""
    parts = train.parts
    parts = dataclasses.replace(parts, num_updates=parts.num_updates * share)  # schedules run so
    reported = train.algorithm.reported(parts, weights, gradients)
    return train.algorithm.apply_gradients(parts, weights, gradients), reported
