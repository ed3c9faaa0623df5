"""A small process that workers are forked from.

A worker started afresh imports Python, NumPy and Gymnasium for a third of a second, and a fork of
the caller's own process may hang, since JAX has threads. So the first pool starts this process; it
has no threads, has imported what workers need, and forks when told to. Unlike the start methods of
`multiprocessing` it never runs the caller's script again, so scripts need no
`if __name__ == "__main__"`. It ends with the caller.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from typing import Any

from jaxenvs.bridge.workers.wire import receive, send

# Run with the caller's sys.path, so that it finds what the caller finds.
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from jaxenvs.bridge.workers.fork_server import main
main(int(sys.argv[1]))
"""


class ForkServer:
    """The caller's handle on it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen | None = None
        self._socket: socket.socket | None = None

    def fork(self, settings: dict[str, Any], fds: tuple[int, ...]) -> int:
        """Starts a worker with `settings` and descriptors; returns its pid."""
        cwd = None
        with contextlib.suppress(OSError):  # it was deleted
            cwd = os.getcwd()
        settings = {
            "environ": dict(os.environ),
            "cwd": cwd,
            "path": list(sys.path),
            "argv": list(sys.argv),
            "worker": settings,
        }
        return self._ask(("fork", settings), fds)

    def reap(self, pid: int) -> int | None:
        """The exit status of a worker, negative for a signal; None where it goes on."""
        return self._ask(("reap", pid))

    def is_asking(self) -> bool:
        """Whether this thread is in a conversation with it, and must not begin another."""
        return self._lock._is_owned()  # pyright: ignore[reportAttributeAccessIssue]

    def disown(self) -> None:
        """Leaves it to the caller, in a process that the caller has forked."""
        self._lock = threading.RLock()  # nobody would release the other one
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.returncode = 0  # it is not a child of this process
        self._process = self._socket = None

    def end(self) -> None:
        """Ends the process, when nothing was forked from it that is still needed."""
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            if self._process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(2)
            self._process = self._socket = None

    def _ask(self, message: Any, fds: tuple[int, ...] = ()) -> Any:
        with self._lock:
            for attempt in range(2):
                try:
                    sock = self._connected()
                    send(sock, message, fds)
                    return receive(sock)[0]
                except BaseException as error:
                    # Somebody killed it; or Ctrl-C, and the answer would be taken for another's.
                    if self._socket is not None:
                        self._socket.close()
                        self._socket = None
                    if attempt or not isinstance(error, (EOFError, OSError)):
                        raise
        return None

    def _connected(self) -> socket.socket:
        """Returns the socket to it; starts it where it is not there yet."""
        if self._socket is not None:
            return self._socket
        self.end()  # the one before
        ours, theirs = socket.socketpair()
        fd, path = theirs.fileno(), json.dumps([str(each) for each in sys.path])
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(fd), path],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._socket = ours
        return ours


fork_server = ForkServer()
atexit.register(fork_server.end)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=fork_server.disown)


def main(fd: int) -> None:
    """Answers requests until the caller ends.

    ("fork", settings) with descriptors -> the pid of a worker
    ("reap", pid) -> its exit status, or None where it has not ended
    """
    importlib.import_module("jaxenvs.bridge.workers.worker")  # once for all workers
    # A worker's collector would visit, and so copy, all that it shares with the others.
    gc.freeze()

    os.setsid()  # Ctrl-C in a terminal is the caller's business
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if hasattr(os, "pidfd_open"):  # other processes that the caller forked may hold its socket
        poll.register(os.pidfd_open(os.getppid()), select.POLLIN)
    with socket.socket(fileno=fd) as sock, contextlib.suppress(EOFError, OSError):
        while fd in dict(poll.poll()):
            (kind, what), fds = receive(sock)
            if kind == "fork":
                pid = os.fork()
                if pid == 0:
                    sock.close()
                    _run_worker(what, fds)
                with contextlib.suppress(OSError):
                    os.setpgid(pid, pid)  # with all that its environments start
                for each in fds:
                    os.close(each)
                send(sock, pid)
            else:
                send(sock, _reap(what))


def _reap(pid: int) -> int | None:
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0  # forked from another fork_server, and reaped by the system
    return os.waitstatus_to_exitcode(status) if found else None


def _run_worker(settings: Any, fds: list[int]) -> None:
    """Never returns."""
    status = 1
    try:
        from jaxenvs.bridge.workers.worker import main as work

        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        os.environ.clear()
        os.environ.update(settings["environ"])
        if settings["cwd"] is not None:
            os.chdir(settings["cwd"])
        sys.path[:] = settings["path"]
        sys.argv[:] = settings["argv"]
        work(settings["worker"], fds)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Neither destructors nor threads of environments may keep the process.
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
