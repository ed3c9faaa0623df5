"""The "ray" backend: actors of a Ray cluster with several environments each.

Ray places the actors and carries the messages. An actor that died or cannot be reached is replaced
by another, to which all unanswered jobs are sent again: whatever the first one has done of them is
lost with its environments.
"""

import contextlib
import dataclasses
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np

from jaxenvs.bridge.backends._ray_actor import Actor, columns
from jaxenvs.bridge.backends.base import (
    RESET,
    RESET_ALL,
    STEP_ALL,
    Backend,
    Broken,
    Late,
    Post,
    Settings,
    by_owner,
    private_arrays,
)
from jaxenvs.bridge.memory import lines as _lines
from jaxenvs.errors import PoolError, missing_extra

log = logging.getLogger("jaxenvs")

_ROUND = 0.1  # seconds between checks for failures
_DEATHS_IN_A_ROW = 3  # the pool gives up after so many deaths of an actor without an answer
_START = 60.0  # seconds that Ray may take to place an actor before it counts as hanging
_PATIENCE = 10.0  # seconds without an actor before a warning
# Almost no part of a core is reserved, so that the rest of a cluster has room for an actor whose
# node died. If actors reserve nothing at all, Ray puts several onto one node.
_OPTIONS = {"num_cpus": 0.001, "scheduling_strategy": "SPREAD"}
_OURS = {"max_restarts": 0, "max_task_retries": 0}


@dataclasses.dataclass
class _Job:
    """A request or a message that an actor has not answered yet."""

    instances: np.ndarray
    buffer: int | None  # None for a message
    method: str  # of the actor
    args: tuple[Any, ...]
    ref: Any = None
    is_wanted: bool = True  # whether the caller still waits for the answer
    answer: bytes | None = None  # to a message


class _Member:
    """The caller's handle on one actor."""

    def __init__(self, number: int, env_fns: bytes, instances: range, options: Any) -> None:
        self.number, self.instances = number, instances
        self._env_fns, self._options = env_fns, options
        self.pid: int | None = None
        self.jobs: deque[_Job] = deque()  # the actor does them in this order
        self.since = 0.0  # when it began the first one; later than now if it may take longer
        self.deaths = 0  # since its last answer
        self._start()
        self.facts = self.actor.make.remote(env_fns, instances.start)

    def _start(self) -> None:
        self.actor: Any = _ray().remote(Actor).options(**self._options).remote()
        self._placing: Any = self.actor.place.remote(list(sys.path))
        now = time.monotonic()
        self.since, self._warn_at = now + _START, now + _PATIENCE

    def attach(self, settings: bytes) -> None:
        self._settings, self._placing = settings, None
        self.actor.attach.remote(settings)

    def put(self, job: _Job) -> None:
        if not self.jobs:
            self.since = max(self.since, time.monotonic()) if self._placing else time.monotonic()
        self._send(job)
        self.jobs.append(job)

    def _send(self, job: _Job) -> None:
        job.ref = getattr(self.actor, job.method).remote(*job.args)

    def replace(self) -> None:
        """Starts another actor with new environments, and sends it the jobs that are wanted."""
        self.kill()  # it may live, and only be out of reach
        self._start()
        self.actor.replace.remote(self._env_fns, self.instances.start, self._settings)
        self.jobs = deque(job for job in self.jobs if job.is_wanted)
        for job in self.jobs:
            self._send(job)

    def kill(self) -> None:
        ray = _ray()
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(self.actor)

    def look_at_placing(self) -> None:
        """Notes whether Ray has placed the actor, and warns if it takes long."""
        if self._placing is None:
            return
        now = time.monotonic()
        if _ray().wait([self._placing], timeout=0)[0]:
            self._placing, self.since = None, now
        elif now > self._warn_at:
            log.warning("Ray has not placed worker %d yet", self.number)
            self._warn_at = now + _PATIENCE

    def is_stuck(self, seconds: float) -> bool:
        """Whether it has been at work on its first job for so long."""
        self.look_at_placing()
        return bool(self.jobs) and time.monotonic() - self.since >= seconds

    def post(self, what: str, text: str, instance: int | None = None, fatal: bool = False) -> Post:
        first = self.instances.start if instance is None else instance
        return Post(first, what, text, self.number, self.pid, fatal)


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
        Broken: a constructor raised.
    """

    name = "ray"

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        num_workers: int | None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._owner = os.getpid()
        self._members: list[_Member] = []
        self._finished: deque[int] = deque()
        self._num_asked = 0  # instances that `wait_all` waits for
        self._noted = 0
        self._posts: list[Post] = []
        self._has_restarted = False  # since `read_posts`
        self._broken: Post | None = None
        self._options: dict[str, Any] | None = None  # for the next resets
        self._infos: dict[tuple[int, int], bytes] = {}  # by buffer and instance
        options = {**_OPTIONS, **(options or {}), **_OURS}
        self._session = Session()
        try:
            count = len(env_fns)
            workers = num_workers or max(1, min(count, self._session.cores()))
            bounds = [w * count // workers for w in range(workers + 1)]
            for w, rows in enumerate(map(range, bounds, bounds[1:])):
                packed = _packed(list(env_fns[rows.start : rows.stop]), rows)
                self._members.append(_Member(w, packed, rows, options))
            self.num_workers = workers
            self.owners = np.repeat(np.arange(workers, dtype=np.int32), np.diff(bounds))
            self.facts = [fact for found in self._all_made() for fact in found]
        except BaseException:
            self.close(0)
            raise

    def _all_made(self) -> Iterator[list[dict[str, Any]]]:
        ray = _ray()
        for member in self._members:
            try:
                while not ray.wait([member.facts], timeout=_PATIENCE)[0]:
                    log.warning("Ray has not placed worker %d yet", member.number)
                outcome, found, more = ray.get(member.facts)
            except ray.exceptions.RayError as error:
                raise Broken(member.post("its constructor", _told(error))) from None
            if outcome == "failed":
                raise Broken(Post(found, "its constructor", more))
            member.pid = more
            yield cloudpickle.loads(found)

    def attach(self, settings: Settings) -> None:
        self.timeout = settings.timeout
        self.plan, self.arrays = private_arrays(settings, len(self.owners))
        packed = cloudpickle.dumps(settings)
        for member in self._members:
            member.attach(packed)

    # --- steps ---

    def start_all(self, op: int, buffer: int) -> None:
        self._num_asked, self._noted = len(self.owners), 0
        for member in self._members:
            self._ask(member, op, buffer, np.array(member.instances))

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        if not self._wait(lambda: len(self._finished) >= self._num_asked, timeout, all_of=True):
            return _lines.TIMEOUT
        self._finished.clear()
        self._num_asked = 0
        return self._noted | self._attention()

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        owners = self.owners[instances]
        for worker in dict.fromkeys(owners.tolist()):
            self._ask(self._members[worker], op, buffer, instances[owners == worker])

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        if not self._wait(lambda: len(self._finished) >= len(out), timeout):
            return _lines.TIMEOUT
        for i in range(len(out)):
            out[i] = self._finished.popleft()
        return self._attention()

    def forget(self) -> None:
        # An actor finishes what it was asked for before anything that is asked for later.
        for member in self._members:
            for job in member.jobs:
                job.is_wanted = False
        self._finished.clear()
        self._num_asked = 0

    def _ask(self, member: _Member, op: int, buffer: int, instances: np.ndarray) -> None:
        if self._broken:  # count the request as finished, so that the caller gets the error
            self._finished.extend(instances.tolist())
            return
        arrays, resets = self.arrays, op in (RESET, RESET_ALL)
        rows = None if op in (STEP_ALL, RESET_ALL) else instances - member.instances.start
        request = (
            *(op, buffer, None if rows is None else rows.tolist()),
            [] if resets else [array[instances] for array in arrays.actions],
            arrays.seeds[instances] if resets else None,
            self._options if resets else None,
            int(arrays.mode[0]),
        )
        member.put(_Job(instances, buffer, "run", request))

    def _attention(self) -> int:
        look = self._posts or self._broken or self._has_restarted
        return _lines.ATTENTION if look else _lines.OK

    def _wait(
        self, enough: Callable[[], Any], timeout: float | None, *, all_of: bool = False
    ) -> bool:
        """Receives answers until there are enough; returns False on timeout."""
        ray = _ray()
        end = None if timeout is None else time.monotonic() + timeout
        while not enough():
            left = _ROUND if end is None else max(0.0, min(_ROUND, end - time.monotonic()))
            at_work = {each.jobs[0].ref: each for each in self._members if each.jobs}
            # If all are awaited, failures are noticed at the end of a round.
            number = len(at_work) if all_of else 1
            ready, others = ray.wait(list(at_work), num_returns=number, timeout=left)
            if ready and others:
                ready += ray.wait(others, num_returns=len(others), timeout=0)[0]
            for ref in ready:
                self._receive(at_work[ref])
            if not ready:
                for member in at_work.values():
                    member.look_at_placing()
                if end is not None and time.monotonic() >= end:
                    return False
        return True

    def _receive(self, member: _Member) -> None:
        """Receives the answer to an actor's first job; replaces the actor if it was lost."""
        ray, job = _ray(), member.jobs[0]
        try:
            answer = ray.get(job.ref)
        except ray.exceptions.RayTaskError as error:
            self._give_up(member, _told(error))
            return
        except ray.exceptions.RayError as error:  # of the actor, its node, or the object store
            self._replace(member, error)
            return
        member.jobs.popleft()
        member.deaths, member.since = 0, time.monotonic()
        if job.buffer is None:
            job.answer = answer
            return
        noted, posts, member.pid = self._write(job.buffer, job.instances, *answer)
        if job.is_wanted:
            self._posts += [member.post(what, text, at) for at, what, text in posts]
            self._finished.extend(job.instances.tolist())
            self._noted |= noted

    def _write(
        self,
        buffer: int,
        instances: np.ndarray,
        found: list[np.ndarray],
        infos: dict[int, bytes],
        *rest: Any,
    ) -> tuple[Any, ...]:
        """Copies an answer into the pool's arrays; returns the rest of it."""
        for target, part in zip(columns(self.arrays, buffer), found, strict=True):
            if target is self.arrays.restarted:
                target[instances] |= part
                self._has_restarted |= bool(part.any())
            else:
                target[instances] = part
        sizes = self.arrays.answers[buffer].info_size
        sizes[instances] = 0
        for place, data in infos.items():
            instance = int(instances[place])
            sizes[instance] = -1  # `message` returns it
            self._infos[buffer, instance] = data
        return rest

    # --- faults ---

    def _replace(self, member: _Member, error: Exception) -> None:
        member.deaths += 1
        if member.deaths > _DEATHS_IN_A_ROW:
            text = f"its process ended {member.deaths} times in a row without an answer"
            self._give_up(member, f"{text}: {_told(error)}")
            return
        log.warning(
            "worker %d was lost; its environments %s are constructed again and their episodes"
            " cut: %s",
            *(member.number, list(member.instances), _told(error)),
        )
        member.replace()

    def _give_up(self, member: _Member, text: str) -> None:
        """Marks a worker as lost and ends all waits for it."""
        self._broken = member.post("step", text, fatal=True)
        for job in member.jobs:
            if job.is_wanted and job.buffer is not None:
                self._finished.extend(job.instances.tolist())
        member.jobs.clear()

    def read_posts(self) -> list[Post]:
        posts, self._posts, self._has_restarted = self._posts, [], False
        return [*posts, self._broken] if self._broken else posts

    def stuck(self, seconds: float) -> list[int]:
        found = []
        for member in self._members:
            if member.is_stuck(seconds):
                found += member.jobs[0].instances.tolist()
                member.since = time.monotonic()  # the next wait gets the full timeout again
        return found

    def restart(self, instances: Sequence[int]) -> bool:
        for worker in {int(self.owners[i]) for i in instances}:
            self._members[worker].replace()
        return True

    # --- messages ---

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        if kind == "kept_info":
            return [self._infos[what[0], i] for i in instances]

        def ask(number: int, mine: list[int], rest: list[Any]) -> list[Any]:
            member = self._members[number]
            rows = [i - member.instances.start for i in mine]
            return self._tell(member, _Job(np.array(mine), None, "perform", (kind, rows, *rest)))

        return by_owner(kind, instances, what, lambda i: int(self.owners[i]), ask)

    def _tell(self, member: _Member, job: _Job) -> Any:
        if self._broken:
            raise Broken(self._broken)
        member.put(job)
        try:
            while not self._wait(lambda: job.answer or self._broken, self.timeout):
                if self.timeout is not None and member.is_stuck(self.timeout):
                    raise Late(member.instances)
        finally:
            job.is_wanted = False
        if job.answer is None:
            assert self._broken is not None
            raise Broken(self._broken)
        outcome = cloudpickle.loads(job.answer)
        if outcome[0] == "error":
            raise Broken(member.post(job.args[0], outcome[2], outcome[1]))
        return outcome[1]

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = options

    # --- closing ---

    def close(self, grace: float) -> list[Post]:
        if self._owner != os.getpid():  # a fork of the caller has a copy of the pool
            return []
        members, self._members, posts = self._members, [], []
        if not _ray().is_initialized():  # at exit, Ray may shut down first
            return posts
        if grace > 0 and not self._broken:
            posts = _closed(members, grace)
        for member in members:
            member.kill()
        self._session.end()
        return posts


def _closed(members: list[_Member], grace: float) -> list[Post]:
    """Closes the environments; returns reports of what raised within `grace` seconds."""
    ray, posts = _ray(), []
    with contextlib.suppress(ray.exceptions.RayError):
        refs = {member.actor.perform.remote("close"): member for member in members}
        for ref in ray.wait(list(refs), num_returns=len(refs), timeout=grace)[0]:
            with contextlib.suppress(ray.exceptions.RayError):  # it has ended already
                outcome, member = cloudpickle.loads(ray.get(ref)), refs[ref]
                if outcome[0] != "ok":
                    posts.append(member.post("close", outcome[2], outcome[1]))
    return posts


def _ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_extra('backend="ray"', "ray", "ray") from error
    return ray


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _packed(env_fns: list[Callable[[], Any]], instances: range) -> bytes:
    try:
        return cloudpickle.dumps(env_fns)
    except Exception as error:
        raise PoolError(
            f"environment functions {instances.start} to {instances.stop - 1} cannot be sent to an"
            f" actor: {type(error).__name__}: {error}.  Construct objects that cannot be pickled"
            " inside the function."
        ) from error


class Session:
    """A use of Ray: starts Ray if it is not running, and then stops it after the last use."""

    _lock = threading.Lock()
    _uses = 0
    _started = False

    def __init__(self) -> None:
        ray = _ray()
        self._ended = False
        with Session._lock:
            if not ray.is_initialized():
                ray.init(logging_level="warning")  # the cluster of RAY_ADDRESS, or a local one
                Session._started = True
            Session._uses += 1

    def cores(self) -> int:
        ray = _ray()
        return int(ray.cluster_resources().get("CPU", 1))

    def end(self) -> None:
        ray = _ray()
        with Session._lock:
            if self._ended:
                return
            self._ended = True
            Session._uses -= 1
            if Session._started and not Session._uses:
                Session._started = False
                ray.shutdown()
