"""The side of the "ray" backend that runs in Ray's processes: an actor with environments."""

import gc
import os
import sys
import traceback
from typing import Any

import cloudpickle
import numpy as np

from jaxenvs.bridge.backends.backend import Settings, private_arrays
from jaxenvs.bridge.memory.arrays import Arrays
from jaxenvs.bridge.memory.channel import RESET, RESET_ALL, STEP_ALL
from jaxenvs.bridge.workers.inheritance import take
from jaxenvs.bridge.workers.instances import Instances
from jaxenvs.bridge.workers.views import pickled_infos
from jaxenvs.bridge.workers.worker import describe_env, perform


class Actor:
    """The environments of one worker. Its constructor makes none, so it cannot fail."""

    _failure: str | None = None  # of the constructors in `replace`

    def place(self, path: list[str], inheritance: bytes) -> None:
        """Extends `sys.path` by the caller's, and takes the rest of its inheritance."""
        take(inheritance)
        known = set(sys.path)
        sys.path += [each for each in path if each not in known and os.path.isdir(each)]

    def make(self, env_fns: bytes, first: int) -> tuple[str, Any, Any]:
        """Makes the environments.

        Returns:
            ("made", descriptions, pid), or ("failed", instance, traceback).
        """
        try:
            self._instances = Instances(cloudpickle.loads(env_fns), first)
            found = cloudpickle.dumps([describe_env(env) for env in self._instances.envs])
            return "made", found, os.getpid()
        except BaseException as error:
            instance = getattr(error, "jaxenvs_instance", first)
            return "failed", instance, "".join(traceback.format_exception(error))

    def replace(self, env_fns: bytes, first: int, settings: bytes) -> None:
        """Makes and attaches environments in the place of lost ones."""
        outcome, _, more = self.make(env_fns, first)
        if outcome == "failed":
            self._failure = more
            return
        self.attach(settings)
        self._instances.recover()

    def attach(self, settings: bytes) -> None:
        """Sets how the environments are run."""
        found: Settings = cloudpickle.loads(settings)
        plan, self._arrays = private_arrays(found, len(self._instances))
        self._reports: list[tuple[int, str, str]] = []
        self._instances.attach(
            plan,
            self._arrays,
            time_limit=found.time_limit,
            validate=found.validate,
            report=lambda *report: self._reports.append(report),
            own_process=True,
            alone=True,
        )
        gc.collect()
        gc.freeze()

    def run(
        self,
        op: int,
        buffer: int,
        rows: list[int] | None,
        actions: list[np.ndarray],
        seeds: np.ndarray | None,
        options: bytes | None,
        mode: int,
    ) -> tuple[Any, ...]:
        """Steps or resets some instances.

        Args:
            op, buffer: see `Backend`.
            rows: the instances, counted from the first of this actor; None for all, in order.
            actions: of these rows; empty for a reset.
            seeds, options: of a reset; the options pickled.
            mode: of autoreset, as the arrays have it.

        Returns:
            The arrays of `columns` with a row for each instance; the infos that are not empty,
            pickled, by position among the rows; status flags; reports of failures; and the process
            id.
        """
        self._refuse_failed()
        instances, arrays = self._instances, self._arrays
        where = slice(None) if rows is None else rows
        arrays.mode[0] = mode
        for target, part in zip(arrays.actions, actions, strict=False):
            target[where] = part
        noted = 0
        if op in (RESET, RESET_ALL):
            arrays.seeds[where] = seeds
            instances.options = None if options is None else cloudpickle.loads(options)
            noted = instances.reset_rows(buffer, rows)
        elif op == STEP_ALL:
            noted = instances.step_all(buffer)
        else:
            for row in rows or ():
                noted |= instances.step_one(buffer, row)
        # Copies, because the environments continue.
        found = [array[where].copy() for array in columns(arrays, buffer)]
        arrays.restarted[where] = False
        answer, infos = arrays.answers[buffer], {}
        for place, row in enumerate(range(len(instances)) if rows is None else rows):
            if answer.info_size[row]:
                infos[place] = pickled_infos(instances.kept_info(buffer, row))
        reports, self._reports = self._reports, []
        return found, infos, noted, reports, os.getpid()

    def perform(self, kind: str, *what: Any) -> bytes:
        """Returns the result of `worker.perform`, pickled."""
        self._refuse_failed()
        return cloudpickle.dumps(perform(self._instances, kind, *what))

    def _refuse_failed(self) -> None:
        if self._failure is not None:
            raise RuntimeError(f"its environments could not be constructed again: {self._failure}")


def columns(arrays: Arrays, buffer: int) -> list[np.ndarray]:
    """Returns all arrays of an answer except infos."""
    answer = arrays.answers[buffer]
    finals = [*answer.final_observation, *answer.final_fields]
    return [
        *answer.observation,
        *(finals if arrays.autoreset_mode == "same_step" else ()),
        *answer.fields,
        *(answer.reward, answer.terminated, answer.truncated),
        *(arrays.elapsed, arrays.restarted),
    ]
