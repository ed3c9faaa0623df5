"""A training under way, for those who want to look after it: step, print, save, change, go on."""

import dataclasses
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Self

import jax
import numpy as np

from jaxenvs.core import Environment, VectorEnv
from jaxenvs.errors import TrainingError, closest, missing_extra
from jaxenvs.rollouts import Evaluation, evaluate
from jaxenvs.training.anakin import ActorPolicy, resolve
from jaxenvs.training.checkpoint import restore, save
from jaxenvs.training.schemes.engines import Engine, engine_for
from jaxenvs.training.schemes.scheme import Scheme

_BEST, _LATEST = "best", "latest"


class Learner:
    """Drives a scheme.

        with Learner(scheme, total_steps=1_000_000, log_dir="runs/cartpole") as learner:
            while not learner.done():
                learner.step()
                learner.print_info()
            learner.save()

    With a `log_dir` every step is logged there, Ctrl-C and SIGTERM save before they end the
    program, and `Learner(..., resume=True)` goes on from what was saved. Where everything is one
    program on one device, it goes on bit for bit; workers begin new episodes.

    Args:
        scheme: the parts, and where they run.
        total_steps: environment steps in all; the last update is completed.
        seed: of weights, environments and workers.
        log_dir: where logs and checkpoints go; None keeps nothing.
        logs: which logs, see `jaxenvs.training.logs.open_logs`.
        report_every: updates that a step does and reports as one, where all is one program.
        evaluate_every: steps of the learner between two evaluations; None never evaluates.
        evaluation_env: what is evaluated on, as the scheme's `env`; None takes another of those.
        evaluation_episodes: how many, each from its start to its end.
        resume: whether to go on from the checkpoint in `log_dir`.

    Raises:
        TrainingError: the scheme cannot be assembled, or there is nothing to resume.
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
        for name, value in (("total_steps", total_steps), ("report_every", report_every)):
            if value < 1:
                raise TrainingError(f"Learner got {name}={value}; it must be at least 1.")
        if log_dir is None and resume:
            raise TrainingError("Learner got resume=True and no log_dir.  Say where to look.")
        self.scheme, self.total_steps, self.seed = scheme, total_steps, seed
        self.log_dir = None if log_dir is None else Path(log_dir)
        self._evaluate_every, self._evaluation_episodes = evaluate_every, evaluation_episodes
        self._evaluation_env, self._evaluated_in = evaluation_env, None
        self._report_every, self._best, self._steps = report_every, -np.inf, 0
        self._metrics: dict[str, float] = {}
        self._signal: int | None = None
        self._handlers: dict[int, Any] = {}
        self._logs: Any = None
        self._started = perf_counter()
        self._engine: Engine = engine_for(scheme, total_steps, seed, report_every)
        self._first_steps = 0
        try:
            if resume:
                self.restore()
            if self.log_dir is not None:
                from jaxenvs.training.logs import open_logs

                self._logs = open_logs(self.log_dir, logs)
                self._listen()
        except BaseException:
            self.close()
            raise

    def step(self) -> dict[str, float]:
        """Goes on by one update, or `report_every` of them; returns its metrics."""
        start = perf_counter()
        metrics = self._engine.step()
        seconds = perf_counter() - start
        done = metrics["steps"] - self._environment_steps
        self._steps += 1
        metrics |= {"steps_per_second": done / seconds, "seconds": perf_counter() - self._started}
        self._metrics = metrics
        if self._evaluate_every and self._steps % self._evaluate_every == 0:
            self._judge()
        if self._logs is not None:
            self._logs.write(int(metrics["steps"]), self._metrics)
        if self._signal is not None:
            self._leave()
        return dict(self._metrics)

    def done(self) -> bool:
        """Whether `total_steps` are taken."""
        return int(self._engine.learner_state.updates) >= self._engine.train.num_updates

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
        table = Table(title=f"{int(self._metrics.get('steps', 0)):,} of {self.total_steps:,} steps")
        table.add_column("metric")
        table.add_column("value", justify="right")
        for name, value in self._metrics.items():
            table.add_row(name, f"{value:,.4g}")
        Console().print(table)

    def policy(self, *, greedy: bool = True) -> ActorPolicy:
        """The policy as it is now."""
        return self._engine.train.policy(self._engine.learner_state, greedy=greedy)

    def evaluate(self, num_episodes: int | None = None) -> Evaluation:
        """Plays whole episodes, greedily, in environments that nothing is learned from."""
        number = self._evaluation_episodes if num_episodes is None else num_episodes
        if self._evaluated_in is None:
            chosen: Any = self._evaluation_env
            chosen = self.scheme.env if chosen is None else chosen
            if callable(chosen) and not isinstance(chosen, Environment | VectorEnv):
                chosen = chosen()
            size = None if isinstance(chosen, VectorEnv) else number
            self._evaluated_in = resolve(chosen, size)
        env: VectorEnv = self._evaluated_in
        policy = self.policy()
        key = jax.random.fold_in(jax.random.key(self.seed), 2**31 + self._steps)
        carry = policy.initial_carry(env.num_envs)
        return evaluate(env, policy, -(-number // env.num_envs), key, policy_carry=carry)

    def save(self, path: str | Path | None = None) -> Path:
        """Writes a checkpoint to `path`, or into `log_dir`; it is there whole or not at all."""
        if path is None and self.log_dir is None:
            raise TrainingError("save got no path, and the learner has no log_dir.  Pass one.")
        path = Path(path) if path is not None else self.log_dir / _LATEST  # pyright: ignore[reportOptionalOperand]
        return save(path, self._engine.learner_state)

    def restore(self, path: str | Path | None = None) -> None:
        """Goes on from a checkpoint at `path`, or from the latest one in `log_dir`.

        Raises:
            TrainingError: there is none, or it is of another training.
        """
        if path is None and self.log_dir is None:
            raise TrainingError("restore got no path, and the learner has no log_dir.  Pass one.")
        path = Path(path) if path is not None else self.log_dir / _LATEST  # pyright: ignore[reportOptionalOperand]
        self._engine.restored(restore(path, self._engine.learner_state))

    def update_algo_parameter(self, name: str, value: Any) -> None:
        """Goes on with another value of a hyper-parameter.

        For a number nothing is compiled or begun anew; what is under way ends with the old one.

        Raises:
            TrainingError: there is no such hyper-parameter; the message names the closest.
        """
        algorithm = self.scheme.algorithm.replace(**{name: value})
        if jax.tree.structure(algorithm) != jax.tree.structure(self.scheme.algorithm):
            self.replace(algorithm=algorithm)
            return
        self.scheme = dataclasses.replace(self.scheme, algorithm=algorithm)
        self._engine.change(algorithm)

    def replace(self, **parts: Any) -> None:
        """Goes on with other parts: algorithm, storage, env, unroll_length and so on.

        What was learned stays: weights and optimiser go on as far as they fit the new parts.

        Raises:
            TrainingError: there is no such part, or the weights do not fit it.
        """
        names = [field.name for field in dataclasses.fields(Scheme)]
        for name in parts:
            if name not in names:
                raise TrainingError(f'a scheme has no part "{name}".{closest(name, names)}')
        scheme = dataclasses.replace(self.scheme, **parts)
        old = self._engine
        engine = engine_for(scheme, self.total_steps, self.seed, self._report_every)
        try:
            engine.restored(_carried(old.learner_state, engine.learner_state))
        except BaseException:
            engine.close()
            raise
        old.close()
        self.scheme, self._engine = scheme, engine

    def close(self) -> None:
        """Ends workers and hosted environments, and the logs. `save` before, if you want to."""
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
        engine, self_logs = getattr(self, "_engine", None), self._logs
        if engine is not None:
            engine.close()
        if self_logs is not None:
            self_logs.close()
        self._logs = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    @property
    def _environment_steps(self) -> float:
        return self._metrics.get("steps", float(self._first_steps))

    def _judge(self) -> None:
        evaluation = self.evaluate()
        mean = float(evaluation.mean)
        self._metrics |= {"evaluation_return": mean, "evaluation_std": float(evaluation.std)}
        if self.log_dir is not None and mean > self._best:
            self.save(self.log_dir / _BEST)
        self._best = max(self._best, mean)

    def _listen(self) -> None:
        """Has Ctrl-C and SIGTERM wait for the end of the step. A second Ctrl-C does not."""
        if threading.current_thread() is not threading.main_thread():
            return  # only there can signals be handled

        def note(number: int, frame: Any) -> None:
            del frame
            self._signal = number
            signal.signal(number, self._handlers[number] or signal.SIG_DFL)

        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.getsignal(number)
            signal.signal(number, note)

    def _leave(self) -> None:
        number = self._signal
        self.save()
        self.close()
        raise SystemExit(128 + int(number or 0))


def _carried(old: Any, new: Any) -> Any:
    """The new state with what the old one has learned, as far as it fits."""

    def describe(tree: Any) -> Any:
        return jax.tree.map(lambda x: (jax.numpy.shape(x), str(x.dtype)), tree)

    if describe(old.weights.params) != describe(new.weights.params):
        raise TrainingError(
            "the new parts have other weights than those that were learned.  Keep the actor, or"
            " begin another training."
        )
    changes: dict[str, Any] = {"updates": old.updates}
    same = jax.tree.structure(old.weights) == jax.tree.structure(new.weights)
    if same and describe(old.weights) == describe(new.weights):
        changes["weights"] = old.weights
    else:  # another algorithm: its optimiser and targets begin anew
        changes["weights"] = new.weights.replace(
            params=old.weights.params, gradient_steps=old.weights.gradient_steps
        )
    for name in ("storage", "collector", "observation_statistics", "return_statistics"):
        before, after = getattr(old, name), getattr(new, name)
        fits = jax.tree.structure(before) == jax.tree.structure(after)
        if fits and describe(before) == describe(after):
            changes[name] = before
    return new.replace(**changes)
