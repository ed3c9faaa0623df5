"""The "process" backend: worker processes with several environments each, and shared memory."""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxenvs._machine import num_cores
from jaxenvs.bridge.backends.backend import (
    Backend,
    EnvFailure,
    MessageTimeout,
    Report,
    Settings,
    split_by_owner,
)
from jaxenvs.bridge.backends.worker_process import WorkerProcess, describe_exit, wait_readable
from jaxenvs.bridge.memory.arrays import Arrays
from jaxenvs.bridge.memory.channel import MESSAGE, QUIT, CallerChannel, channel_size, request
from jaxenvs.bridge.memory.segment import Overflow, Segment
from jaxenvs.bridge.workers.fork_server import fork_server
from jaxenvs.bridge.workers.inheritance import inheritance
from jaxenvs.bridge.workers.wire import pickled, send, send_packed

log = logging.getLogger("jaxenvs")
_SPIN_NS = 100_000  # about two wake-ups of an idle core
_DEATHS_IN_A_ROW = 3  # the pool gives up after so many deaths of a worker without an answer
_CONSTRUCTOR_SECONDS = 6  # without a timeout; a replacement may take ten times as long


class ProcessBackend(Backend):
    """A backend of worker processes.

    Args:
        env_fns: one function for each instance.
        num_workers: the number of workers; the instances are divided among them in order.
        bounds: the first instance of each worker, then the end of the last one's; None divides
            evenly. Instances below `bounds[0]` belong to another backend.

    Raises:
        PoolError: a function cannot be pickled.
        EnvFailure: a constructor raised.
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
        self.owner = os.getpid()
        self._closing = False
        self._broken: Report | None = None
        self._message_lock = threading.Lock()
        self._supervisor: threading.Thread | None = None
        self._segment: Segment | None = None
        self._progress: dict[int, tuple[tuple[int, int, int], float]] = {}
        self._options: bytes | None = None  # pickled, since the caller may change them
        self._all_know_options = True
        even = (w * len(env_fns) // num_workers for w in range(num_workers + 1))
        self.bounds = bounds = tuple(bounds or even)
        self._processes: list[WorkerProcess] = []
        inherited = inheritance()
        try:
            for w in range(num_workers):
                fns = list(env_fns[bounds[w] : bounds[w + 1]])
                self._processes.append(WorkerProcess(w, fns, bounds[w], inherited))
            self.descriptions = [
                fact for process in self._processes for fact in process.wait_for_envs()
            ]
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
        most = max(process.count for process in self._processes)
        size = self.num_workers, 2 * most + 8  # with messages
        self._channel_layout = {"size": size, "place": 2 * len(self.owners)}  # behind the infos
        self.plan = settings.plan(len(self.owners), -(-channel_size(size) // 4096) * 4096)
        self._segment = segment = Segment(self.plan.size)
        self.memory, overflow = segment.memory, Overflow(segment.fd)
        self.arrays = Arrays.over(self.plan, self.memory, overflow)
        self.channel = CallerChannel(self.memory, overflow=overflow, **self._channel_layout)
        cores = num_cores()
        spins = self.num_workers <= cores and cores > 1
        # A caller that takes partial batches needs a core of its own to spin on.
        take = _SPIN_NS if self.num_workers < cores else 0
        self.channel.set_spin(_SPIN_NS if spins else 0, take)
        self.channel.set_home(0 if spins and settings.lock_step else -1)
        self._settings, self.timeout = settings, settings.timeout
        for process in self._processes:
            self._attach(process, recover=False)
        stop, self._stop = os.pipe()
        self._supervisor = threading.Thread(
            target=self._supervise, args=(stop,), name="jaxenvs-pool", daemon=True
        )
        self._supervisor.start()

    def _attach(self, process: WorkerProcess, *, recover: bool) -> None:
        assert self._segment is not None
        asked, done = self.channel.begin(process.number, process.pid)
        attach = {
            "bytes": self._segment.size,
            "plan": self.plan,
            "time_limit": self._settings.time_limit,
            "validate": self._settings.validate,
            "watched": self.timeout is not None,
            "channel": {**self._channel_layout, "worker": process.number, "seen": done},
            "skip": asked,
            "recover": recover,
            "options": self._options,
        }
        send(process.socket, attach, (self._segment.fd,))

    def give_way(self) -> None:
        """Leaves the cores to the caller's threads, with which spinning workers would compete."""
        self.channel.set_spin(0)
        self.channel.set_home(-1)
        for pid in self.pids:  # lets every worker run on every core again
            with contextlib.suppress(OSError):
                os.sched_setaffinity(pid, os.sched_getaffinity(0))

    # --- steps ---

    def start_all(self, op: int, buffer: int) -> None:
        self.channel.ask_all(request(op, buffer))

    def wait_all(self, buffer: int, timeout: float) -> int:
        return self.channel.wait_all(buffer, timeout)

    def lock_step(self, timeout: float) -> Callable[[int], int]:
        return self.channel.step_all(timeout)

    def start_some(self, op: int, buffer: int, instances: np.ndarray) -> None:
        self.channel.ask_some(op, buffer, instances, self.owners[instances])

    def take(self, out: np.ndarray, timeout: float) -> int:
        return self.channel.take(out, timeout)

    def read_reports(self) -> list[Report]:
        reports = [
            report
            for worker, data in self.channel.read_reports()
            for report in Report.parse(data, worker, self._processes[worker].pid)
            if not self._processes[worker].given_up
        ]
        return [*reports, self._broken] if self._broken else reports

    # --- messages ---

    def message(self, kind: str, instances: Sequence[int], *what: Any) -> list[Any]:
        def ask(worker: int, mine: list[int], rest: list[Any]) -> list[Any]:
            process = self._processes[worker]
            return self._send_message(process, kind, [i - process.first for i in mine], *rest)

        return split_by_owner(kind, instances, what, lambda i: int(self.owners[i]), ask)

    def set_options(self, options: dict[str, Any] | None) -> None:
        packed = None if options is None else pickled(options, "options")
        if packed == self._options and self._all_know_options:  # usually both are None
            return
        self._options, self._all_know_options = packed, False
        for process in self._processes:
            self._send_message(process, "options", (), packed)
        self._all_know_options = True

    def _send_message(
        self, process: WorkerProcess, kind: str, rows: Sequence[int], *what: Any
    ) -> Any:
        """Sends a worker a message for rows of its own; returns the answer."""
        name = str(what[0]) if kind == "call" else kind
        data = pickled((kind, rows, *what), f"the arguments of {name!r}")
        with self._message_lock:
            if self._broken:
                raise EnvFailure(self._broken)
            is_sent = False
            try:
                self.channel.ask(process.number, request(MESSAGE))
                send_packed(process.socket, data)
                process.owed += 1
                is_sent = True
                packed = process.answer(self.timeout)
            except TimeoutError:
                self.channel.give_up(process.number)
                late = rows or range(process.count)
                raise MessageTimeout([process.first + row for row in late]) from None
            except (EOFError, OSError):
                text = f"process {process.pid} ended during {name!r}"
                raise EnvFailure(process.report(process.first, name, text)) from None
            except BaseException:
                if not is_sent:  # Ctrl-C cut the message, and the worker would wait forever
                    process.kill()
                raise
            self.channel.take_messages(process.number)
        return process.outcome(packed, process.first + (rows[0] if rows else 0), name)[1]

    # --- faults ---

    def stuck(self, seconds: float) -> list[int]:
        found, now = [], time.monotonic()
        for process in self._processes:
            asked, done, current = counts = self.channel.counts(process.number)
            before, since = self._progress.get(process.number, (None, now))
            if asked == done or process.reviving or counts != before:
                self._progress[process.number] = counts, now
            elif now - since >= seconds:
                found += [current - 1] if current else process.instances
                self.channel.give_up(process.number)
                del self._progress[process.number]  # the next wait gets the full timeout again
        return found

    def restart(self, instances: Sequence[int]) -> bool:
        for worker in {int(self.owners[i]) for i in instances}:
            self._processes[worker].reviving = True
            self._processes[worker].kill()
        return True

    def _supervise(self, stop: int) -> None:
        """Replaces workers that die, until the other end of the pipe `stop` is closed.

        Callers that wait for the worker, including compiled programs, keep waiting, and the new
        worker answers them.
        """
        while True:
            poll, watched = select.poll(), {}
            poll.register(stop, select.POLLIN)
            for process in self._processes:
                fd, event = process.pidfd, select.POLLIN
                if fd is None:
                    fd, event = process.socket.fileno(), select.POLLHUP
                if fd >= 0:
                    poll.register(fd, event)
                    watched[fd] = process
            lost = [process.number for process in self._processes if process.given_up]
            for number in lost:  # ends the waits for them, also those that begin later
                self.channel.finish_for(number)
            ready = [fd for fd, _ in poll.poll(20 if lost else None)]
            if stop in ready:
                break
            for fd in ready:
                self._revive(watched[fd])
        os.close(stop)

    def _revive(self, process: WorkerProcess) -> None:
        """Replaces a process that has died, or gives it up."""
        process.reviving = True
        what = f"process {process.pid} of worker {process.number}"
        with self._message_lock:  # a message in progress has failed by now
            for attempt in range(1, _DEATHS_IN_A_ROW + 1):  # replacements may be lost too
                self.channel.pids[process.number] = -1  # another process may get the pid
                status = process.kill_and_wait()
                if self._closing:
                    return
                try:
                    if attempt == 1:
                        what += f" {describe_exit(status)}"
                        self._count_death(process)
                    process.start()
                    if self._closing:  # `close` may have killed only the previous one
                        return
                    process.wait_for_envs(
                        10 * (process.made_in + (self.timeout or _CONSTRUCTOR_SECONDS))
                    )
                    self._attach(process, recover=True)
                    break
                except (EnvFailure, OSError, EOFError) as error:
                    is_lost = isinstance(error, ConnectionError) or getattr(error, "is_lost", False)
                    if not is_lost or attempt == _DEATHS_IN_A_ROW:
                        self._give_up(process, f"{what}, and could not be replaced: {error}")
                        return
            process.reviving = False
        log.warning(
            "%s; its environments %s were constructed again and their episodes cut",
            *(what, list(process.instances)),
        )

    def _count_death(self, process: WorkerProcess) -> None:
        """Raises EnvFailure if it has died too often without an answer in between."""
        asked, done, _ = self.channel.counts(process.number)
        if asked != done:  # a death that nobody waits for does not count
            process.deaths = process.deaths + 1 if done == process.done_at_death else 1
            process.done_at_death = done
        if process.deaths >= _DEATHS_IN_A_ROW:
            text = f"it died {process.deaths} times without an answer in between"
            raise EnvFailure(process.report(process.first, "step or reset", text))

    def _give_up(self, process: WorkerProcess, text: str) -> None:
        """Marks a worker as lost; the supervisor then ends all waits for it."""
        self.channel.lose()
        what = "step or reset"
        self._broken = Report(process.first, what, text, process.number, process.pid, fatal=True)
        process.given_up = True
        process.kill_and_wait()

    # --- closing ---

    def _close(self, grace: float) -> list[Report]:
        if fork_server.is_asking():  # called by the garbage collector in the middle of a message
            threading.Thread(target=self.close, args=(grace,)).start()
            return []
        self._closing = True
        reports: list[Report] = []
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            os.close(self._stop)
            if not _ended(supervisor, min(grace, 1.0)):  # it waits for a process to start
                self._kill_all()
                _ended(supervisor, 5.0)
            if grace > 0:
                reports = self._quit(time.monotonic() + grace)
        self._kill_all()
        if supervisor is not None:  # another thread may be waiting for the workers
            self.channel.call_attention()
        for process in self._processes:
            process.kill_and_wait()
        if supervisor is not None:
            for process in self._processes:
                self.channel.finish_for(process.number)
        if self._segment is not None:
            self._segment.close()
        return reports

    def _kill_all(self) -> None:
        for process in self._processes:
            process.kill()

    def _quit(self, end: float) -> list[Report]:
        """Makes the workers close their environments; returns reports of what raised."""
        reports, asked = [], []
        for process in self._processes:
            if not self.channel.hangs(process.number) and not process.reviving:
                self.channel.ask(process.number, request(QUIT))
                process.owed += 1
                asked.append(process)
        for process in asked:
            left = max(0.001, end - time.monotonic())
            try:
                process.socket.settimeout(left)
                process.outcome(process.answer(left), process.first, "close")
            except EnvFailure as error:
                reports.append(error.report)
            except (OSError, EOFError):
                continue
            wait_readable(process.pidfd, max(0.0, end - time.monotonic()))
        return reports


def _ended(thread: threading.Thread, patience: float) -> bool:
    if thread is not threading.current_thread():
        thread.join(patience)
    return not thread.is_alive()
