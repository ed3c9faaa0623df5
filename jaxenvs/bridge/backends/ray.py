"""The "ray" backend: actors of a Ray cluster with several environments each.

Ray places the actors and carries the messages. An actor that died or cannot be reached is replaced
by another, to which all unanswered jobs are sent again: whatever the first one has done of them is
lost with its environments.
"""

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np

from jaxenvs.bridge.backends._ray_actor import columns
from jaxenvs.bridge.backends._ray_cluster import PATIENCE, Job, Session, WorkerActor, ray_module
from jaxenvs.bridge.backends.backend import (
    Backend,
    EnvFailure,
    MessageTimeout,
    Report,
    Settings,
    private_arrays,
    split_by_owner,
)
from jaxenvs.bridge.memory.channel import ATTENTION, OK, RESET, RESET_ALL, STEP_ALL, TIMEOUT
from jaxenvs.bridge.workers.inheritance import inheritance
from jaxenvs.bridge.workers.wire import dumps, pickled

log = logging.getLogger("jaxenvs")

_ROUND = 0.1  # seconds between checks for failures
_DEATHS_IN_A_ROW = 3  # the pool gives up after so many deaths of an actor without an answer
# Almost no part of a core is reserved, so that the rest of a cluster has room for an actor whose
# node died. If actors reserve nothing at all, Ray puts several onto one node.
_OPTIONS = {"num_cpus": 0.001, "scheduling_strategy": "SPREAD"}
_OURS = {"max_restarts": 0, "max_task_retries": 0}


class RayBackend(Backend):
    """A backend of Ray actors.

    Args:
        env_fns: one function for each instance.
        num_workers: the number of actors; the instances are divided among them in order. None for
            the number of cores in the cluster.
        options: options of the actors, such as their resources; see Ray's `ActorClass.options`.

    Raises:
        MissingExtraError: Ray is not installed.
        PoolError: a function cannot be pickled.
        EnvFailure: a constructor raised.
    """

    name = "ray"

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        num_workers: int | None,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.owner = os.getpid()
        self._actors: list[WorkerActor] = []
        self._finished: deque[int] = deque()
        self._noted = 0
        self._reports: list[Report] = []
        self._has_restarted = False  # since `read_reports`
        self._broken: Report | None = None
        self._is_closed = False
        self._options: bytes | None = None  # for the next resets, pickled
        self._infos: dict[tuple[int, int], bytes] = {}  # by buffer and instance
        options = {**_OPTIONS, **(options or {}), **_OURS}
        self._session = Session()
        try:
            count = len(env_fns)
            workers = num_workers or max(1, min(count, self._session.cores()))
            inherited = inheritance()
            bounds = [w * count // workers for w in range(workers + 1)]
            for w, rows in enumerate(map(range, bounds, bounds[1:])):
                packed = pickled(
                    list(env_fns[rows.start : rows.stop]),
                    f"environment functions {rows.start} to {rows.stop - 1}",
                    "  Construct objects that cannot be pickled inside the function.",
                    to="an actor",
                )
                self._actors.append(WorkerActor(w, packed, rows, options, inherited))
            self.num_workers = workers
            self.owners = np.repeat(np.arange(workers, dtype=np.int32), np.diff(bounds))
            self.descriptions = [fact for found in self._all_made() for fact in found]
        except BaseException:
            self.close(0)
            raise

    def _all_made(self) -> Iterator[list[dict[str, Any]]]:
        ray = ray_module()
        for actor in self._actors:
            try:
                while not ray.wait([actor.descriptions], timeout=PATIENCE)[0]:
                    log.warning("Ray has not placed worker %d yet", actor.number)
                outcome, found, more = ray.get(actor.descriptions)
            except ray.exceptions.RayError as error:
                raise EnvFailure(actor.report("its constructor", _summary(error))) from None
            if outcome == "failed":
                raise EnvFailure(Report(found, "its constructor", more))
            actor.pid = more
            yield cloudpickle.loads(found)

    def attach(self, settings: Settings) -> None:
        self.timeout = settings.timeout
        self.plan, self.arrays = private_arrays(settings, len(self.owners))
        packed = dumps(settings)
        for actor in self._actors:
            actor.attach(packed)

    # --- steps ---

    def start_all(self, op: int, buffer: int) -> None:
        self._noted = 0
        for actor in self._actors:
            self._ask(actor, op, buffer, np.array(actor.instances))

    def wait_all(self, buffer: int, timeout: float) -> int:
        if not self._wait(lambda: not any(m.jobs for m in self._actors), timeout, all_of=True):
            return TIMEOUT
        self._finished.clear()
        return self._noted | self._attention()

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        owners = self.owners[instances]
        for worker in dict.fromkeys(owners.tolist()):
            self._ask(self._actors[worker], op, buffer, instances[owners == worker])

    def take(self, out: np.ndarray, timeout: float) -> int:
        if not self._wait(lambda: len(self._finished) >= len(out), timeout):
            return TIMEOUT
        for i in range(len(out)):
            out[i] = self._finished.popleft()
        return self._attention()

    def _ask(self, actor: WorkerActor, op: int, buffer: int, instances: np.ndarray) -> None:
        if self._broken:  # count the request as finished, so that the caller gets the error
            self._finished.extend(instances.tolist())
            return
        arrays, resets = self.arrays, op in (RESET, RESET_ALL)
        rows = None if op in (STEP_ALL, RESET_ALL) else instances - actor.instances.start
        request = (
            *(op, buffer, None if rows is None else rows.tolist()),
            [] if resets else [array[instances] for array in arrays.actions],
            arrays.seeds[instances] if resets else None,
            self._options if resets else None,
            int(arrays.mode[0]),
        )
        actor.put(Job(instances, buffer, "run", request))

    def _attention(self) -> int:
        has_news = self._reports or self._broken or self._has_restarted
        return ATTENTION if has_news else OK

    def _wait(
        self, enough: Callable[[], Any], timeout: float | None, *, all_of: bool = False
    ) -> bool:
        """Receives answers until there are enough; returns False on timeout."""
        ray = ray_module()
        end = None if timeout is None else time.monotonic() + timeout
        while not enough():
            left = _ROUND if end is None else max(0.0, min(_ROUND, end - time.monotonic()))
            heads = [(actor, actor.jobs[0]) for actor in self._actors if actor.jobs]
            at_work = {job.ref: (actor, job) for actor, job in heads}
            # If all are awaited, failures are noticed at the end of a round.
            number = len(at_work) if all_of else 1
            ready, others = ray.wait(list(at_work), num_returns=number, timeout=left)
            if ready and others:
                ready += ray.wait(others, num_returns=len(others), timeout=0)[0]
            for ref in ready:
                self._receive(*at_work[ref])
            if not ready:
                for actor, _ in heads:
                    actor.check_placement()
                if end is not None and time.monotonic() >= end:
                    return False
        return True

    def _receive(self, actor: WorkerActor, job: Job) -> None:
        """Receives the answer to an actor's first job; replaces the actor if it was lost."""
        ray = ray_module()
        try:
            answer: Any = ray.get(job.ref)
        except ray.exceptions.RayTaskError as error:
            if job.buffer is not None:
                self._give_up(actor, _summary(error))
                return
            answer = cloudpickle.dumps(("error", int(job.instances[0]), _summary(error)))
        except ray.exceptions.RayError as error:  # of the actor, its node, or the object store
            self._replace(actor, _summary(error))
            return
        actor.jobs.popleft()
        actor.deaths, actor.since = 0, time.monotonic()
        if job.buffer is None:
            job.answer = answer
            return
        found, infos, noted, reports, actor.pid = answer
        self._write(job.buffer, job.instances, found, infos)
        self._reports += [actor.report(what, text, instance) for instance, what, text in reports]
        self._finished.extend(job.instances.tolist())
        self._noted |= noted

    def _write(
        self, buffer: int, instances: np.ndarray, found: list[np.ndarray], infos: dict[int, bytes]
    ) -> None:
        """Copies an answer into the pool's arrays."""
        restarted, sizes = self.arrays.restarted, self.arrays.answers[buffer].info_size
        for target, part in zip(columns(self.arrays, buffer), found, strict=True):
            if target is restarted:
                self._has_restarted |= bool(part.any())
                part = part | restarted[instances]
            target[instances] = part
        sizes[instances] = 0
        for place, data in infos.items():
            instance = int(instances[place])
            sizes[instance] = -1  # `message` returns it
            self._infos[buffer, instance] = data

    # --- faults ---

    def _replace(self, actor: WorkerActor, why: str) -> None:
        actor.deaths += 1
        if self._is_closed:  # by another thread than the one that waits
            self._give_up(actor, why)
            return
        if actor.deaths >= _DEATHS_IN_A_ROW:
            text = f"its process ended {actor.deaths} times in a row without an answer"
            self._give_up(actor, f"{why}\n{text}")
            return
        log.warning(
            "worker %d was lost; its environments %s are constructed again and their episodes"
            " cut: %s",
            *(actor.number, list(actor.instances), why.partition("\n")[0]),
        )
        actor.replace()

    def _give_up(self, actor: WorkerActor, text: str) -> None:
        """Marks a worker as lost and ends all waits for it."""
        self._broken = actor.report("step", text, fatal=True)
        for job in actor.jobs:
            if job.buffer is not None:
                self._finished.extend(job.instances.tolist())
        actor.jobs.clear()

    def read_reports(self) -> list[Report]:
        reports, self._reports, self._has_restarted = self._reports, [], False
        return [*reports, self._broken] if self._broken else reports

    def stuck(self, seconds: float) -> list[int]:
        found = []
        for actor in self._actors:
            if actor.is_stuck(seconds):
                found += actor.jobs[0].instances.tolist()
                actor.since = time.monotonic()  # the next wait gets the full timeout again
        return found

    def restart(self, instances: Sequence[int]) -> bool:
        for worker in {int(self.owners[i]) for i in instances}:
            self._replace(self._actors[worker], "it did not answer in time")
        return True

    # --- messages ---

    def kept_info(self, buffer: int, instance: int) -> Any:
        return self._infos[buffer, instance]

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        def ask(number: int, mine: list[int], rest: list[Any]) -> list[Any]:
            actor = self._actors[number]
            rows = [i - actor.instances.start for i in mine]
            return self._send_message(
                actor, Job(np.array(mine), None, "perform", (kind, rows, *rest))
            )

        return split_by_owner(kind, instances, what, lambda i: int(self.owners[i]), ask)

    def _send_message(self, actor: WorkerActor, job: Job) -> Any:
        if self._broken:
            raise EnvFailure(self._broken)
        actor.put(job)
        try:
            while not self._wait(lambda: job.answer or self._broken, self.timeout):
                if self.timeout is not None and actor.is_stuck(self.timeout):
                    raise MessageTimeout(actor.instances)
        finally:
            job.is_late = True
        if job.answer is None:
            assert self._broken is not None
            raise EnvFailure(self._broken)
        outcome = cloudpickle.loads(job.answer)
        if outcome[0] == "error":
            raise EnvFailure(actor.report(job.args[0], outcome[2], outcome[1]))
        return outcome[1]

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = None if options is None else pickled(options, "options", to="an actor")

    # --- closing ---

    def _close(self, grace: float) -> list[Report]:
        self._is_closed, reports = True, []
        if not ray_module().is_initialized():  # at exit, Ray may shut down first
            return reports
        if grace > 0 and not self._broken:
            reports = _closed(self._actors, grace)
        for actor in self._actors:
            actor.kill()
        self._session.end()
        return reports


def _closed(actors: list[WorkerActor], grace: float) -> list[Report]:
    """Closes the environments; returns reports of what raised within `grace` seconds."""
    ray, reports = ray_module(), []
    refs = {actor.handle.perform.remote("close"): actor for actor in actors}
    for ref in ray.wait(list(refs), num_returns=len(refs), timeout=grace)[0]:
        with contextlib.suppress(ray.exceptions.RayError):  # it has ended already
            outcome = cloudpickle.loads(ray.get(ref))
            if outcome[0] != "ok":
                reports.append(refs[ref].report("close", outcome[2], outcome[1]))
    return reports


def _summary(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
