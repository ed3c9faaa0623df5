"""A training under way, for those who want to look after it: step, print, save, change, go on."""

import dataclasses
import functools
import json
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys
from jaxenvs.bridge._interrupts import FirstSignal
from jaxenvs.core import VectorEnv
from jaxenvs.errors import TrainingError, closest, missing_extra
from jaxenvs.rollouts import Evaluation, evaluate
from jaxenvs.training._settings import check_settings, whole
from jaxenvs.training.anakin import ActorPolicy, Train, weight_shapes
from jaxenvs.training.checkpoint import restore, save
from jaxenvs.training.evaluation import evaluation_env, evaluation_metrics
from jaxenvs.training.schemes.engines import Engine, Fused, engine_for
from jaxenvs.training.schemes.scheme import Scheme
from jaxenvs.training.schemes.workers import hosted, made
from jaxenvs.training.types import LearnerState

_BEST, _LATEST, _RECORD = "best", "latest", "best.json"


class Learner:
    """Drives a scheme.

        with Learner(scheme, total_steps=1_000_000, log_dir="runs/cartpole") as learner:
            while not learner.done():
                learner.step()
                learner.print_info()
            learner.save()

    With a `log_dir` every step is logged there, Ctrl-C and SIGTERM save before they end the
    program, and `Learner(..., resume=True)` goes on from what was saved. Where everything is one
    program, it goes on bit for bit; workers and hosted environments begin new episodes, and workers
    that compute gradients have empty memories.

    Environments that were made for the training, from an id or by a function, end with `close`.

    Args:
        scheme: the parts, and where they run.
        total_steps: environment steps in all; the last update is completed.
        seed: of weights, environments and workers.
        log_dir: where logs and checkpoints go, a folder of its own; None keeps nothing.
        logs: which logs, see `jaxenvs.training.logs.open_logs`.
        report_every: updates that a step does and reports as one, where all is one program.
        evaluate_every: environment steps between two evaluations of the greedy policy, rounded up
            to whole updates; one more follows the last update. They take place at the end of a
            step. None never evaluates.
        evaluation_env: what is evaluated on, as the scheme's `env`; None makes others like those.
            Without a time limit, episodes are cut after 10,000 steps.
        evaluation_episodes: how many, each from its start to its end.
        resume: whether to go on from the checkpoint in `log_dir`.

    Raises:
        TrainingError: the scheme cannot be assembled, there is nothing to resume, or `log_dir`
            holds another run.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        total_steps: int,
        seed: int = 0,
        log_dir: str | Path | None = None,
        logs: Sequence[str] = ("csv", "jsonl"),
        report_every: int = 1,
        evaluate_every: int | None = None,
        evaluation_env: Any = None,
        evaluation_episodes: int = 20,
        resume: bool = False,
    ) -> None:
        if not isinstance(scheme, Scheme):
            raise TrainingError(
                f"Learner got {scheme!r:.60}; it takes a scheme: Scheme(env, algorithm, ...)."
            )
        whole("Learner got total_steps", total_steps)
        whole("Learner got report_every", report_every)
        whole("Learner got evaluation_episodes", evaluation_episodes)
        whole("Learner got seed", seed, least=0)
        if evaluate_every is not None:
            whole("Learner got evaluate_every", evaluate_every)
        if log_dir is None and resume:
            raise TrainingError("Learner got resume=True and no log_dir.  Say where to look.")
        if log_dir is not None and not resume:
            _check_unused(Path(log_dir))
        self._scheme, self.total_steps, self.seed = scheme, total_steps, seed
        self.log_dir = None if log_dir is None else Path(log_dir)
        self._evaluate_every, self._evaluation_episodes = evaluate_every, evaluation_episodes
        self._evaluation_env, self._evaluated_in = evaluation_env, None
        self._evaluation_ending: Any = None  # closes it, where it is hosted and ours
        self._report_every, self._best, self._steps = report_every, -np.inf, 0
        self._metrics: dict[str, float] = {}
        self._signals: FirstSignal | None = None
        self._logs: Any = None
        self._started = perf_counter()
        self._engine: Engine = engine_for(scheme, total_steps, seed, report_every)
        self._ending = weakref.finalize(self, self._engine.close)  # also if nobody calls `close`
        try:
            if resume:
                self.restore()
            if self.log_dir is not None:
                from jaxenvs.training.logs import open_logs

                resume_step = self._environment_steps if resume else None
                self._logs = open_logs(self.log_dir, logs, resume_step=resume_step)
                self._signals = FirstSignal()
                weakref.finalize(self, self._signals.ignore).atexit = False
        except BaseException:
            self._close()
            raise

    def step(self) -> dict[str, float]:
        """Goes on by one update, or `report_every` of them; returns its metrics.

        Raises:
            TrainingError: the learner is closed, or all updates are done.
        """
        self._check_open("step")
        if self.done():
            raise TrainingError(
                f"step was called after all {self.num_updates} updates of total_steps="
                f"{self.total_steps}.  To train for longer, save, and make a Learner with a larger"
                " total_steps: with log_dir and resume=True, or `restore`, it goes on from there."
            )
        start, before = perf_counter(), self._environment_steps
        metrics = self._engine.step()
        now, steps = perf_counter(), self._environment_steps
        self._steps += 1
        self._metrics = metrics | {
            "steps": float(steps),  # in programs a float32, which is too short to count far
            "steps_per_second": (steps - before) / (now - start),
            "seconds": now - self._started,
        }
        if self._evaluate_every is not None:
            every = self.steps_per_update * -(-self._evaluate_every // self.steps_per_update)
            if steps // every > before // every or self.done():
                self._judge()
        if self._logs is not None:
            self._logs.write(steps, self._metrics)
        if self._signals is not None and self._signals.came is not None:
            self._leave(self._signals.came)
        return dict(self._metrics)

    def done(self) -> bool:
        """Whether `total_steps` are taken."""
        return self.updates >= self.num_updates

    @property
    def scheme(self) -> Scheme:
        """The scheme under way, with the algorithm that is in use."""
        return dataclasses.replace(self._scheme, algorithm=self._engine.algorithm)

    @property
    def learner_state(self) -> LearnerState:
        """Weights, optimizer and all else that a checkpoint holds, as they are now.

        The next step may take its memory: copy what is to be kept, `jax.device_get(...)`.
        """
        return self._engine.learner_state

    @property
    def env(self) -> VectorEnv:
        """What is collected in: where workers or devices do, environments like those of one."""
        return self._engine.train.env

    @property
    def updates(self) -> int:
        """How many updates are done."""
        return int(self.learner_state.updates)

    @property
    def num_updates(self) -> int:
        """How many there are in all."""
        return self._engine.train.num_updates

    @property
    def steps_per_update(self) -> int:
        """Environment steps, of all collectors together."""
        return self._engine.steps_per_update

    def get_metrics(self) -> dict[str, float]:
        """Those of the last step: episodes, losses, lags, shares of time, steps per second."""
        return dict(self._metrics)

    def print_info(self) -> None:
        """Prints the metrics as a table (needs the extra `cli`)."""
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError as error:
            raise missing_extra("Learner.print_info", "rich", "cli") from error
        table = Table(title=f"{self._environment_steps:,} of {self.total_steps:,} steps")
        table.add_column("metric")
        table.add_column("value", justify="right")
        for name, value in self._metrics.items():
            table.add_row(name, f"{value:,.4g}")
        Console().print(table)

    def policy(self, *, greedy: bool = True) -> ActorPolicy:
        """The policy as it is now."""
        return self._engine.train.policy(self.learner_state, greedy=greedy)

    def evaluate(self, num_episodes: int | None = None) -> Evaluation:
        """Plays whole episodes, greedily, in environments that nothing is learned from.

        They are made at the first call, `num_episodes` or `evaluation_episodes` of them unless
        they were given, and play equally many each: the number is rounded up to a multiple.

        Raises:
            TrainingError: the number is none from 1 on, or there is nothing to play in.
        """
        number = self._evaluation_episodes if num_episodes is None else num_episodes
        whole("evaluate got num_episodes", number)
        if self._evaluated_in is None:
            given: Any = self._evaluation_env
            source: Any = self.scheme.env if given is None else given
            chosen = made(source)
            if isinstance(chosen, VectorEnv) and (given is not None or chosen is not source):
                self._evaluated_in = chosen  # meant for this, or new
            else:
                self._evaluated_in = evaluation_env("evaluate", chosen, number)
            hosts = hosted(self._evaluated_in)
            if hosts is not None and self._evaluated_in is not given:
                self._evaluation_ending = weakref.finalize(self, hosts.close)
        env: VectorEnv = self._evaluated_in
        key = keys.evaluation_key(jax.random.key(self.seed), self._steps)
        return evaluate(env, self.policy(), -(-number // env.num_envs), key)

    def save(self, path: str | Path | None = None) -> Path:
        """Writes a checkpoint to `path`, or into `log_dir`; it is there whole or not at all."""
        path = self._checkpoint("save", path)
        return save(path, self.learner_state)

    def restore(self, path: str | Path | None = None) -> None:
        """Goes on from a checkpoint at `path`, or from the latest one in `log_dir`.

        What workers have under way is waited for and dropped: it is of other weights. The memories
        of those that compute gradients begin empty.

        Raises:
            TrainingError: there is none, or it is of another training.
        """
        path = self._checkpoint("restore", path)
        if (path / _LATEST).is_dir():
            raise TrainingError(
                f'"{path}" is the folder of a run.  Restore one of its checkpoints:'
                f' "{path / _LATEST}", for instance.'
            )
        self._engine.restored(restore(path, self.learner_state))
        is_fused = isinstance(self._engine, Fused)  # also over several devices
        self._steps = self.updates // self._report_every if is_fused else self.updates
        self._best = _recorded((self.log_dir or path.parent) / _RECORD)

    def update_algo_parameter(self, name: str, value: Any) -> None:
        """Goes on with another value of a hyper-parameter.

        For a number nothing is compiled or begun anew; what is under way ends with the old one.

        Raises:
            TrainingError: there is no such hyper-parameter, the message names the closest; or it
                is a number, and the value is none.
        """
        old = self._engine.algorithm
        algorithm, before = old.replace(**{name: value}), getattr(old, name)
        if isinstance(before, float) and np.ndim(value):
            raise TrainingError(f"{name}={value!r}; it takes a number, such as {before}.")
        check_settings(algorithm)
        if isinstance(before, float) and isinstance(value, int | np.number):
            algorithm = algorithm.replace(**{name: float(value)})  # programs tell them apart
        if jax.tree.structure(algorithm) != jax.tree.structure(old):
            self.replace(algorithm=algorithm)
            return
        self._engine.change(algorithm)
        self._engine.algorithm = algorithm

    def replace(self, **parts: Any) -> None:
        """Goes on with other parts: algorithm, storage, env, unroll_length and so on.

        What was learned stays: weights and optimizer go on as far as they fit the new parts.

        Raises:
            TrainingError: there is no such part, the weights do not fit it, or the learner is
                closed.
        """
        self._check_open("replace")
        names = [field.name for field in dataclasses.fields(Scheme)]
        for name in parts:
            if name not in names:
                raise TrainingError(f'a scheme has no part "{name}".{closest(name, names)}')
        scheme = dataclasses.replace(self.scheme, **parts)
        old = self._engine
        check = functools.partial(_check_weights, old.learner_state.weights.params)
        engine = engine_for(scheme, self.total_steps, self.seed, self._report_every, check)
        try:
            engine.restored(_carried(old, engine))
        except BaseException:
            engine.close()
            raise
        self._ending()
        self._ending = weakref.finalize(self, engine.close)
        self._scheme, self._engine = scheme, engine
        if "env" in parts and self._evaluation_env is None:
            self._end_evaluation()  # it goes on in environments like the new ones

    def close(self) -> None:
        """Ends workers and hosted environments, and the logs. `save` before, if you want to.

        Raises:
            SystemExit: Ctrl-C or SIGTERM came after the last step; it has saved first, as a step
                does that one comes into. The status is the usual one, 130 or 143.
        """
        if self._signals is not None:
            self._signals.ignore()
            if self._signals.came is not None:
                self._leave(self._signals.came)
        self._close()

    def _close(self) -> None:
        if self._signals is not None:
            self._signals.ignore()
        self._ending()
        self._end_evaluation()
        if self._logs is not None:
            self._logs.close()
        self._logs = self._signals = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._close()  # there is an error to be told of, whatever signals came

    def _check_open(self, call: str) -> None:
        if not self._ending.alive:
            raise TrainingError(
                f"{call} was called on a learner that is closed.  Make another; with resume=True it"
                " goes on from what was saved in log_dir."
            )

    def _end_evaluation(self) -> None:
        if self._evaluation_ending is not None:
            self._evaluation_ending()
        self._evaluation_ending = self._evaluated_in = None

    def _checkpoint(self, call: str, path: str | Path | None) -> Path:
        if path is not None:
            return Path(path)
        if self.log_dir is None:
            raise TrainingError(f"{call} got no path, and the learner has no log_dir.  Pass one.")
        return self.log_dir / _LATEST

    @property
    def _environment_steps(self) -> int:
        return self.updates * self.steps_per_update

    def _judge(self) -> None:
        found = evaluation_metrics(self.evaluate())
        self._metrics |= {name: float(value) for name, value in found.items()}
        mean = self._metrics["evaluation_return"]
        if self.log_dir is not None and mean > self._best:
            self.save(self.log_dir / _BEST)
            _record(self.log_dir / _RECORD, mean, self._environment_steps)
        self._best = max(self._best, mean)

    def _leave(self, number: int) -> None:
        try:
            self.save()
        finally:
            self._close()
        raise SystemExit(128 + number)


def _check_unused(folder: Path) -> None:
    found = [
        name
        for name in (_LATEST, _BEST, "metrics.csv", "metrics.jsonl")
        if (folder / name).exists()
    ]
    if found:
        raise TrainingError(
            f'the folder "{folder}" holds a run already ({", ".join(found)}).  Pass resume=True to'
            " go on with it, or another folder."
        )


def _record(path: Path, mean: float, steps: int) -> None:
    """Notes beside the best checkpoint how good it is, all at once."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(json.dumps({"evaluation_return": mean, "steps": steps}) + "\n")
    os.replace(draft, path)


def _recorded(path: Path) -> float:
    """How good the best checkpoint is; -inf where there is none."""
    if not path.is_file():
        return -np.inf
    try:
        return float(json.loads(path.read_text())["evaluation_return"])
    except (ValueError, TypeError, KeyError) as error:
        raise TrainingError(
            f'"{path}" is damaged: {error}.  Remove it, and the next evaluation is the best so far.'
        ) from error


def _check_weights(learned: Any, train: Train) -> None:
    """Refuses a training with other weights than those that were learned."""
    if not _alike(learned, weight_shapes(train.algorithm, train.networks)):
        raise TrainingError(
            "the new parts have other weights than those that were learned.  Keep the actor, or"
            " begin another training."
        )


def _alike(tree: Any, other: Any) -> bool:
    """Whether two trees have the same structure, shapes and dtypes."""
    if jax.tree.structure(tree) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(other), strict=True)
    return all(x.shape == y.shape and x.dtype == y.dtype for x, y in pairs)


def _carried(before: Engine, after: Engine) -> Any:
    """The new engine's state with what the old one has learned, as far as it fits."""
    old, new = before.learner_state, after.learner_state
    # Environment steps go on, so updates are counted anew where they consist of more or fewer.
    updates = int(old.updates) * before.steps_per_update // after.steps_per_update
    changes: dict[str, Any] = {"updates": jnp.int32(updates), "key": old.key}
    if _alike(old.weights, new.weights):
        changes["weights"] = old.weights
    else:  # another algorithm: its optimizer and targets begin anew
        changes["weights"] = new.weights.replace(
            params=old.weights.params, gradient_steps=old.weights.gradient_steps
        )
    for name in (
        *("storage", "collector", "observation_statistics", "return_statistics"),
        "recent_episodes",
    ):
        was, would_be = getattr(old, name), getattr(new, name)
        if _alike(was, would_be):
            changes[name] = was
    carried = new.replace(**changes)
    is_elsewhere = "storage" in changes and "collector" not in changes
    return after.train.cut(carried) if is_elsewhere else carried
