"""A fork server: a small process from which workers are forked.

A new interpreter takes a third of a second to import NumPy and Gymnasium, and forking the caller
may deadlock, since JAX runs threads. So the first pool starts a process without threads that has
imported what workers need and forks on request. Unlike `multiprocessing`, it never runs the
caller's script again, so scripts need no `if __name__ == "__main__"`. It ends with the caller.
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

# Uses the caller's sys.path, so that it imports the same modules.
_PROGRAM = """\
import json, sys
sys.path[:] = json.loads(sys.argv[2])
from jaxenvs.bridge.workers.fork_server import main
main(int(sys.argv[1]))
"""


class ForkServer:
    """The caller's handle on the fork server."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._process: subprocess.Popen | None = None
        self._socket: socket.socket | None = None

    def fork(self, settings: dict[str, Any], fds: tuple[int, ...]) -> int:
        """Forks a worker with `settings` and file descriptors; returns its pid."""
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
        """Returns a worker's exit status, negative for a signal; None if it is still running."""
        return self._ask(("reap", pid))

    def is_asking(self) -> bool:
        """Returns whether this thread waits for an answer, so it must not send another request."""
        return self._lock._is_owned()  # pyright: ignore[reportAttributeAccessIssue]

    def disown(self) -> None:
        """Gives up the fork server in a forked child: it belongs to the parent."""
        self._lock = threading.RLock()  # a thread of the parent may hold the old one
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.returncode = 0  # it is not a child of this process
        self._process = self._socket = None

    def end(self) -> None:
        """Ends the fork server. Its workers must not be needed any more."""
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
                    # It was killed, or Ctrl-C left an answer that the next request would receive.
                    if self._socket is not None:
                        self._socket.close()
                        self._socket = None
                    if attempt or not isinstance(error, (EOFError, OSError)):
                        raise
        return None

    def _connected(self) -> socket.socket:
        """Returns the socket to the fork server, which is started if necessary."""
        if self._socket is not None:
            return self._socket
        self.end()  # the previous one
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
    """Serves requests until the caller ends.

    ("fork", settings) with file descriptors -> the worker's pid
    ("reap", pid) -> the worker's exit status, or None if it is still running
    """
    importlib.import_module("jaxenvs.bridge.workers.worker")  # imported once for all workers
    # Otherwise a worker's garbage collector would copy the pages that it shares with the others.
    gc.freeze()

    os.setsid()  # Ctrl-C in a terminal is handled by the caller
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if hasattr(os, "pidfd_open"):  # the caller's other children may hold its socket open
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
                    os.setpgid(pid, pid)  # its own group, which its environments' processes join
                for each in fds:
                    os.close(each)
                send(sock, pid)
            else:
                send(sock, _reap(what))


def _reap(pid: int) -> int | None:
    try:
        found, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0  # forked by a previous server, and reaped by the system
    return os.waitstatus_to_exitcode(status) if found else None


def _run_worker(settings: Any, fds: list[int]) -> None:
    """Runs a worker and exits; never returns."""
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
        # Destructors and threads of environments must not keep the process alive.
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
