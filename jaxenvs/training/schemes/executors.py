"""Executors of a scheme: one program, or a learner with workers."""

import abc
import functools
from collections.abc import Callable
from time import perf_counter as _now
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import struct
from jaxenvs.core import Environment
from jaxenvs.errors import TrainingError
from jaxenvs.training.algorithms.algorithm import Algorithm, BehaviorPolicy
from jaxenvs.training.assembly import weight_shapes
from jaxenvs.training.checkpoint import place_like
from jaxenvs.training.collection import add_episodes, summarize_rows
from jaxenvs.training.schemes.scheme import Central, Remote, Scheme
from jaxenvs.training.schemes.sources import make_source
from jaxenvs.training.schemes.spec import TrainingSpec, find_host_env
from jaxenvs.training.schemes.worker_group import make_workers
from jaxenvs.training.schemes.workers import (
    GradientWorker,
    apply_gradients,
    gradient_steps_per_worker,
    init_learner,
    needs_truncation,
    truncate_unroll,
)
from jaxenvs.training.seeds import Seeds
from jaxenvs.training.sharded import ShardedTrain, shard
from jaxenvs.training.train_program import Train
from jaxenvs.training.types import LearnerState, Unroll, Weights
from jaxenvs.wrappers.independent_agents import IndependentAgents, batch_of

Metrics = dict[str, Any]  # numbers, or [S] for S seeds


class Executor(abc.ABC):
    """A runner of a training run's updates, which holds its state."""

    train: Any  # a `Train` or a `ShardedTrain`
    algorithm: Algorithm  # for all workers together
    learner_state: LearnerState

    @abc.abstractmethod
    def step(self, num_updates: int) -> Metrics:
        """Does some updates. Returns one row of metrics, float32[] each, or [S] for S seeds."""

    @abc.abstractmethod
    def close(self) -> None:
        """Closes workers and hosted environments."""

    def load_state(self, learner_state: LearnerState) -> None:
        """Continues from another state, such as a restored one."""
        self.learner_state = jax.tree.map(place_like, learner_state, self.learner_state)

    def set_algorithm(self, algorithm: Algorithm) -> None:
        """Changes the hyperparameters."""
        self.algorithm = algorithm
        self.train = self.train.replace(algorithm=algorithm)

    @property
    def steps_per_update(self) -> int:
        """Environment steps per update, of all instances."""
        return self.train.context.steps_per_update


class FusedExecutor(Executor):
    """An executor in a single program, for one or several devices and seeds.

    The state is donated to the program.
    """

    def __init__(
        self,
        spec: TrainingSpec,
        mesh: jax.sharding.Mesh | None,
        report_every: int,
        seeds: Seeds,
    ) -> None:
        changes: dict[str, Any] = {"report_every": report_every}
        train, env = spec.train, spec.train.env
        if mesh is not None:  # `num_envs` of a scheme is the number per device
            batch: Any = batch_of(env)
            batch = struct.replace(batch, num_envs=batch.num_envs * mesh.size)
            env = env.with_env(batch) if isinstance(env, IndependentAgents) else batch
            changes |= {"env": env, "learners": 1, "algorithm": spec.algorithm}
        train = train.replace(**changes)
        self.train = train if mesh is None else shard(train, mesh)
        self._spec, self._is_vmapped = spec, seeds.are_several
        if seeds.are_several:
            key = jax.vmap(jax.random.key)(np.asarray(seeds.numbers, np.uint32))
        else:
            key = jax.random.key(spec.seed)
        self.learner_state = _init(self.train, key)

    def step(self, num_updates: int) -> Metrics:
        self.learner_state, metrics = _resume(
            self.train, self.learner_state, num_updates, self._is_vmapped
        )
        return jax.device_get(metrics)

    def set_algorithm(self, algorithm: Algorithm) -> None:
        if not isinstance(self.train, ShardedTrain):
            super().set_algorithm(algorithm)
            return
        part = self.train.train.replace(algorithm=algorithm.per_device(self.train.mesh.size))
        self.train = struct.replace(self.train, train=part)
        self.algorithm = algorithm

    def load_state(self, learner_state: LearnerState) -> None:
        # Checkpoints do not contain hosted environments; the running ones continue.
        if isinstance(self.train, Train) and find_host_env(self.train.env) is not None:
            learner_state = self.train.truncate_memory(learner_state)
            learner_state = learner_state.replace(collector=self.learner_state.collector)
        super().load_state(learner_state)

    @property
    def steps_per_update(self) -> int:
        if isinstance(self.train, ShardedTrain):
            part = self.train.train.replace(axis_name=None)  # it exists within programs only
            return part.context.steps_per_update * self.train.mesh.size
        return super().steps_per_update

    def close(self) -> None:
        if isinstance(self.train, Train):
            self._spec.close_env(self.train.env)


class WorkerExecutor(Executor):
    """The base class of executors with workers, which run one update at a time."""

    def step(self, num_updates: int) -> Metrics:
        rows = [self._update() for _ in range(num_updates)]
        if len(rows) == 1:
            return rows[0]
        names = sorted({name for row in rows for name in row})
        columns = {
            name: jnp.asarray([row.get(name, np.nan) for row in rows], jnp.float32)
            for name in names
        }
        return jax.device_get(summarize_rows(columns))

    @abc.abstractmethod
    def _update(self) -> Metrics:
        """Does one update."""


class CentralExecutor(WorkerExecutor):
    """An executor that computes gradients in the learner, on unrolls that workers collect."""

    def __init__(self, spec: TrainingSpec) -> None:
        self.train = spec.train
        self.learner_state = init_learner(spec.train, spec.key(2))
        self._spec, self._source = spec, make_source(spec)
        self._truncates = needs_truncation(self.train, self._source)

    def _update(self) -> Metrics:
        start, waited, collected = _now(), self._source.waited, self._source.collected
        state = self.learner_state
        number = int(state.updates)
        unroll = self._source.next_unroll(self.train.algorithm, BehaviorPolicy.of(state))
        learning, key = _now(), self._spec.key(4, number)
        storage, state = state.storage, state.replace(storage=())
        self.learner_state, metrics = _learn(
            self.train, state, storage, unroll, key, self._truncates
        )
        metrics = {name: float(value) for name, value in jax.device_get(metrics).items()}
        seconds = _now() - start
        return metrics | {
            "collection_lag": self._source.lag,
            "waiting_share": (self._source.waited - waited) / seconds,
            "collection_seconds": self._source.collected - collected,
            "learning_share": (_now() - learning) / seconds,
        }

    def load_state(self, learner_state: LearnerState) -> None:
        self._source.discard()
        super().load_state(self.train.truncate_memory(learner_state))

    def close(self) -> None:
        self._source.close()


class RemoteExecutor(WorkerExecutor):
    """An executor that applies gradients that workers compute."""

    def __init__(self, spec: TrainingSpec) -> None:
        gradients: Any = spec.scheme.gradients
        self.train = spec.train
        self.learner_state = init_learner(spec.train, spec.key(2)).replace(storage=())
        self._is_synchronous = gradients.sync
        self._is_decentralized = spec.scheme.update == "decentralized"
        self._group = make_workers(
            functools.partial(GradientWorker, spec), gradients.n, gradients.resources
        )
        self._pending: dict[Any, tuple[int, int]] = {}  # worker and step of each future

    def _update(self) -> Metrics:
        start = _now()
        update = self._update_sync if self._is_synchronous else self._update_async
        reports, losses, times = update()
        state = self.learner_state
        recent, episodes = self._episodes(reports)
        self.learner_state = state.replace(updates=state.updates + 1, recent_episodes=recent)
        seconds = _now() - start
        shares = {f"{name}_share": spent / seconds for name, spent in times.items()}
        steps = float(self._updates * self.train.context.steps_per_update)
        return episodes | _mean_rows(reports) | _mean_rows(losses) | shares | {"steps": steps}

    def _episodes(self, reports: list[dict[str, Any]]) -> tuple[Any, Metrics]:
        """Adds the episodes of all unrolls. Returns the recent episodes and their metrics."""
        recent: Any = self.learner_state.recent_episodes
        ended = sum((each.pop("ended") for each in reports), np.zeros(len(recent), np.float32))
        recent, metrics = _add_episodes(recent, ended, self.train.log_info)
        return recent, {name: float(value) for name, value in metrics.items()}

    def _update_sync(self) -> Any:
        """Does an update in which all workers compute each gradient with the same weights."""
        group, algorithm = self._group, self.train.algorithm
        times, updates = dict.fromkeys(("collection", "gradients", "update"), 0.0), self._updates
        start = _now()
        reports = group.call_all("start_unroll", algorithm, self._weights, updates)
        times["collection"], all_losses = _now() - start, []
        for _ in range(algorithm.gradient_steps(self.train.context.steps_per_update)):
            start = _now()
            weights = None if self._is_decentralized else self._weights
            answers = group.call_all("compute_gradient", algorithm, weights, updates)
            computed = _now()
            times["gradients"] += computed - start
            if any(gradients is None for gradients, _ in answers):
                break
            gradients, losses = zip(*answers, strict=True)
            mean = _mean(list(gradients))
            if self._is_decentralized:  # `_apply` below is only for metrics and checkpoints
                group.call_all("apply", mean)
            reported = self._apply(mean)
            times["update"] += _now() - computed
            all_losses += [{**reported, **each} for each in losses]
            if algorithm.may_skip_steps and bool(algorithm.should_stop(_mean(list(losses)))):
                break
        return reports, all_losses, times

    def _update_async(self) -> Any:
        """Does an update that applies gradients as they arrive, then sends the new weights."""
        group, times = self._group, dict.fromkeys(("waiting", "update"), 0.0)
        number = gradient_steps_per_worker(self.train) * group.size
        all_reports, all_losses, lags = [], [], []
        for worker in set(range(group.size)) - {worker for worker, _ in self._pending.values()}:
            self._send(worker)
        for _ in range(number):
            start = _now()
            future = group.wait_any(list(self._pending))
            worker, as_of = self._pending.pop(future)
            gradients, losses, report = group.wait(future)
            came = _now()
            if gradients is not None:
                lags.append(self._gradient_steps - as_of)
                all_losses.append({**self._apply(gradients), **losses})
            self._send(worker)
            all_reports += [report] if report else []
            times["waiting"] += came - start
            times["update"] += _now() - came
        for report in all_reports:
            report["gradient_lag"] = float(np.mean(lags)) if lags else 0.0
        return all_reports, all_losses, times

    def _send(self, worker: int) -> None:
        call = "next_gradient", self.train.algorithm, self._weights, self._updates
        future = self._group.call(worker, *call)
        self._pending[future] = worker, self._gradient_steps

    def _apply(self, gradients: Any) -> dict[str, Any]:
        share = 1 if self._is_synchronous else self._group.size
        weights, reported = apply_gradients(self.train, self._weights, gradients, share)
        self.learner_state = self.learner_state.replace(weights=weights)
        return reported

    @property
    def _weights(self) -> Weights:
        return self.learner_state.weights

    @property
    def _updates(self) -> int:
        return int(self.learner_state.updates)

    @property
    def _gradient_steps(self) -> int:
        return int(self._weights.gradient_steps)

    def set_algorithm(self, algorithm: Algorithm) -> None:
        own = algorithm.per_device(self._group.size) if self._is_synchronous else algorithm
        super().set_algorithm(own)
        self.algorithm = algorithm

    def load_state(self, learner_state: LearnerState) -> None:
        while self._pending:
            future, _ = self._pending.popitem()
            self._group.wait(future)
        self._group.call_all("discard")
        super().load_state(learner_state)

    def close(self) -> None:
        self._group.close()


def make_executor(
    scheme: Scheme,
    total_steps: int,
    seeds: Seeds,
    report_every: int,
    check: Callable[[Train], None] | None = None,
) -> Executor:
    """Returns the executor for a scheme.

    Calls `check`, which may raise, before any environment is reset.
    """
    number = len(seeds.numbers)
    spec = TrainingSpec(scheme=scheme, total_steps=total_steps, seed=seeds.numbers[0])
    with spec.closing_on_error():
        if check is not None:
            check(spec.train)
        executor: Executor
        if scheme.is_fused:
            if seeds.are_several and find_host_env(spec.train.env) is not None:
                raise TrainingError(
                    f"Learner got {number} seeds and hosted environments, which cannot be"
                    " replicated in one program.  Train one seed after the other."
                )
            executor = FusedExecutor(spec, None, report_every, seeds)
        elif seeds.are_several:
            raise TrainingError(
                f"Learner got {number} seeds and a scheme with workers, which support only one"
                " seed.  Train one seed after the other, or make collection and gradients central."
            )
        elif _fits_devices(scheme):
            devices = jax.local_devices()[: scheme.gradients.n]
            explicit = (jax.sharding.AxisType.Explicit,)  # not the default of jax 0.8
            mesh = jax.make_mesh((len(devices),), ("learners",), explicit, devices=devices)
            executor = FusedExecutor(spec, mesh, report_every, seeds)
        else:
            is_central = isinstance(scheme.gradients, Central)
            executor = CentralExecutor(spec) if is_central else RemoteExecutor(spec)
            spec.close_unused_env()
        executor.algorithm = spec.algorithm
        return executor


def _fits_devices(scheme: Scheme) -> bool:
    """Returns whether the synchronous workers can be devices of one program."""
    is_native = isinstance(scheme.env, Environment)
    if isinstance(scheme.env, str):
        from jaxenvs.factory import is_hosted

        is_native = not is_hosted(scheme.env)
    gradients = scheme.gradients
    return (
        is_native
        and isinstance(scheme.collection, Central)
        and isinstance(gradients, Remote)
        and gradients.sync
        and gradients.resources is None
        and gradients.n <= len(jax.local_devices())
    )


def check_weights(learned: Any, train: Train) -> None:
    """Raises TrainingError if the weights of `train` have other shapes than the learned ones."""
    if not _same_types(learned, weight_shapes(train.algorithm, train.networks)):
        raise TrainingError(
            "the weights of the new parts have other shapes than the learned weights.  Keep the"
            " actor, or start a new training run."
        )


def _same_types(tree: Any, other: Any) -> bool:
    """Returns whether two trees have the same structure, shapes and dtypes."""
    if jax.tree.structure(tree) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    return all(x.shape == y.shape and x.dtype == y.dtype for x, y in pairs)


def transfer_state(before: Executor, after: Executor) -> Any:
    """Returns the new executor's state, with all parts of the old state that fit."""
    old, new = before.learner_state, after.learner_state
    # Environment steps continue, so updates are recounted if their length changed.
    steps = np.asarray(old.updates, np.int64) * before.steps_per_update
    updates = jnp.asarray(steps // after.steps_per_update, jnp.int32)
    changes: dict[str, Any] = {"updates": updates, "key": old.key}
    if _same_types(old.weights, new.weights):
        changes["weights"] = old.weights
    else:  # another algorithm, whose optimizer and targets are reinitialized
        changes["weights"] = new.weights.replace(
            params=old.weights.params, gradient_steps=old.weights.gradient_steps
        )
    names = ("storage", "collector", "observation_statistics", "return_statistics")
    for name in (*names, "recent_episodes"):
        was, would_be = getattr(old, name), getattr(new, name)
        if _same_types(was, would_be):
            changes[name] = was
    carried = new.replace(**changes)
    is_elsewhere = "storage" in changes and "collector" not in changes
    return after.train.truncate_memory(carried) if is_elsewhere else carried


@jax.jit
def _init(train: Any, key: jax.Array) -> LearnerState:
    return jax.vmap(train.init)(key) if key.ndim else train.init(key)


@functools.partial(jax.jit, donate_argnames="state", static_argnames=("num_updates", "is_vmapped"))
def _resume(train: Any, state: LearnerState, num_updates: int, is_vmapped: bool) -> Any:
    def resume(state: LearnerState) -> Any:
        result = train.resume(state, num_updates)
        return result.learner_state, {name: rows[-1] for name, rows in result.metrics.items()}

    return jax.vmap(resume)(state) if is_vmapped else resume(state)


@functools.partial(jax.jit, donate_argnames="storage", static_argnames="truncates")
def _learn(
    train: Train, state: Any, storage: Any, unroll: Unroll, key: Any, truncates: bool
) -> Any:
    state = state.replace(storage=storage)
    return train.learn(state, truncate_unroll(unroll) if truncates else unroll, key)


@jax.jit
def _mean(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]) / len(leaves), *trees)


_add_episodes = jax.jit(add_episodes, static_argnums=2)


def _mean_rows(rows: list[Any]) -> Metrics:
    rows = jax.device_get(rows)
    return {name: float(np.mean([row[name] for row in rows])) for name in rows[0]} if rows else {}
