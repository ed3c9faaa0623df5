"""The "process" backend: worker processes with several environments each, and shared memory."""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np

from jaxenvs._machine import num_cores
from jaxenvs.bridge.backends.base import Backend, Broken, Late, Post, Settings, by_owner
from jaxenvs.bridge.backends.worker_process import WorkerProcess, ending, started, wait_readable
from jaxenvs.bridge.memory import lines as _lines
from jaxenvs.bridge.memory.arrays import Arrays
from jaxenvs.bridge.memory.lines import CallerLines, Words, request, room_for, words_size
from jaxenvs.bridge.memory.segment import Segment
from jaxenvs.bridge.workers.wire import encoded, packed_for, receive_packed, send, send_packed
from jaxenvs.bridge.workers.zygote import zygote

log = logging.getLogger("jaxenvs")
_SPIN_NS = 100_000  # about two wake-ups of an idle core
_DEATHS_IN_A_ROW = 3  # the pool gives up after so many deaths of a worker without an answer
_CONSTRUCTOR_SECONDS = 6  # without a timeout, see `_patience_for`


class ProcessBackend(Backend):
    """A backend of worker processes.

    Args:
        env_fns: one function for each instance.
        num_workers: the number of workers; the instances are divided among them in order.
        bounds: the first instance of each worker, then the end of the last one's; None divides
            evenly. Instances below `bounds[0]` belong to another backend.

    Raises:
        PoolError: a function cannot be pickled.
        Broken: a constructor raised.
    """

    name = "process"

    def __init__(
        self,
        env_fns: Sequence[Callable[[], Any]],
        num_workers: int,
        *,
        bounds: Sequence[int] | None = None,
    ) -> None:
        self.num_workers = num_workers
        self._owner = os.getpid()
        self._closing = False
        self._broken: Post | None = None
        self._message_lock = threading.Lock()
        self._supervisor: _Supervisor | None = None
        self._segment: Segment | None = None
        self._progress: dict[int, tuple[tuple[int, int, int], float]] = {}
        self._options: tuple[dict[str, Any] | None, bytes | None] = None, None  # and pickled
        even = (w * len(env_fns) // num_workers for w in range(num_workers + 1))
        self.bounds = bounds = tuple(bounds or even)
        self._processes: list[WorkerProcess] = []
        try:
            for w in range(num_workers):
                fns = list(env_fns[bounds[w] : bounds[w + 1]])
                self._processes.append(started(w, fns, bounds[w]))
            self.facts = [fact for process in self._processes for fact in process.made()]
        except BaseException:
            self.close(0)
            raise
        owned = np.repeat(np.arange(num_workers, dtype=np.int32), np.diff(bounds))
        self.owners = np.concatenate([np.full(bounds[0], -1, np.int32), owned])

    @property
    def pids(self) -> list[int]:
        """The process id of each worker."""
        return [process.pid for process in self._processes]

    def attach(self, settings: Settings) -> None:
        room = room_for(2 * max(process.count for process in self._processes) + 8)
        start = words_size(self.num_workers, room)
        self.plan = settings.plan(len(self.owners), -(-start // 4096) * 4096)
        self._segment = segment = Segment(self.plan.size)
        self.words = Words(segment.memory, self.num_workers, room)
        self.arrays = Arrays.over(self.plan, segment.memory)
        self.lines = CallerLines(self.words)
        cores = num_cores()
        spins = self.num_workers <= cores and cores > 1
        # A caller that takes partial batches needs a core of its own to spin on.
        take = _SPIN_NS if self.num_workers < cores else 0
        self.words.set_spin(_SPIN_NS if spins else 0, take)
        self.words.set_home(0 if spins and settings.lock_step else -1)
        self._attach = {
            "size": segment.size,
            "num_workers": self.num_workers,
            "request_room": room,
            "plan": self.plan,
            "time_limit": settings.time_limit,
            "validate": settings.validate,
            "watched": settings.timeout is not None,
        }
        self.timeout = settings.timeout
        for process in self._processes:
            self._send_attach(process, recover=False)
        self._supervisor = _Supervisor(self)

    def _send_attach(self, process: WorkerProcess, *, recover: bool) -> None:
        assert self._segment is not None
        asked, done, _ = self.words.counts(process.number)
        self.words.pids[process.number] = process.pid
        self.words.struct.core = -1
        self.words.current(process.number)[0] = 0
        attach = {
            **self._attach,
            "worker": process.number,
            "seen": done,
            "skip": asked,
            "recover": recover,
            "options": self._options[0],
        }
        send(process.socket, attach, (self._segment.fd,))

    def give_way(self) -> None:
        """Leaves the cores to the caller's threads, with which spinning workers would compete."""
        self.words.set_spin(0)
        self.words.set_home(-1)
        for pid in self.pids:  # lets every worker run on every core again
            with contextlib.suppress(OSError):
                os.sched_setaffinity(pid, os.sched_getaffinity(0))

    # --- steps ---

    def start_all(self, op: int, buffer: int) -> None:
        self.lines.ask_all(request(op, buffer))

    def wait_all(self, buffer: int, timeout: float | None) -> int:
        return self.lines.wait_all(buffer, timeout)

    def lock_step(self, timeout: float | None) -> Callable[[int], int]:
        return self.lines.step_all(timeout)

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        self.lines.ask_some(op, buffer, instances, self.owners[instances])

    def take(self, out: np.ndarray, timeout: float | None) -> int:
        return self.lines.take(out, timeout)

    def read_posts(self) -> list[Post]:
        posts = [
            post
            for worker, data in self.words.read_posts()
            for post in Post.parse(data, worker, self._processes[worker].pid)
            if not self._processes[worker].given_up
        ]
        return [*posts, self._broken] if self._broken else posts

    # --- messages ---

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        def ask(worker: int, mine: list[int], rest: list[Any]) -> list[Any]:
            process = self._processes[worker]
            return self._tell(process, (kind, [i - process.first for i in mine], *rest))

        return by_owner(kind, instances, what, lambda i: int(self.owners[i]), ask)

    def set_options(self, options: dict[str, Any] | None) -> None:
        packed = None if options is None else packed_for(options, "options")
        if packed == self._options[1]:  # usually both are None
            return
        self._options = options, packed
        for process in self._processes:
            self._tell(process, ("options", options))

    def _tell(self, process: WorkerProcess, message: Any) -> Any:
        packed = b""
        what = str(message[2] if message[0] == "call" else message[0])
        data = packed_for(message, f"the arguments of {what!r}")
        with self._message_lock:
            if self._broken:
                raise Broken(self._broken)
            try:
                self.lines.ask(process.number, request(_lines.MESSAGE))
                send_packed(process.socket, data)
                process.owed += 1
                while process.owed:
                    packed = process.receive_packed(self.timeout)  # all but the last are dropped
                    process.owed -= 1
            except TimeoutError:
                self.words.give_up(process.number)
                rows = message[1] if message[0] != "options" else range(process.count)
                raise Late([process.first + row for row in rows]) from None
            except (EOFError, OSError):
                text = f"process {process.pid} ended during {what!r}"
                raise Broken(process.post(process.first, what, text)) from None
            except BaseException:
                if not process.owed:  # Ctrl-C cut the message, and the worker would wait forever
                    process.kill()
                raise
            self.lines.settle(process.number)
        rows = message[1] if message[0] != "options" else ()
        instance = process.first + (rows[0] if rows else 0)
        outcome = process.unpacked(packed, instance, what)
        if outcome[0] == "error":
            raise Broken(process.post(outcome[1], what, outcome[2]))
        return outcome[1]

    # --- faults ---

    def stuck(self, seconds: float) -> list[int]:
        found, now = [], time.monotonic()
        for process in self._processes:
            counts = self.words.counts(process.number)
            asked, done, current = counts
            before, since = self._progress.get(process.number, (None, now))
            if asked == done or process.reviving or counts != before:
                self._progress[process.number] = counts, now
            elif now - since >= seconds:
                found += [current - 1] if current else list(self._rows(process))
                self.words.give_up(process.number)
                del self._progress[process.number]  # the next wait gets the full timeout again
        return found

    def restart(self, instances: Sequence[int]) -> bool:
        for worker in {int(self.owners[i]) for i in instances}:
            self._processes[worker].reviving = True
            self._processes[worker].kill()
        return True

    def _rows(self, process: WorkerProcess) -> range:
        return range(process.first, process.first + process.count)

    def revive(self, process: WorkerProcess) -> None:
        """Replaces a process that died. Called by the supervisor."""
        process.reviving = True
        self.words.pids[process.number] = -1  # the pid may soon belong to another process
        with self._message_lock:  # a message in progress has failed by now
            died, status = process.pid, process.reap()
            asked, done, _ = self.words.counts(process.number)
            if asked != done:  # a death that nobody waits for does not count
                process.deaths = process.deaths + 1 if done == process.done_at_death else 1
                process.done_at_death = done
            process.forget()
            if self._closing:
                return
            what = f"process {died} of worker {process.number} {ending(status)}"
            try:
                if process.deaths >= _DEATHS_IN_A_ROW:
                    text = f"{what}; it died {process.deaths} times without an answer in between"
                    raise Broken(process.post(process.first, "step", text))
                if not self._start_again(process):
                    return
                process.owed = 0
                process.reviving = False
            except (Broken, OSError, EOFError) as error:
                text = error.post.text if isinstance(error, Broken) else str(error)
                self._give_up(process, f"{what}, and could not be replaced: {text}")
            else:
                log.warning(
                    "%s; its environments %s were constructed again and their episodes cut",
                    *(what, list(self._rows(process))),
                )

    def _start_again(self, process: WorkerProcess) -> bool:
        """Starts and attaches a replacement, several times if it is lost; False while closing.

        Raises:
            Broken, ConnectionError: a constructor raised, or several replacements were lost.
        """
        for attempt in range(1, _DEATHS_IN_A_ROW + 1):
            process.start()
            if self._closing:  # `close` may have killed only the previous one
                break
            try:
                process.made(self._patience_for(process))
                self._send_attach(process, recover=True)
                return True
            except (Broken, ConnectionError) as error:
                has_raised = isinstance(error, Broken) and not error.is_lost
                if has_raised or attempt == _DEATHS_IN_A_ROW or self._closing:
                    raise
            self.words.pids[process.number] = -1
            process.reap()
            process.forget()
        return False

    def _patience_for(self, process: WorkerProcess) -> float:
        """Returns the seconds that constructors of a replacement may take."""
        return 10 * (process.made_in + (self.timeout or _CONSTRUCTOR_SECONDS))

    def _give_up(self, process: WorkerProcess, text: str) -> None:
        """Marks a worker as lost and ends all waits for it."""
        self.words.lose()
        self._broken = Post(process.first, "step", text, process.number, process.pid, fatal=True)
        process.given_up = True
        self.answer_for_the_dead()

    def answer_for_the_dead(self) -> bool:
        """Ends the waits for workers that were given up; returns whether there are any."""
        dead = [process.number for process in self._processes if process.given_up]
        for number in dead:
            assert self._broken is not None
            text = f"{self._broken.instance}\n{self._broken.what}\n{self._broken.text}"
            self.words.post(number, encoded(text))
            self.lines.finish_for(number)
        return bool(dead)

    # --- closing ---

    def close(self, grace: float) -> list[Post]:
        if self._owner != os.getpid():  # a fork of the caller has a copy of the pool
            return []
        if zygote.is_asking():  # called by the garbage collector in the middle of a message
            threading.Thread(target=self.close, args=(grace,)).start()
            return []
        self._closing = True
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None and not supervisor.stop(min(grace, 1.0)):
            for process in self._processes:  # the supervisor waits for one to start
                process.kill()
            supervisor.stop(5.0)
        posts: list[Post] = []
        if supervisor is not None and grace > 0:
            posts = self._quit(time.monotonic() + grace)
        for process in self._processes:
            process.kill()
        if supervisor is not None:  # another thread may be waiting for the workers
            self.words.call_attention()
            for process in self._processes:
                self.lines.finish_for(process.number)
        for process in self._processes:
            process.reap()
            process.forget()
        if self._segment is not None:
            self._segment.close()
        return posts

    def _quit(self, end: float) -> list[Post]:
        """Makes the workers close their environments; returns reports of what raised."""
        posts, asked = [], []
        for process in self._processes:
            if not self.words.hangs(process.number) and not process.reviving:
                self.lines.ask(process.number, request(_lines.QUIT))
                asked.append(process)
        for process in asked:
            try:
                packed = b""
                while not packed or process.owed >= 0:
                    process.socket.settimeout(max(0.001, end - time.monotonic()))
                    packed, _ = receive_packed(process.socket)
                    process.owed -= 1
                outcome = cloudpickle.loads(packed)
                if outcome[0] == "error":
                    posts.append(process.post(outcome[1], "close", outcome[2]))
                wait_readable(process.pidfd, max(0.0, end - time.monotonic()))
            except (OSError, EOFError):
                pass
        return posts


class _Supervisor:
    """A thread that replaces workers that die.

    Callers that wait for the worker, including compiled programs, keep waiting, and the new worker
    answers them.
    """

    def __init__(self, backend: ProcessBackend) -> None:
        self._backend = backend
        self._stop_reading, self._stop_writing = os.pipe()
        self._thread = threading.Thread(target=self._run, name="jaxenvs-pool", daemon=True)
        self._thread.start()

    def stop(self, patience: float) -> bool:
        """Stops the thread; returns whether it ended in time (it may wait for a new worker)."""
        if self._stop_writing >= 0:
            os.close(self._stop_writing)
            self._stop_writing = -1
        if threading.current_thread() is not self._thread:
            self._thread.join(patience)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            os.close(self._stop_reading)

    def _watch(self) -> None:
        while True:
            poll = select.poll()
            poll.register(self._stop_reading, select.POLLIN)
            watched = {}
            for process in self._backend._processes:
                fd, what = process.pidfd, select.POLLIN
                if fd is None:
                    fd, what = process.socket.fileno(), select.POLLHUP
                if fd >= 0:
                    poll.register(fd, what)
                    watched[fd] = process
            dead = self._backend.answer_for_the_dead()
            ready = [fd for fd, _ in poll.poll(20 if dead else None)]
            if self._stop_reading in ready:
                return
            for fd in ready:
                self._backend.revive(watched[fd])
