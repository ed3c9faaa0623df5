"""The caller's handle on one worker process: starting it, talking to it, and its end."""

import contextlib
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import cloudpickle

from jaxenvs.bridge.backends.backend import EnvFailure, Report
from jaxenvs.bridge.native.libraries import POOL, is_there, pool_library, pool_path, reason_missing
from jaxenvs.bridge.workers.fork_server import fork_server
from jaxenvs.bridge.workers.inheritance import inheritance
from jaxenvs.bridge.workers.wire import pickled, receive_packed, send
from jaxenvs.errors import PoolError


class WorkerProcess:
    """The caller's handle on one worker process.

    Args:
        number: of the worker.
        env_fns: one function for each of its instances.
        first: the first instance.
        inheritance: see `workers.inheritance`.

    Raises:
        PoolError: a function cannot be pickled, or the machine cannot run workers.
    """

    def __init__(
        self, number: int, env_fns: list[Callable[[], Any]], first: int, inheritance: bytes
    ) -> None:
        self.number, self.first, self.count = number, first, len(env_fns)
        self.instances = range(first, first + self.count)
        _refuse_other_machines()
        which = f"s {first} to {first + self.count - 1}" if self.count > 1 else f" {first}"
        self._env_fns = pickled(
            env_fns,
            f"environment function{which}",
            "  Construct objects that cannot be pickled inside the function, or pass"
            ' backend="thread".',
        )
        self._inheritance = inheritance
        self.deaths, self.done_at_death = 0, -1
        self.given_up = False
        self.reviving = False  # whether it is dead or being replaced
        self.made_in = 0.0  # seconds that the constructors took
        self.start()

    def start(self) -> None:
        """Forks a process; `wait_for_envs` waits for its environments."""
        ours, theirs = socket.socketpair()
        caller = _pidfd(os.getpid())
        try:
            self.pid = fork_server.fork(
                {
                    "env_fns": self._env_fns,
                    "first": self.first,
                    "inheritance": self._inheritance,
                    "library": pool_path(),
                },
                (theirs.fileno(), *(() if caller is None else (caller,))),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if caller is not None:
                os.close(caller)
        self.status: int | None = None  # once it has ended
        self.owed = 0  # answers to messages that were not received yet
        self.socket, self.pidfd = ours, _pidfd(self.pid)

    def measure(self, seconds: float) -> dict[str, float] | None:
        """Measures the steps of its first environment, see `measured`; returns None if they raise.

        "handover" is the time in which the process, which sleeps, answers an empty message.
        """
        times = []
        try:
            for _ in range(10):
                before = time.perf_counter()
                send(self.socket, None)
                self.receive_packed()
                times.append(time.perf_counter() - before)
            send(self.socket, seconds)
            outcome, found = cloudpickle.loads(self.receive_packed())
        except (EOFError, OSError):
            return None
        return {**found, "handover": min(times)} if outcome == "ok" else None

    def wait_for_envs(self, seconds: float | None = None) -> list[dict[str, Any]]:
        """Waits for its environments; returns their descriptions.

        Args:
            seconds: how long to wait; None without end.

        Raises:
            EnvFailure: a constructor raised or took too long, or the process died.
        """
        begin, instance = time.monotonic(), self.first
        try:
            while True:
                packed = self.receive_packed(seconds)
                outcome, what = self.outcome(packed, instance, "its constructor")
                if outcome != "making":
                    break
                instance = what
        except TimeoutError:
            text = f"it was not constructed within {seconds:.3g} s"
            raise EnvFailure(self.report(instance, "its constructor", text), is_lost=True) from None
        except EOFError:
            text = (
                f"process {self.pid} {describe_exit(self.kill_and_wait())} while it constructed it"
            )
            raise EnvFailure(self.report(instance, "its constructor", text), is_lost=True) from None
        self.made_in = time.monotonic() - begin
        return what

    def answer(self, seconds: float | None) -> bytes:
        """Waits for the answer to the latest message; returns it pickled.

        Answers to earlier messages, which Ctrl-C cut, are dropped.

        Raises:
            EOFError, TimeoutError: as `receive_packed`.
        """
        packed = b""
        while self.owed:
            packed = self.receive_packed(seconds)
            self.owed -= 1
        return packed

    def receive_packed(self, seconds: float | None = None) -> bytes:
        """Waits for the next message; returns it pickled.

        Args:
            seconds: how long to wait; None without end.

        Raises:
            EOFError: the process has ended (a process that it forked may still hold the socket).
            TimeoutError: there is no message yet.
        """
        poll = select.poll()
        poll.register(self.socket.fileno(), select.POLLIN)
        if self.pidfd is not None:
            poll.register(self.pidfd, select.POLLIN)
        ready = dict(poll.poll(None if seconds is None else _milliseconds(seconds)))
        if not ready:
            raise TimeoutError
        if self.socket.fileno() not in ready:
            raise EOFError(f"process {self.pid} has ended")
        try:
            return receive_packed(self.socket)[0]
        except (EOFError, OSError):
            raise
        except BaseException:  # Ctrl-C cut the message, and the next one would begin in its middle
            self.kill()
            raise

    def outcome(self, packed: bytes, instance: int, what: str) -> tuple[str, Any]:
        """Unpickles a message of its environments: what it is, and a value.

        Raises:
            EnvFailure: it says that an environment raised, or cannot be unpickled in this process.
        """
        try:
            outcome = cloudpickle.loads(packed)
        except Exception as error:
            text = f"{traceback.format_exc()}its answer cannot be unpickled here: {error!r}"
            raise EnvFailure(self.report(instance, what, text)) from error
        if outcome[0] == "error":
            raise EnvFailure(self.report(outcome[1], what, outcome[2]))
        return outcome

    def report(self, instance: int, what: str, text: str) -> Report:
        return Report(instance, what, text, self.number, self.pid)

    def kill(self) -> None:
        """Kills it and the processes that its environments have started."""
        if self.status is not None:  # the pid may belong to another process
            return
        for end in (os.killpg, os.kill):  # it may have left its process group
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)

    def kill_and_wait(self) -> int | None:
        """Kills it and waits for its end, up to 5 s; returns the exit status."""
        self.kill()
        end = time.monotonic() + 5.0
        while self.status is None and time.monotonic() < end:
            self.status = fork_server.reap(self.pid)
            if self.status is None:
                wait_readable(self.pidfd, 0.1)
        self.socket.close()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None
        return self.status

    def discard(self) -> None:
        """Ends a worker that never became part of a pool."""
        self.socket.close()
        wait_readable(self.pidfd, 1.0)  # it closes its environments
        self.kill_and_wait()


def start_probe(env_fn: Callable[[], Any]) -> tuple[WorkerProcess, Any]:
    """Starts a worker with one environment; returns the worker and the environment's description.

    Raises:
        PoolError, EnvFailure: as `ProcessBackend`.
    """
    process = WorkerProcess(0, [env_fn], 0, inheritance())
    try:
        (description,) = process.wait_for_envs()
        return process, description
    except BaseException:
        process.discard()
        raise


def _refuse_other_machines() -> None:
    if not (hasattr(os, "fork") and hasattr(socket, "send_fds")):
        raise PoolError(
            f'make_pool got backend="process" on {sys.platform}, which cannot fork processes.'
            '  Pass backend="thread" or "serial".'
        )
    if not is_there(POOL):
        raise PoolError(
            'backend="process" needs the compiled part of the host bridge, which is missing:'
            f' {reason_missing(pool_library)}.  Or pass backend="thread" or "serial".'
        )


def describe_exit(status: int | None) -> str:
    if status is None:
        return "ended"
    if status < 0:
        with contextlib.suppress(ValueError):
            return f"was killed by {signal.Signals(-status).name}"
    return f"exited with status {status}"


def _pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def wait_readable(fd: int | None, seconds: float) -> None:
    """Waits until the descriptor is readable; sleeps briefly if there is no descriptor."""
    if fd is None:
        time.sleep(min(seconds, 0.002))
        return
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    poll.poll(_milliseconds(seconds))


def _milliseconds(seconds: float) -> float:
    return min(seconds * 1000, 2**31 - 1)  # the most that poll takes
