"""A step-by-step driver of a training run, which logs, saves, evaluates and resumes."""

import contextlib
import dataclasses
import functools
import os
import signal
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs import keys
from jaxenvs.core import VectorEnv
from jaxenvs.errors import TrainingError, check_integer, closest, missing_extra
from jaxenvs.rollouts import Evaluation
from jaxenvs.training._validation import check_settings, like_number
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from jaxenvs.training.evaluation import evaluation_env, evaluation_metrics, play_episodes
from jaxenvs.training.logs import check_logs
from jaxenvs.training.progress import ProgressBar
from jaxenvs.training.run_files import RunFiles
from jaxenvs.training.schemes.executors import (
    Executor,
    check_weights,
    make_executor,
    transfer_state,
)
from jaxenvs.training.schemes.scheme import Scheme
from jaxenvs.training.schemes.spec import call_env_factory
from jaxenvs.training.seeds import Seeds
from jaxenvs.training.signals import StopRequest
from jaxenvs.training.train_program import ActorPolicy
from jaxenvs.training.types import LearnerState


class Learner:
    """A driver that runs a scheme step by step.

        with Learner(scheme, total_steps=1_000_000, log_dir="runs/cartpole") as learner:
            while not learner.done():
                learner.step()
                learner.print_info()
            learner.save()

    With a `log_dir`, every step is logged there. The first Ctrl-C or SIGTERM finishes the current
    step, saves and ends the program; the second ends it immediately. `Learner(..., resume=True)`
    continues from the checkpoint, bit for bit if everything runs in one program. Otherwise, workers
    and hosted environments start new episodes, and the replay memories of gradient workers start
    empty.

    `close` closes the environments that the learner made from an id or a function.

    With a sequence of S seeds, all of them train side by side in one program. Each metric is then a
    float32[S] array, and each seed has a folder `log_dir/seed_N`.

    Args:
        scheme: the parts and where they run.
        total_steps: environment steps per seed, rounded up to whole updates.
        seed: the seed of weights, environments and workers, or a sequence of seeds.
        log_dir: the folder for logs and checkpoints; None writes none.
        logs: the kinds of logs, see `jaxenvs.training.logs.open_logs`.
        report_every: the number of updates per step, which are reported as one row of metrics.
        save_every: environment steps between two checkpoints in `log_dir`, rounded up to whole
            updates; None saves only on `save` or a signal.
        evaluate_every: environment steps between two evaluations of the greedy policy, rounded up
            to whole updates; one more follows the last update. Evaluations run at the end of a
            step. None never evaluates.
        evaluation_env: the environment for evaluations, in any form of the scheme's `env`; None
            makes new instances like those. Without a time limit, episodes end after 10,000 steps.
        evaluation_episodes: the number of whole episodes per evaluation.
        resume: whether to continue from the checkpoint in `log_dir`.
        progress: whether to show a progress bar (needs the extra `cli`).

    Attributes:
        compile_seconds: time spent in steps that compile: the first one, and a shorter last one.
        run_seconds: time spent in all other steps, without evaluations.
        timed_steps: environment steps per seed during `run_seconds`.

    Raises:
        TrainingError: the parts of the scheme do not fit together, there is nothing to resume, or
            `log_dir` already contains a run.
    """

    def __init__(
        self,
        scheme: Scheme,
        *,
        total_steps: int,
        seed: int | Sequence[int] = 0,
        log_dir: str | Path | None = None,
        logs: Sequence[str] = ("csv", "jsonl"),
        report_every: int = 1,
        save_every: int | None = None,
        evaluate_every: int | None = None,
        evaluation_env: Any = None,
        evaluation_episodes: int = 20,
        resume: bool = False,
        progress: bool = False,
    ) -> None:
        if not isinstance(scheme, Scheme):
            raise TrainingError(
                f"Learner got {scheme!r:.60}; expected a scheme: Scheme(env, algorithm, ...)."
            )
        check_integer(TrainingError, "Learner got total_steps", total_steps)
        check_integer(TrainingError, "Learner got report_every", report_every)
        check_integer(TrainingError, "Learner got evaluation_episodes", evaluation_episodes)
        for name, value in (("evaluate_every", evaluate_every), ("save_every", save_every)):
            if value is not None:
                check_integer(TrainingError, f"Learner got {name}", value)
        check_logs(logs)
        self._seeds = Seeds(seed)
        self.log_dir = None if log_dir is None else Path(log_dir)
        if self.log_dir is None and (resume or save_every is not None):
            option = "resume=True" if resume else f"save_every={save_every}"
            raise TrainingError(f"Learner got {option} without log_dir.  Pass log_dir.")
        self._files = RunFiles(self._seeds, self.log_dir)
        if not resume:
            self._files.check_new()
        self._scheme, self.total_steps, self.seed = scheme, total_steps, seed
        self._report_every, self._save_every = report_every, save_every
        self._evaluate_every, self._evaluation_episodes = evaluate_every, evaluation_episodes
        self._given_evaluation_env, self._evaluation_env = evaluation_env, None
        self._close_evaluation_env: Any = None  # set if the learner made it
        self._metrics: dict[str, Any] = {}
        self._signals: StopRequest | None = None
        self._progress: ProgressBar | None = None
        self._compiled: set[int] = set()  # numbers of updates for which a program exists
        self.run_seconds, self.timed_steps = 0.0, 0
        self._started = perf_counter()
        self._executor: Executor = make_executor(scheme, total_steps, self._seeds, report_every)
        self.compile_seconds = perf_counter() - self._started
        self._close_executor = weakref.finalize(self, self._executor.close)  # without `close`, too
        try:
            if resume:
                self.restore()
            if evaluate_every is not None:
                self._make_evaluation_env(evaluation_episodes)
            if progress:
                self._progress = ProgressBar(self.steps_per_update, self.updates)
            if self.log_dir is not None:
                so_far = self._environment_steps if resume else None
                self._started -= self._files.open_logs(logs, so_far)
                self._signals = StopRequest(_announce_stop)
                weakref.finalize(self, self._signals.cancel).atexit = False
        except BaseException:
            self._close()
            raise

    def step(self) -> dict[str, Any]:
        """Does `report_every` updates and returns their metrics.

        Raises:
            TrainingError: the learner is closed, or all updates are done.
        """
        self._check_open("step")
        if self.done():
            raise TrainingError(
                f"step was called after all {self.num_updates} updates of total_steps="
                f"{self.total_steps}.  To train for longer, save, then continue in a Learner with a"
                " larger total_steps, with resume=True or `restore`."
            )
        if self._progress is not None:
            self._progress.start()
        self._exit_if_signaled()
        before = self.updates
        with self._interruptible():
            self._metrics = self._run(min(self._report_every, self.num_updates - before))
            if self._evaluate_every is not None and (
                self.done() or self._is_due(self._evaluate_every, before)
            ):
                self._metrics |= self._evaluation_metrics()
        self._metrics["seconds"] = self._seeds.broadcast(perf_counter() - self._started)
        self._files.log(self._environment_steps, self._metrics)
        if (
            self._save_every is not None
            and not self.done()
            and self._is_due(self._save_every, before)
        ):
            self.save()
        if self._progress is not None:
            self._progress(self.updates, self.num_updates, self._metrics)
        self._exit_if_signaled()
        return dict(self._metrics)

    def done(self) -> bool:
        """Returns whether `total_steps` have been taken."""
        return self.updates >= self.num_updates

    @property
    def scheme(self) -> Scheme:
        """The scheme with the current algorithm."""
        return dataclasses.replace(self._scheme, algorithm=self._executor.algorithm)

    @property
    def learner_state(self) -> LearnerState:
        """The content of a checkpoint: weights, optimizer state and so on. Seeds add an axis.

        The next step invalidates its arrays. To keep them, copy them with `jax.device_get`.
        """
        return self._executor.learner_state

    @property
    def env(self) -> VectorEnv:
        """The environments that collect; with several workers or devices, those of the first."""
        return self._executor.train.env

    @property
    def updates(self) -> int:
        """The number of updates so far."""
        return int(np.max(self.learner_state.updates))

    @property
    def num_updates(self) -> int:
        """The total number of updates."""
        return self._executor.train.num_updates

    @property
    def steps_per_update(self) -> int:
        """Environment steps per update, of all collectors together."""
        return self._executor.steps_per_update

    def get_metrics(self) -> dict[str, Any]:
        """Returns the metrics of the last step: episodes, losses, lags, shares of time, speed."""
        return dict(self._metrics)

    def print_info(self) -> None:
        """Prints the metrics as a table; of several seeds, the medians. Needs the extra `cli`."""
        try:
            from rich.console import Console
            from rich.table import Table
        except ImportError as error:
            raise missing_extra("Learner.print_info", "rich", "cli") from error
        table = Table(title=f"{self._environment_steps:,} of {self.total_steps:,} steps")
        table.add_column("metric")
        table.add_column("value", justify="right")
        for name, value in self._metrics.items():
            table.add_row(name, f"{np.median(value):,.4g}")
        Console().print(table)

    def policy(self, *, greedy: bool = True, best: bool = False) -> ActorPolicy:
        """Returns the current policy; several seeds add a leading axis.

        Args:
            greedy: whether to take the best action instead of sampling one.
            best: whether to return the policy of the best evaluation, from `log_dir`.

        Raises:
            TrainingError: there is no policy of an evaluation.
        """
        acting: Any = BehaviorPolicy.of(self.learner_state)
        if best:
            acting = self._files.read_best(acting)
        # Copies, because the next step reuses the memory of the state.
        return self._executor.train.policy(jax.tree.map(jnp.copy, acting), greedy=greedy)

    def evaluate(self, num_episodes: int | None = None) -> Evaluation:
        """Plays whole episodes with the greedy policy, in separate environments.

        Unless `evaluation_env` was given, the first call makes one instance per episode. All
        instances play the same number of episodes, so the number is rounded up to a multiple.
        All seeds play the same episodes, and their results have a leading axis.

        Args:
            num_episodes: the number of episodes; None means `evaluation_episodes`.

        Raises:
            TrainingError: the number is not positive, or the environment cannot be copied.
        """
        number = self._evaluation_episodes if num_episodes is None else num_episodes
        check_integer(TrainingError, "evaluate got num_episodes", number)
        env = self._make_evaluation_env(number)
        key = keys.evaluation_key(jax.random.key(self._seeds.numbers[0]), self.updates)

        def play(policy: ActorPolicy) -> Evaluation:
            return play_episodes(env, policy, number, key)

        return self._seeds.map(play)(self.policy())

    def save(self, path: str | Path | None = None) -> Path:
        """Atomically writes a checkpoint to `path` or into `log_dir`.

        In `log_dir`, the weights of the policy are also written separately. With several seeds,
        `path` contains a folder for each.
        """
        return self._files.save(self.learner_state, path)

    def restore(self, path: str | Path | None = None) -> None:
        """Continues from a checkpoint at `path`, or from the one in `log_dir`.

        Unrolls that workers are collecting with the old weights are awaited and dropped. The replay
        memories of gradient workers are emptied. The run may have had other numbers of instances,
        devices, or workers: episodes then start again, and the replay memory starts empty.

        Raises:
            TrainingError: there is no checkpoint, or it belongs to another training run.
        """
        self._executor.load_state(self._files.restore(self.learner_state, path))

    def update_algo_parameter(self, name: str, value: Any) -> None:
        """Changes a hyperparameter and continues.

        Changing a number neither recompiles nor restarts anything. Workers finish their current
        calls with the old value.

        Raises:
            UnknownParameterError: there is no such hyperparameter; the message suggests the closest
                name.
            TrainingError: the value is invalid.
        """
        old = self._executor.algorithm
        algorithm, before = old.replace(**{name: value}), getattr(old, name)
        if isinstance(before, float) and np.ndim(value):
            raise TrainingError(f"{name}={value!r}; expected a number such as {before}.")
        check_settings(algorithm)
        if isinstance(before, int | float):
            algorithm = algorithm.replace(**{name: like_number(value, before)})
        if jax.tree.structure(algorithm) == jax.tree.structure(old):
            self._executor.set_algorithm(algorithm)
        else:
            self.replace(algorithm=algorithm)

    def replace(self, **parts: Any) -> None:
        """Replaces parts of the scheme, such as algorithm, storage, env or unroll_length.

        Keeps the weights, and the rest of the state as far as it fits the new parts. An environment
        that differs only in numbers, and whose spaces are the same, does not recompile.

        Raises:
            TrainingError: there is no such part, the weights do not fit it, or the learner is
                closed.
        """
        self._check_open("replace")
        names = [field.name for field in dataclasses.fields(Scheme)]
        for name in parts:
            if name not in names:
                raise TrainingError(f'a scheme has no part "{name}".{closest(name, names)}')
        old = self._executor
        if "env" in parts:
            parts["env"] = self._like_running(parts["env"])
        scheme = dataclasses.replace(self.scheme, **parts)
        params = jax.eval_shape(lambda: old.learner_state.weights.params)
        check = functools.partial(check_weights, self._seeds.shapes_of_one(params))
        executor = make_executor(scheme, self.total_steps, self._seeds, self._report_every, check)
        try:
            executor.load_state(transfer_state(old, executor))
        except BaseException:
            executor.close()
            raise
        self._close_executor()
        self._close_executor = weakref.finalize(self, executor.close)
        self._scheme, self._executor = scheme, executor
        self._compiled.clear()
        if "env" in parts and self._given_evaluation_env is None:
            self._discard_evaluation_env()  # it is like the old environments

    def _like_running(self, env: Any) -> Any:
        """Returns an environment with parameters in the types of those that are running."""
        for running in (self.env, getattr(self.env, "env", None)):
            if jax.tree.structure(env) == jax.tree.structure(running):
                return jax.tree.map(like_number, env, running)
        return env

    def close(self) -> None:
        """Closes workers, hosted environments and logs, without saving.

        Raises:
            SystemExit: Ctrl-C or SIGTERM arrived after the last step. In this case the learner
                saves first; the exit status is 130 or 143.
        """
        self._exit_if_signaled()
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *error: Any) -> None:
        if kind is None:
            self.close()
        else:
            self._close()  # the error takes precedence over signals

    def _run(self, num_updates: int) -> dict[str, Any]:
        """Does some updates and returns their metrics and speed."""
        start = perf_counter()
        metrics = self._executor.step(num_updates)
        seconds = perf_counter() - start
        steps, rate = num_updates * self.steps_per_update, np.nan
        if num_updates in self._compiled:
            self.run_seconds += seconds
            self.timed_steps += steps
            rate = steps / seconds
        else:
            self.compile_seconds += seconds
            self._compiled.add(num_updates)
        # Programs count steps in float32, which is not exact for large numbers.
        return self._seeds.to_floats(metrics) | {
            "steps": self._seeds.broadcast(self._environment_steps),
            "steps_per_second": self._seeds.broadcast(rate),
        }

    def _evaluation_metrics(self) -> dict[str, Any]:
        """Evaluates, and saves the policies that are better than before."""
        found = jax.device_get(self._seeds.map(evaluation_metrics)(self.evaluate()))
        returns = found["evaluation_return"]
        self._files.write_best(self.learner_state, returns, self._environment_steps)
        return self._seeds.to_floats(found)

    def _make_evaluation_env(self, num_episodes: int) -> VectorEnv:
        """Returns the environments for evaluations, which the first call makes."""
        if self._evaluation_env is None:
            given: Any = self._given_evaluation_env
            source: Any = self._scheme.env if given is None else given
            env = call_env_factory(source)
            is_new = given is not None or env is not source
            if not (is_new and isinstance(env, VectorEnv)):
                env = evaluation_env("evaluate", env, num_episodes)
            self._evaluation_env = env
            if env is not given:
                self._close_evaluation_env = weakref.finalize(self, env.close)
        return self._evaluation_env

    def _discard_evaluation_env(self) -> None:
        if self._close_evaluation_env is not None:
            self._close_evaluation_env()
        self._close_evaluation_env = self._evaluation_env = None

    @property
    def _environment_steps(self) -> int:
        return self.updates * self.steps_per_update

    def _is_due(self, every: int, before: int) -> bool:
        """Returns whether a multiple of `every` steps was reached since update `before`.

        `every` is rounded up to whole updates.
        """
        every = -(-every // self.steps_per_update)
        return self.updates // every > before // every

    def _check_open(self, call: str) -> None:
        if not self._close_executor.alive:
            raise TrainingError(
                f"{call} was called on a learner that is closed.  Make a new Learner; with"
                " resume=True it continues from the checkpoint in log_dir."
            )

    @contextlib.contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Converts the error of a program that a second Ctrl-C stopped to KeyboardInterrupt."""
        try:
            yield
        except jax.errors.JaxRuntimeError as error:
            received = None if self._signals is None else self._signals.received
            if received == signal.SIGINT and "KeyboardInterrupt: " in str(error):
                raise KeyboardInterrupt from error
            raise

    def _exit_if_signaled(self) -> None:
        """Saves, closes and raises `SystemExit` if a signal arrived."""
        if self._signals is not None and self._signals.received is not None:
            number = self._signals.received
            try:
                self.save()
            finally:
                self._close()
            raise SystemExit(128 + number)

    def _close(self) -> None:
        if self._signals is not None:
            self._signals.cancel()
        self._signals = None
        self._close_executor()
        self._discard_evaluation_env()
        if self._progress is not None:
            self._progress.stop()
        self._files.close_logs()


def _announce_stop(number: signal.Signals) -> None:
    del number
    with contextlib.suppress(OSError):  # not `print`, which the signal may have interrupted
        os.write(2, b"jaxenvs: saving and stopping after this step; repeat to stop immediately\n")
