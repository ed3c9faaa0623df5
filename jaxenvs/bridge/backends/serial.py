"""The "serial" backend: the caller's thread steps the environments one after the other."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.backends.backend import EnvFailure, Report, Settings, private_arrays
from jaxenvs.bridge.backends.queued import QueuedBackend
from jaxenvs.bridge.memory.arrays import Arrays, Plan
from jaxenvs.bridge.memory.channel import ATTENTION, OK, RESET, STEP_ALL
from jaxenvs.bridge.workers.instances import Instances
from jaxenvs.bridge.workers.worker import describe_env, perform


class SerialBackend(QueuedBackend):
    """A backend without workers: requests run when the caller waits for them."""

    name = "serial"
    num_workers = 0

    def __init__(self, env_fns: Sequence[Callable[[], Any]]) -> None:
        super().__init__()
        self._instances = Instances(env_fns)
        self.descriptions = [describe_env(env) for env in self._instances.envs]
        self._all: tuple[int, int] | None = None  # op and buffer of a request of all
        self._some: deque[tuple[int, int, int]] = deque()  # op, buffer, instance

    def attach(self, settings: Settings) -> None:
        self.attach_to(settings, *private_arrays(settings, len(self._instances)))

    def attach_to(self, settings: Settings, plan: Plan, arrays: Arrays) -> None:
        """Attaches to existing arrays, of which it uses the first rows."""
        self.plan, self.arrays = plan, arrays
        self._instances.attach(
            self.plan,
            self.arrays,
            time_limit=settings.time_limit,
            validate=settings.validate,
            report=self._report,
        )

    def lock_step(self, timeout: float) -> Callable[[int], int]:
        step_all = self._instances.step_all
        reports = self._reports
        return lambda buffer: step_all(buffer) | (ATTENTION if reports else OK)

    def _start(self, op: int, buffer: int, instances: np.ndarray | None) -> None:
        if instances is None:
            self._all = op, buffer
        else:
            self._some.extend((op, buffer, instance) for instance in instances.tolist())

    def _take(self, count: int, timeout: float) -> tuple[list[int], int]:
        if self._all is None:
            return [self.take_next() for _ in range(count)], 0
        op, buffer = self._all
        self._all = None
        instances = self._instances
        noted = instances.step_all(buffer) if op == STEP_ALL else instances.reset_rows(buffer)
        return [], noted

    @property
    def next_instance(self) -> int | None:
        """The instance that `take_next` will step or reset; None if there is none."""
        return self._some[0][2] if self._some else None

    def take_next(self) -> int:
        """Runs the oldest request and returns its instance."""
        op, buffer, instance = self._some.popleft()
        if op == RESET:
            self._instances.reset_rows(buffer, (instance,))
        else:
            self._instances.step_one(buffer, instance)
        return instance

    def forget(self) -> None:
        super().forget()
        self._all = None
        self._some.clear()

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._instances.options = options

    def kept_info(self, buffer: int, instance: int) -> Any:
        return self._instances.kept_info(buffer, instance)

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        outcome = perform(self._instances, kind, instances, *what)
        if outcome[0] == "error":
            name = what[0] if kind == "call" else kind
            raise EnvFailure(Report(outcome[1], name, outcome[2]))
        return outcome[1]

    def _close(self, grace: float) -> list[Report]:
        failed = self._instances.close()
        return [Report(failed[0], "close", failed[1])] if failed else []
