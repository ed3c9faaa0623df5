"""The "ray" backend: actors of a Ray cluster with several environments each.

Ray places the actors, carries the messages, and restarts an actor whose process or node died.
Requests are numbered. If an answer is lost, the request is sent again; an actor that has already
executed it returns the same answer again.
"""

import contextlib
import dataclasses
import gc
import itertools
import logging
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import cloudpickle
import numpy as np

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
from jaxenvs.bridge.memory.arrays import Arrays
from jaxenvs.bridge.workers.instances import Instances
from jaxenvs.bridge.workers.worker import facts, perform
from jaxenvs.errors import PoolError, missing_extra

log = logging.getLogger("jaxenvs")

_ROUND = 0.1  # seconds between checks for failures
_RETRY = 0.2  # seconds between attempts to reach an actor that Ray is restarting
_DEATHS_IN_A_ROW = 3  # the pool gives up after so many deaths of an actor without an answer
_REFUSALS_IN_A_ROW = 5  # likewise, for an actor that Ray reports as dead
_START = 60.0  # seconds that Ray may take to restart an actor before it counts as hanging
_PATIENCE = 10.0  # seconds without an actor before a warning
# Almost no part of a core is reserved, so that the rest of a cluster has room for an actor whose
# node died. If actors reserve nothing at all, Ray puts several onto one node.
_OPTIONS = {"num_cpus": 0.001, "scheduling_strategy": "SPREAD"}
_OURS = {"max_restarts": -1, "max_task_retries": 0}


# --- in the actor -----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Request:
    """A step or a reset of some instances of an actor."""

    op: int
    buffer: int
    rows: list[int] | None  # None for all, in order
    actions: list[np.ndarray]  # of these rows; empty for a reset
    seeds: np.ndarray | None
    options: dict[str, Any] | None
    mode: int  # of autoreset, as the arrays have it


@dataclasses.dataclass(frozen=True)
class _Answer:
    """The answer to a request: arrays with a row for each requested instance."""

    arrays: list[np.ndarray]  # in the order of `_columns`
    infos: dict[int, bytes]  # by position among the rows; empty infos are omitted
    noted: int
    posts: list[tuple[int, str, str]]
    pid: int


class _Actor:
    """The environments of one worker, in a Ray process.

    Its constructor makes no environments, so it cannot fail. After Ray has restarted an actor, it
    answers None, and the caller then sends it the environments to make.
    """

    def __init__(self) -> None:
        self._instances: Instances | None = None
        self._attached = False
        self._answers: dict[int, _Answer] = {}  # answers that the caller may not have received
        self._posts: list[tuple[int, str, str]] = []

    def make(self, env_fns: bytes, first: int, path: list[str]) -> Any:
        """Makes the environments; returns ("made", facts, pid) or ("failed", instance, trace)."""
        known = set(sys.path)
        sys.path += [each for each in path if each not in known and os.path.isdir(each)]
        try:
            self._instances = Instances(cloudpickle.loads(env_fns), first)
            found = cloudpickle.dumps([facts(env) for env in self._instances.envs])
            return "made", found, os.getpid()
        except BaseException as error:
            instance = getattr(error, "jaxenvs_instance", first)
            return "failed", instance, "".join(traceback.format_exception(error))

    def attach(self, settings: bytes, recover: bool) -> None:
        """Sets how the environments are run."""
        assert self._instances is not None
        found: Settings = cloudpickle.loads(settings)
        plan, self._arrays = private_arrays(found, len(self._instances))
        self._instances.attach(
            plan,
            self._arrays,
            time_limit=found.time_limit,
            validate=found.validate,
            report=lambda *post: self._posts.append(post),
            own_process=True,
            alone=True,
        )
        if recover:
            self._instances.recover()
        self._attached = True
        gc.collect()
        gc.freeze()

    def run(self, number: int, received: int, request: _Request) -> _Answer | None:
        """Executes a request; returns None if the environments were lost with their process.

        Args:
            number: the number of the request; one that was executed already is not repeated.
            received: the caller has received the answers of all requests before this number.
            request: the request.
        """
        if not self._attached:
            return None
        for old in [each for each in self._answers if each < received]:
            del self._answers[old]
        if number not in self._answers:
            self._answers[number] = self._done(request)
        return self._answers[number]

    def _done(self, request: _Request) -> _Answer:
        instances, arrays = self._instances, self._arrays
        assert instances is not None
        rows = slice(None) if request.rows is None else request.rows
        arrays.mode[0] = request.mode
        for target, part in zip(arrays.actions, request.actions, strict=False):
            target[rows] = part
        if request.op in (RESET, RESET_ALL):
            arrays.seeds[rows] = request.seeds
            instances.options = request.options
            noted = instances.reset_rows(request.buffer, request.rows)
        elif request.op == STEP_ALL:
            noted = instances.step_all(request.buffer)
        else:
            noted = 0
            for row in request.rows or ():
                noted |= instances.step_one(request.buffer, row)
        # Copies, because the environments continue.
        columns = [array[rows].copy() for array in _columns(arrays, request.buffer)]
        arrays.restarted[rows] = False
        posts, self._posts = self._posts, []
        return _Answer(columns, self._infos(request), noted, posts, os.getpid())

    def _infos(self, request: _Request) -> dict[int, bytes]:
        answer, infos = self._arrays.answers[request.buffer], {}
        every = range(len(answer.info_size)) if request.rows is None else request.rows
        for place, row in enumerate(every):
            size = int(answer.info_size[row])
            if size < 0:
                assert self._instances is not None
                infos[place] = self._instances.kept_info(request.buffer, row)
            elif size:
                infos[place] = answer.info[row, :size].tobytes()
        return infos

    def perform(self, kind: str, *what: Any) -> Any:
        """Returns the result of `_worker.perform`, pickled; None if the environments were lost."""
        if not self._attached:
            return None
        assert self._instances is not None
        return cloudpickle.dumps(perform(self._instances, kind, *what))


def _columns(arrays: Arrays, buffer: int) -> list[np.ndarray]:
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


# --- in the caller ----------------------------------------------------------------------------


@dataclasses.dataclass
class _Pending:
    """A request that was not answered yet."""

    number: int
    instances: np.ndarray
    request: _Request
    counts: bool = True  # whether its answer is still wanted
    ref: Any = None


class _Member:
    """The caller's handle on one actor."""

    def __init__(self, number: int, env_fns: bytes, instances: range, options: Any) -> None:
        ray = _ray()
        self.number, self.instances, self._env_fns = number, instances, env_fns
        self.actor: Any = ray.remote(_Actor).options(**options).remote()
        self.pid: int | None = None
        self.pending: deque[_Pending] = deque()
        self.numbers = itertools.count()
        self.retry_at: float | None = None  # set while it cannot be reached
        self.warn_at: float | None = None  # when to warn that it cannot be reached
        self.starts_until = 0.0  # until then it does not count as hanging
        self.remade: list[Any] = []  # answers of a new process to `make` and `attach`
        self.deaths = 0  # since its last answer
        self.refusals = 0  # how often Ray has reported it as dead since its last answer

    def make(self) -> Any:
        return self.actor.make.remote(self._env_fns, self.instances.start, list(sys.path))

    def send(self, pending: _Pending) -> None:
        received = self.pending[0].number if self.pending else pending.number
        pending.ref = self.actor.run.remote(pending.number, received, pending.request)

    def post(self, what: str, text: str, *, fatal: bool = False) -> Post:
        return Post(self.instances.start, what, text, self.number, self.pid, fatal)


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
        self._posts: list[Post] = []
        self._has_restarted = False
        self._broken: Post | None = None
        self._options: dict[str, Any] | None = None  # for the next resets
        self._finished: deque[int] = deque()
        self._noted = 0
        self._kept: dict[tuple[int, int], bytes] = {}
        self._progress: dict[int, tuple[int, float]] = {}
        options = {**_OPTIONS, **(options or {}), **_OURS}
        self._session = Session()
        try:
            count = len(env_fns)
            workers = num_workers or max(1, min(count, self._session.cores()))
            bounds = [w * count // workers for w in range(workers + 1)]
            for w in range(workers):
                rows = range(bounds[w], bounds[w + 1])
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
        refs = [(member, member.make()) for member in self._members]
        for member, ref in refs:
            try:
                while not ray.wait([ref], timeout=_PATIENCE)[0]:
                    log.warning("Ray has not placed worker %d yet", member.number)
                outcome, *what = ray.get(ref)
            except ray.exceptions.RayError as error:
                raise Broken(member.post("its constructor", _told(error))) from None
            if outcome == "failed":
                raise Broken(Post(what[0], "its constructor", what[1]))
            member.pid = what[1]
            yield cloudpickle.loads(what[0])

    def attach(self, settings: Settings) -> None:
        self.timeout = settings.timeout
        self.plan, self.arrays = private_arrays(settings, len(self.owners))
        self._settings = cloudpickle.dumps(settings)
        for member in self._members:
            # Before all requests. If this message is lost, so are the environments.
            member.actor.attach.remote(self._settings, False)

    # --- steps ---

    def start_all(self, op: int, buffer: int) -> None:
        for member in self._members:
            self._ask(member, op, buffer, np.arange(member.instances.start, member.instances.stop))

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        if not self._wait(lambda: not any(m.pending for m in self._members), timeout, all_of=True):
            return _lines.TIMEOUT
        self._finished.clear()
        noted, self._noted = self._noted, 0
        return noted | self._attention()

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        owners = self.owners[instances]
        for worker in dict.fromkeys(owners.tolist()):
            self._ask(self._members[worker], op, buffer, instances[owners == worker])

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        if not self._wait(lambda: len(self._finished) >= len(out), timeout, all_of=False):
            return _lines.TIMEOUT
        for i in range(len(out)):
            out[i] = self._finished.popleft()
        self._noted = 0
        return self._attention()

    def _ask(self, member: _Member, op: int, buffer: int, instances: np.ndarray) -> None:
        if self._broken:  # count the request as finished, so that the caller gets the error
            self._finished.extend(instances.tolist())
            return
        self._forget(member, instances)
        resets = op in (RESET, RESET_ALL)
        request = _Request(
            op,
            buffer,
            None if op in (STEP_ALL, RESET_ALL) else (instances - member.instances.start).tolist(),
            [] if resets else [array[instances] for array in self.arrays.actions],
            self.arrays.seeds[instances] if resets else None,
            self._options if resets else None,
            int(self.arrays.mode[0]),
        )
        pending = _Pending(next(member.numbers), instances, request)
        if member.retry_at is None:
            member.send(pending)
        member.pending.append(pending)

    def _forget(self, member: _Member, instances: np.ndarray) -> None:
        """Drops pending answers of these instances to a wait that was interrupted."""
        for pending in member.pending:
            if pending.counts and np.isin(pending.instances, instances).any():
                pending.counts = False
        if self._finished:
            again = set(instances.tolist())
            self._finished = deque(i for i in self._finished if i not in again)

    def _attention(self) -> int:
        look = self._posts or self._broken or self._has_restarted
        return _lines.ATTENTION if look else _lines.OK

    def _wait(self, enough: Callable[[], bool], timeout: float | None, *, all_of: bool) -> bool:
        """Receives answers until there are enough; returns False on timeout."""
        ray = _ray()
        end = None if timeout is None else time.monotonic() + timeout
        while not enough():
            self._retry()
            refs = {
                pending.ref: (member, pending)
                for member in self._members
                for pending in member.pending
                if pending.ref is not None
            }
            left = _ROUND if end is None else min(_ROUND, end - time.monotonic())
            if refs:
                # If all are awaited, failures are noticed at the end of a round.
                number = len(refs) if all_of else 1
                ready, _ = ray.wait(list(refs), num_returns=number, timeout=max(0.0, left))
                if not all_of and len(refs) > 1:
                    ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=0)
            else:
                ready = []
                time.sleep(max(0.0, left))
            for ref in ready:
                self._receive(*refs[ref], ref)
            if not ready and end is not None and time.monotonic() >= end:
                return enough()
        return True

    def _receive(self, member: _Member, pending: _Pending, ref: Any) -> None:
        ray = _ray()
        if pending.ref is not ref:  # it was sent again in the meantime
            return
        try:
            answer = ray.get(ref)
        except ray.exceptions.RayTaskError as error:
            self._give_up(member, _told(error))
            return
        except ray.exceptions.RayError as error:  # of the actor, its node, or the object store
            self._lose(member, error)
            return
        if answer is None:
            self._revive(member)
            return
        member.pending.remove(pending)
        member.deaths = member.refusals = 0
        member.warn_at, member.starts_until = None, 0.0
        self._write(pending, answer)
        member.pid = answer.pid
        for instance, what, text in answer.posts:
            self._posts.append(Post(instance, what, text, member.number, member.pid))
        if pending.counts:
            self._finished.extend(pending.instances.tolist())
            self._noted |= answer.noted

    def _write(self, pending: _Pending, answer: _Answer) -> None:
        """Copies an answer into the pool's arrays."""
        instances, buffer = pending.instances, pending.request.buffer
        first, count = int(instances[0]), len(instances)
        rows = slice(first, first + count) if pending.request.rows is None else instances
        for target, part in zip(_columns(self.arrays, buffer), answer.arrays, strict=True):
            if target is self.arrays.restarted:
                target[rows] |= part
                self._has_restarted |= bool(part.any())
            else:
                target[rows] = part
        into = self.arrays.answers[buffer]
        into.info_size[rows] = 0
        for place, data in answer.infos.items():
            instance = int(instances[place])
            if len(data) <= into.info.shape[1]:
                into.info[instance, : len(data)] = np.frombuffer(data, np.uint8)
                into.info_size[instance] = len(data)
            else:
                into.info_size[instance] = -1
                self._kept[buffer, instance] = data

    # --- faults ---

    def _lose(self, member: _Member, error: Exception) -> None:
        """Records that an actor cannot be reached, and schedules its requests again."""
        ray = _ray()
        if isinstance(error, ray.exceptions.ActorDiedError):
            # Ray reports this for a moment even if it restarts the actor.
            member.refusals += 1
            if member.refusals > _REFUSALS_IN_A_ROW:
                self._give_up(member, _told(error))
                return
        now = time.monotonic()
        if member.warn_at is None:
            member.warn_at = now + _PATIENCE
        elif now > member.warn_at:
            log.warning("still waiting for worker %d: %s", member.number, _told(error))
            member.warn_at = now + 6 * _PATIENCE
        self._ask_later(member)

    def _ask_later(self, member: _Member) -> None:
        for pending in member.pending:
            pending.ref = None
        member.remade = []
        now = time.monotonic()
        member.retry_at, member.starts_until = now + _RETRY, now + _START

    def _retry(self) -> None:
        for member in self._members:
            if member.retry_at is not None and time.monotonic() >= member.retry_at:
                member.retry_at = None
                self._send_again(member)

    def _send_again(self, member: _Member) -> None:
        for pending in member.pending:
            member.send(pending)

    def _revive(self, member: _Member) -> None:
        """Makes the environments in a new process, and sends it the pending requests."""
        if (why := _why_not_made(member.remade)) is not None:
            self._give_up(member, f"its environments could not be constructed again: {why}")
            return
        member.deaths += 1
        if member.deaths > _DEATHS_IN_A_ROW:
            text = f"its process ended {member.deaths} times in a row without an answer"
            self._give_up(member, text)
            return
        log.warning(
            "Ray restarted worker %d; its environments %s were constructed again and their"
            " episodes cut",
            *(member.number, list(member.instances)),
        )
        member.starts_until = 0.0
        # An actor executes calls in order, so the requests come after this.
        member.remade = [member.make(), member.actor.attach.remote(self._settings, True)]
        self._send_again(member)

    def _give_up(self, member: _Member, text: str) -> None:
        """Marks a worker as lost and ends all waits for it."""
        self._broken = member.post("step", text, fatal=True)
        for each in member.pending:
            if each.counts:
                self._finished.extend(each.instances.tolist())
        member.pending.clear()

    def read_posts(self) -> list[Post]:
        posts, self._posts, self._has_restarted = self._posts, [], False
        return [*posts, self._broken] if self._broken else posts

    def stuck(self, seconds: float) -> list[int]:
        found, now = [], time.monotonic()
        for member in self._members:
            head = member.pending[0] if member.pending else None
            before, since = self._progress.get(member.number, (-1, now))
            if head is None or now < member.starts_until or head.number != before:
                self._progress[member.number] = -1 if head is None else head.number, now
            elif now - since >= seconds:
                found += head.instances.tolist()
                del self._progress[member.number]  # the next wait gets the full timeout again
        return found

    def restart(self, instances: Sequence[int]) -> bool:
        ray = _ray()
        for worker in {int(self.owners[i]) for i in instances}:
            ray.kill(self._members[worker].actor, no_restart=False)
            self._ask_later(self._members[worker])
        return True

    # --- messages ---

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        if kind == "kept_info":
            return [self._kept[what[0], i] for i in instances]

        def ask(number: int, mine: list[int], rest: list[Any]) -> list[Any]:
            member = self._members[number]
            return self._tell(member, kind, [i - member.instances.start for i in mine], *rest)

        return by_owner(kind, instances, what, lambda i: int(self.owners[i]), ask)

    def set_options(self, options: dict[str, Any] | None) -> None:
        self._options = options

    def _tell(self, member: _Member, kind: str, *what: Any) -> Any:
        ray = _ray()
        if self._broken:
            raise Broken(self._broken)
        while True:
            try:
                found = ray.get(member.actor.perform.remote(kind, *what), timeout=self.timeout)
            except ray.exceptions.GetTimeoutError:
                raise Late(member.instances) from None
            except ray.exceptions.ActorUnavailableError:  # Ray is restarting it
                time.sleep(_RETRY)
                continue
            except ray.exceptions.RayError as error:
                raise Broken(member.post(kind, _told(error))) from None
            if found is not None:
                break
            self._revive(member)
            if self._broken:
                raise Broken(self._broken)
        outcome = cloudpickle.loads(found)
        if outcome[0] == "error":
            raise Broken(Post(outcome[1], kind, outcome[2], member.number, member.pid))
        return outcome[1]

    # --- closing ---

    def close(self, grace: float) -> list[Post]:
        if self._owner != os.getpid():  # a fork of the caller has a copy of the pool
            return []
        ray = _ray()
        posts: list[Post] = []
        if not ray.is_initialized():  # at exit, Ray may shut down first
            return posts
        with contextlib.suppress(ray.exceptions.RayError):
            if grace > 0 and not self._broken:
                refs = {m.actor.perform.remote("close"): m for m in self._members}
                ready, _ = ray.wait(list(refs), num_returns=len(refs), timeout=grace)
                posts = [post for ref in ready for post in _failed(ref, refs[ref])]
        for member in self._members:
            with contextlib.suppress(ray.exceptions.RayError):
                ray.kill(member.actor, no_restart=True)
        self._members = []
        self._session.end()
        return posts


def _failed(ref: Any, member: _Member) -> list[Post]:
    ray = _ray()
    try:
        found = ray.get(ref)
    except ray.exceptions.RayError:  # it has ended already
        return []
    outcome: Any = cloudpickle.loads(found) if found else ("ok", None)
    if outcome[0] == "ok":
        return []
    return [Post(outcome[1], "close", outcome[2], member.number, member.pid)]


def _ray() -> Any:
    try:
        import ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise missing_extra('backend="ray"', "ray", "ray") from error
    return ray


def _why_not_made(remade: list[Any]) -> str | None:
    """Returns the error of a new process that failed to make the environments, or None."""
    ray = _ray()
    if not remade:
        return None
    try:
        outcome = ray.get(remade[0])
        if outcome[0] == "failed":
            return outcome[2]
        ray.get(remade[1])
    except ray.exceptions.RayTaskError as error:
        return _told(error)
    except ray.exceptions.RayError:  # it died as well
        pass
    return None


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
