"""The "process" backend with caller_steps: the caller steps some environments, workers the others.

This is fastest if steps take microseconds: the caller steps environments while its workers do,
instead of handing its core to a worker and waiting. In return, the first environments live in the
caller's process.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxenvs.bridge.backends.backend import Backend, Report, Settings, split_by_owner
from jaxenvs.bridge.backends.process import ProcessBackend
from jaxenvs.bridge.backends.serial import SerialBackend
from jaxenvs.bridge.memory.arrays import Arrays
from jaxenvs.bridge.memory.channel import OK, STEP_ALL, request


class SharedBackend(Backend):
    """A backend in which the caller steps the first instances, worker processes the others.

    Args:
        env_fns: one function for each instance.
        bounds: the first instance of each worker, then the end of the last one's. The caller steps
            the instances below `bounds[0]`.

    Raises:
        PoolError, EnvFailure: as `SerialBackend` and `ProcessBackend`.
    """

    name = "process"
    caller_steps = True

    def __init__(self, env_fns: Sequence[Callable[[], Any]], bounds: tuple[int, ...]) -> None:
        self.num_workers = len(bounds) - 1
        self.bounds, self._first = bounds, bounds[0]
        self._mine = SerialBackend(env_fns[: bounds[0]])
        try:
            self._others = ProcessBackend(env_fns, self.num_workers, bounds=bounds)
        except BaseException:
            self._mine.close(0)
            raise
        self.owner = self._others.owner
        self.descriptions = [*self._mine.descriptions, *self._others.descriptions]
        self._finished: deque[int] = deque()  # finished by workers, not chosen yet
        self._chosen: deque[int] = deque()  # chosen for a `take` that is still waiting
        self._asked_at = np.zeros(len(env_fns), np.int64)  # the latest request of each instance
        self._num_asked = 0
        self._num_away = 0  # requests to workers whose answers were not taken
        self._flags = OK  # of the answers taken from workers
        self._noted: int | None = None  # flags of the caller's share, until the workers finish

    @property
    def pids(self) -> list[int]:
        """The process of each worker."""
        return self._others.pids

    def attach(self, settings: Settings) -> None:
        self._others.attach(settings)
        self.plan, self.arrays = self._others.plan, self._others.arrays
        self._mine.attach_to(settings, self.plan, Arrays.over(self.plan, self._others.memory))

    def start_all(self, op: int, buffer: int) -> None:
        self._others.start_all(op, buffer)
        self._mine.start_all(op, buffer)
        self._noted = None

    def wait_all(self, buffer: int, timeout: float) -> int:
        if self._noted is None:
            self._noted = self._mine.wait_all(buffer, timeout)
        status = self._others.wait_all(buffer, timeout)
        return status if status & 3 else status | self._noted

    def lock_step(self, timeout: float) -> Callable[[int], int]:
        ask_all, wait_all = self._others.channel.ask_all, self._others.channel.wait_all
        step_mine = self._mine.lock_step(timeout)
        requests = request(STEP_ALL, 0), request(STEP_ALL, 1)

        def step(buffer: int) -> int:
            ask_all(requests[buffer])
            self._noted = noted = step_mine(buffer)
            status = wait_all(buffer, timeout)
            return status if status & 3 else status | noted

        return step

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        self._num_asked += 1
        self._asked_at[instances] = self._num_asked
        mine = instances < self._first
        count = int(mine.sum())
        if count < len(instances):
            self._num_away += len(instances) - count
            self._others.start_some(op, buffer, instances[~mine])
        if count:
            self._mine.start_some(op, buffer, instances[mine])

    def take(self, out: np.ndarray, timeout: float) -> int:
        """Takes what the workers have finished, and steps the caller's instances for the rest.

        The caller's instances with older requests come first; otherwise fast workers would answer
        every time, and the caller's instances would starve.
        """
        try:
            return self._take(out, timeout)
        except BaseException:  # Ctrl-C: the pool no longer waits for them
            self._forget_own()
            raise

    def _take(self, out: np.ndarray, timeout: float) -> int:
        mine, finished, chosen = self._mine, self._finished, self._chosen
        asked_at = self._asked_at
        while (missing := len(out) - len(chosen)) > 0:
            if not finished and self._num_away:
                self._collect_finished(missing)
            own = mine.next_instance
            if finished and (own is None or asked_at[finished[0]] <= asked_at[own]):
                chosen.append(finished.popleft())
            elif own is not None:
                chosen.append(mine.take_next())
            else:
                found = np.empty(missing, np.int32)
                status = self._others.take(found, timeout)
                if status & 3:
                    return status
                self._add(chosen, found, status)
        for i in range(len(out)):
            out[i] = chosen.popleft()
        flags, self._flags = self._flags, OK
        return flags | mine.attention()

    def _collect_finished(self, most: int) -> None:
        """Takes up to `most` instances that workers have finished, without waiting."""
        count = min(self._others.channel.num_finished(), most)
        while count:
            found = np.empty(count, np.int32)
            status = self._others.take(found, 0.0)
            if not status & 3:
                self._add(self._finished, found, status)
                return
            count -= 1  # a message was among them

    def _add(self, to: deque[int], found: np.ndarray, status: int) -> None:
        to.extend(found.tolist())
        self._num_away -= len(found)
        self._flags |= status

    def forget(self) -> None:
        self._others.forget()
        self._forget_own()

    def _forget_own(self) -> None:
        self._mine.forget()
        self._finished.clear()
        self._chosen.clear()
        self._num_away, self._flags, self._noted = 0, OK, None

    def kept_info(self, buffer: int, instance: int) -> Any:
        return self._mine.kept_info(buffer, instance)

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        parts = self._mine, self._others

        def ask(part: int, ids: list[int], rest: list[Any]) -> list[Any]:
            return parts[part].message(kind, ids, *rest)

        return split_by_owner(kind, instances, what, lambda i: int(i >= self._first), ask)

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._mine.set_options(options)
        self._others.set_options(options)

    def read_reports(self) -> list[Report]:
        return [*self._mine.read_reports(), *self._others.read_reports()]

    def stuck(self, seconds: float) -> list[int]:
        return self._others.stuck(seconds)

    def restart(self, instances: Sequence[int]) -> bool:
        return self._others.restart(instances)

    def _close(self, grace: float) -> list[Report]:
        return [*self._mine.close(grace), *self._others.close(grace)]
