"""The "native" backend, which steps an environment that is vectorized already."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space

from jaxenvs.bridge.backends._vector_adapters import make_adapter
from jaxenvs.bridge.backends._vector_batches import (
    VectorBatch,
    field_array,
    observation_array,
    take_rows,
)
from jaxenvs.bridge.backends.backend import Backend, EnvFailure, Report, Settings, private_arrays
from jaxenvs.bridge.foreign.ids import VectorMaker
from jaxenvs.bridge.memory.channel import ATTENTION, OK, RESET, STEP_ALL
from jaxenvs.bridge.memory.layout import getter, leaves_of, tree_of
from jaxenvs.bridge.workers.checks import SpaceChecks
from jaxenvs.bridge.workers.failures import traceback_of
from jaxenvs.bridge.workers.views import flat_has_nan, own_copy, snapshot
from jaxenvs.errors import JaxenvsError, PoolError

ALL = -1  # the instance number that means the vectorized environment as a whole


class VectorizedBackend(Backend):
    """A backend that steps one vectorized environment.

    It returns the environment's own arrays, or copies if the environment may write to them again.

    Args:
        maker: makes the vectorized environment.
        wanted: the requested "num_envs", "batch_size", "num_threads", "seed", "autoreset_mode" and
            "max_episode_steps"; None accepts the environment's own.

    Raises:
        PoolError: the environment differs from `wanted` and does not accept that option.
        EnvFailure: its constructor raised.
    """

    name = "native"
    makes_batches = True

    def __init__(self, maker: VectorMaker, wanted: Mapping[str, Any]) -> None:
        try:
            self._adapter = adapter = make_adapter(maker, wanted)
        except PoolError:
            raise
        except Exception as error:
            raise EnvFailure(_report("its constructor", error)) from error
        self.maker = maker
        self.num_envs, self.batch_size = adapter.num_envs, adapter.batch_size
        self.num_workers = adapter.num_threads
        self.autoreset_mode = adapter.autoreset_mode
        self.descriptions = [
            {
                "observation_space": adapter.observation_space,
                "action_space": adapter.action_space,
                "metadata": dict(getattr(adapter.env, "metadata", None) or {}),
                "render_mode": getattr(adapter.env, "render_mode", None),
                "spec": adapter.spec,
                "agents": (),
            }
        ]

    def info_samples(self) -> list[Mapping[str, Any]]:
        """Returns infos after a reset and a step, from another vectorized environment."""
        adapter = make_adapter(self.maker, {})
        try:
            actions = batch_space(adapter.action_space, adapter.num_envs).sample()
            infos = adapter.reset(None, None).info, adapter.step(actions).info
        finally:
            adapter.close()
        return [
            {
                name: value[0]  # of the first environment
                for name, value in info.items()
                if isinstance(value, np.ndarray) and value.dtype != object and name[0] != "_"
            }
            for info in infos
        ]

    def attach(self, settings: Settings) -> None:
        self._settings = settings
        self._options: dict[str, Any] | None = None
        self.plan, self.arrays = private_arrays(settings, self.num_envs)
        self._leaves = [(getter(leaf.path), leaf) for leaf in leaves_of(settings.observation_space)]
        self._every_id = np.arange(self.num_envs, dtype=np.int32)
        self._true = np.ones(self.num_envs, bool)
        self._every_id.flags.writeable = self._true.flags.writeable = False
        self._reports: list[Report] = []
        self._checks = SpaceChecks(
            *(settings.observation_space, settings.validate, range(self.num_envs)),
            lambda _, what, text: self._reports.append(Report(ALL, what, text)),
        )
        self._ended = np.zeros(self.num_envs, bool)  # where the latest step ended the episode
        self._has_started = False  # whether a step was started that has to be finished
        self._partial: list[VectorBatch] = []  # batches that were not taken yet
        self._buffer_of_some = 0
        self._latest: Any = None  # the latest batch; its observation is a list of leaves
        # The latest batches of all environments, where `arrays` do not have them yet.
        self._unwritten: list[VectorBatch | None] = [None, None]

    # --- requests of the pool ---

    def lock_step(self, timeout: float) -> Callable[[int], int]:
        step = self._adapter.step
        return lambda buffer: self._finish(lambda: step(self._actions(None)), buffer)

    def start_all(self, op: int, buffer: int) -> None:
        self._has_started, what = False, "step" if op == STEP_ALL else "reset"
        try:
            if op == STEP_ALL:
                batch = self._adapter.start_step(self._actions(None))
                self._has_started = batch is None
            else:
                batch = self._adapter.reset(self._seeds(self._every_id), self._options)
            if batch is not None:
                self._put(batch, buffer)
        except JaxenvsError:
            raise
        except Exception as error:
            self._reports.append(_report(what, error))

    def wait_all(self, buffer: int, timeout: float) -> int:
        if not self._has_started:
            return self._attention()
        self._has_started = False
        return self._finish(self._adapter.finish_step, buffer)

    def _finish(self, step: Callable[[], VectorBatch], buffer: int) -> int:
        try:
            self._put(step(), buffer)
        except Exception as error:
            self._reports.append(_report("step", error))
        return self._attention()

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        self._buffer_of_some = buffer
        if op != RESET:
            self._adapter.send(self._actions(instances), instances)
            return
        batch = self._adapter.reset_some(instances, self._seeds(instances), self._options)
        if batch is not None:
            self._partial.append(batch)

    def take(self, out: np.ndarray, timeout: float) -> int:
        count = len(out)
        if self.batch_size < self.num_envs and count % self.batch_size:
            raise PoolError(
                f"{self.maker.name} answers in batches of {self.batch_size}, but {count} results"
                f" were requested.  Send and receive multiples of {self.batch_size}."
            )
        parts, self._partial = self._partial, []
        try:
            while sum(len(part.ids) for part in parts) < count:
                parts.append(self._adapter.recv())
            batch = VectorBatch.concatenated(parts)
            self._put(batch, self._buffer_of_some)
            out[:] = batch.ids
        except Exception as error:
            out[:] = -1
            self._reports.append(_report("step", error))
        return self._attention()

    def batch(self, order: np.ndarray | None = None) -> Any:
        ids, leaves, *rest, infos, _ = self._latest
        observation = tree_of(self._settings.observation_space, iter(leaves))
        batch = observation, *rest, infos
        if order is None:
            return batch
        row_of = np.empty(self.num_envs, np.int32)
        row_of[ids] = np.arange(len(order))
        return take_rows(batch, row_of[order], len(order))

    def _actions(self, ids: np.ndarray | None) -> Any:
        # Copies, because some environments keep the arrays.
        leaves = (a.copy() if ids is None else a[ids] for a in self.arrays.actions)
        return tree_of(self._settings.action_space, leaves)

    def _seeds(self, ids: np.ndarray) -> Any:
        """Returns None, a base seed, or a list with one seed for each environment."""
        seeds = self.arrays.seeds[ids]
        if (seeds < 0).all():
            return None
        if ids[0] == 0 and len(ids) == self.num_envs and (np.diff(seeds) == 1).all():
            return int(seeds[0])
        return [int(seed) if seed >= 0 else None for seed in seeds]

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        name = what[0]
        try:
            if kind == "set_attr":
                self._adapter.set_attr(name, list(what[1]))
                return [None] * len(instances)
            return self._adapter.call(name, instances, *what[1:])
        except Exception as error:
            raise EnvFailure(_report(f"{kind}({name!r})", error)) from error

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = options

    def read_reports(self) -> list[Report]:
        reports, self._reports = self._reports, []
        return reports

    def _close(self, grace: float) -> list[Report]:
        try:
            self._adapter.close()
        except Exception as error:
            return [_report("close", error)]
        return []

    # --- batches ---

    def _attention(self) -> int:
        return ATTENTION if self._reports else OK

    def _put(self, batch: VectorBatch, buffer: int) -> None:
        """Makes a batch the latest one."""
        ids = self._every_id if batch.ids is None else batch.ids
        leaves = [
            observation_array(get(batch.observation), leaf, len(ids)) for get, leaf in self._leaves
        ]
        if not self._adapter.returns_new_observations:
            leaves = [array.copy() for array in leaves]
        own = np.asarray if self._adapter.returns_new_arrays else np.array
        reward = own(batch.reward, np.float64)
        terminated, truncated = own(batch.terminated, bool), own(batch.truncated, bool)
        infos = self._infos(batch, terminated | truncated, len(ids))
        self._latest = latest = VectorBatch(ids, leaves, reward, terminated, truncated, infos)
        if batch.ids is None:
            self._unwritten[buffer] = latest
        else:
            self.flush(buffer)
            self._write(latest, buffer)
        if self._settings.validate:
            self._check(latest)

    def _infos(self, batch: VectorBatch, ended: np.ndarray, count: int) -> dict[str, Any]:
        """Returns the environment's infos with masks and the info_fields; counts the steps."""
        infos = {name: value for name, value in batch.info.items() if name != "final_obs"}
        if not self._adapter.returns_new_arrays:
            infos = snapshot(infos)
        for name in batch.info:
            if name[0] != "_":
                infos.setdefault(f"_{name}", self._true[:count])
        if "final_obs" in batch.info:
            infos["final_obs"] = self._final_observations(batch.info["final_obs"], ended)
            infos["_final_obs"] = infos["_final_info"] = ended
            infos.setdefault("final_info", {})
        for name, space in self._settings.info_fields.items():
            value = batch.info.get(name)
            fields = (field_array(value, leaf, count) for leaf in leaves_of(space))
            infos[name] = tree_of(space, fields)
        self._count_steps(batch, ended)
        return infos

    def _count_steps(self, batch: VectorBatch, ended: np.ndarray) -> None:
        """Counts a step of each episode; `ended` is where it was the last one."""
        elapsed, rows = self.arrays.elapsed, slice(None) if batch.ids is None else batch.ids
        if "elapsed_step" in batch.info:  # EnvPool counts itself
            elapsed[rows] = batch.info["elapsed_step"]
            return
        # A finished episode that nobody resets makes no steps.
        first = {"same_step": 1, "next_step": 0}.get(self._adapter.autoreset_mode, elapsed[rows])
        steps = np.where(self._ended[rows], first, elapsed[rows] + 1)
        elapsed[rows] = 0 if batch.is_reset else steps
        self._ended[rows] = ended

    def _final_observations(self, finals: Any, ended: np.ndarray) -> np.ndarray:
        """Returns an object array with the last observation of each environment, or None."""
        if isinstance(finals, np.ndarray) and finals.dtype == object:
            return own_copy(finals)
        observations = np.full(len(ended), None, object)
        for row in np.flatnonzero(ended).tolist():
            leaves = (np.array(get(finals)[row]) for get, _ in self._leaves)
            observations[row] = tree_of(self._settings.observation_space, leaves)
        return observations

    def flush(self, buffer: int) -> None:
        batch, self._unwritten[buffer] = self._unwritten[buffer], None
        if batch is not None:
            self._write(batch, buffer)

    def _write(self, batch: VectorBatch, buffer: int) -> None:
        answer, ids, infos = self.arrays.answers[buffer], batch.ids, batch.info
        for name in ("reward", "terminated", "truncated"):
            getattr(answer, name)[ids] = getattr(batch, name)
        fields = [
            (name, leaf)
            for name, space in self._settings.info_fields.items()
            for leaf in leaves_of(space)
        ]
        values = [*batch.observation, *(getter(leaf.path)(infos[name]) for name, leaf in fields)]
        finals = [*answer.final_observation, *answer.final_fields]  # under same-step autoreset
        for targets in ([*answer.observation, *answer.fields], finals):
            for target, value in zip(targets, values, strict=False):
                target[ids] = value
        if not finals:
            return
        ended = np.flatnonzero(infos.get("_final_obs", ()))
        for row in ended:
            for target, (get, _) in zip(answer.final_observation, self._leaves, strict=True):
                target[ids[row]] = get(infos["final_obs"][row])
        last = infos.get("final_info")
        for target, (name, leaf) in zip(answer.final_fields, fields, strict=True):
            value = last.get(name) if isinstance(last, Mapping) else None
            target[ids[ended]] = field_array(value, leaf, len(ids))[ended]

    def _check(self, batch: VectorBatch) -> None:
        for array in (batch.reward, *batch.observation):
            if array.dtype.kind in "fc" and flat_has_nan(array.reshape(-1)):
                what = "a reward" if array is batch.reward else "an observation"
                rows = np.isnan(array.reshape(len(array), -1)).any(axis=1)
                text = (
                    f"{what} is NaN in environments {batch.ids[rows].tolist()}.  Pass"
                    " validate=False to accept NaN."
                )
                self._reports.append(Report(ALL, "a check", text))
                return
        if not self._checks.left:
            return
        space = self._settings.observation_space
        try:
            for row, i in enumerate(batch.ids.tolist()):
                self._checks.check(i, tree_of(space, (array[row] for array in batch.observation)))
        except ValueError as error:
            self._reports.append(Report(ALL, "a check", str(error)))


def _report(what: str, error: Exception) -> Report:
    return Report(ALL, what, traceback_of(error))
