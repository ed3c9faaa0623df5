"""A worker process: constructs environments, then serves requests."""

import contextlib
import ctypes
import gc
import inspect
import mmap
import os
import select
import signal
import socket
import threading
import time
import traceback
from typing import Any

import cloudpickle
import numpy as np

from jaxenvs.bridge.foreign.pettingzoo import agents_of
from jaxenvs.bridge.memory.arrays import Arrays
from jaxenvs.bridge.memory.channel import MESSAGE, RESET, RESET_ALL, STEP, STEP_ALL, WorkerChannel
from jaxenvs.bridge.memory.segment import Overflow
from jaxenvs.bridge.native.libraries import pool_library, use_pool
from jaxenvs.bridge.workers.inheritance import take
from jaxenvs.bridge.workers.instances import Instances
from jaxenvs.bridge.workers.wire import encoded, receive, receive_packed, send, send_packed

_MAP_FIXED = 0x10  # on Linux and macOS
_ENOUGH_STEPS = 8  # of all environments, before deciding whether they run in one thread
_REPORT_SIZE = 8192  # bytes; longer reports keep their end


def main(settings: dict[str, Any], fds: list[int]) -> None:
    """Runs until the caller sends QUIT or ends.

    Args:
        settings: "env_fns" (cloudpickled), "first", "inheritance", and "library", the path of the
            caller's pool library.
        fds: a socket to the caller, and the caller's pidfd if there is one.
    """
    sock = socket.socket(fileno=fds[0])
    use_pool(settings["library"])
    _end_with_caller(sock, fds[1] if len(fds) > 1 else None)
    try:
        take(settings["inheritance"])
        instances = Instances(
            cloudpickle.loads(settings["env_fns"]),
            settings["first"],
            lambda instance: send(sock, ("making", instance)),
        )
        found = cloudpickle.dumps(("made", [describe_env(env) for env in instances.envs]))
    except BaseException as error:
        failed = getattr(error, "jaxenvs_instance", settings["first"])
        send(sock, ("error", failed, "".join(traceback.format_exception(error))))
        return
    send_packed(sock, found)
    while True:
        try:
            message, more = receive(sock)
        except EOFError:  # the pool was discarded
            instances.close()
            return
        if isinstance(message, dict):
            _Worker(sock, instances, message, *more).run()
            return
        if message is None:  # the caller measures how long an answer takes
            send(sock, None)
        elif describe_env(instances.envs[0])["is_coroutine"]:
            send(sock, ("error", "its calls have to be awaited"))
        else:  # the message is how long to measure
            send(sock, _attempt(measured, instances.envs[0], message))


def measured(env: Any, seconds: float) -> dict[str, float]:
    """Measures steps of an environment with random actions, including resets.

    Returns:
        "step": the mean duration in seconds; "spread": its standard deviation; "cpu": the mean CPU
        time; "spent": the CPU time of the measurement. Time in which other processes had the CPU
        is excluded as far as possible.
    """
    import resource  # not available on every system

    spent = time.process_time()
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(32)]
    env.step(actions[0])  # the first one may set things up
    times: list[float] = []
    usage, cpu, begin = resource.getrusage(resource.RUSAGE_SELF), time.process_time(), _now()
    before = begin
    while len(times) < 3 or (before - begin < seconds and len(times) < 2048):
        _, _, terminated, truncated, _ = env.step(actions[len(times) % 32])
        now = _now()
        times.append(now - before)
        if terminated or truncated:
            env.reset()
            now = _now()
        before = now
    count = len(times)
    cpu, step = (time.process_time() - cpu) / count, (before - begin) / count
    after = resource.getrusage(resource.RUSAGE_SELF)
    spread = float(np.std(times))
    gave_way = after.ru_nvcsw - usage.ru_nvcsw > count / 10
    if not gave_way and after.ru_nivcsw > usage.ru_nivcsw:  # it does not wait, but was preempted
        step, spread = min(step, cpu), 0.0
    return {
        "step": step,
        "spread": spread,
        "cpu": min(cpu, step) if gave_way else step,
        "spent": time.process_time() - spent,
    }


_now = time.perf_counter


def describe_env(env: Any) -> dict[str, Any]:
    """Returns what the caller needs to know about an environment."""
    return {
        "observation_space": env.observation_space,
        "action_space": env.action_space,
        "metadata": getattr(env, "metadata", {}),
        "render_mode": getattr(env, "render_mode", None),
        "spec": _portable_spec(env),
        "is_coroutine": has_coroutines(env),
        "agents": agents_of(env),
    }


def has_coroutines(env: Any) -> bool:
    """Returns whether an environment, or one that it wraps, has coroutine methods."""
    while env is not None:
        for name in ("reset", "step", "render", "close"):
            if inspect.iscoroutinefunction(getattr(env, name, None)):
                return True
        env = getattr(env, "env", None)
    return False


def _portable_spec(env: Any) -> Any:
    spec = getattr(env, "spec", None)
    try:
        cloudpickle.dumps(spec)
    except Exception:
        return None
    return spec


class _Worker:
    def __init__(
        self, sock: socket.socket, instances: Instances, attach: dict[str, Any], fd: int
    ) -> None:
        self._socket, self._instances = sock, instances
        memory, plan, overflow = mmap.mmap(fd, attach["bytes"]), attach["plan"], Overflow(fd)
        channel = WorkerChannel(memory, overflow=overflow, **attach["channel"])
        self._channel = channel
        self._reports: list[tuple[int, str, str]] = []
        self._flags = attach["recover"]  # whether rows will be flagged as restarted
        instances.attach(
            plan,
            Arrays.over(plan, memory, overflow),
            time_limit=attach["time_limit"],
            validate=attach["validate"],
            report=lambda *report: self._reports.append(report),
            current=channel.current if attach["watched"] else None,
            own_process=True,
        )
        _attempt(perform, instances, "options", (), attach["options"])
        _keep_copies_out(memory, fd)
        if attach["recover"]:
            instances.recover()
        self._skip = attach["skip"]  # earlier requests were for the process that this one replaces
        self._pid = os.getpid()
        self._is_alone = False  # until it is known
        # Exempts everything made so far from garbage collection.
        gc.collect()
        gc.freeze()

    def run(self) -> None:
        channel, instances, first = self._channel, self._instances, self._instances.first
        step_all, step_one = instances.step_all, instances.step_one
        what, steps = channel.next(), 0
        while True:
            op, buffer = what >> 29, what >> 28 & 1
            if op == STEP_ALL:
                channel.note(buffer, step_all(buffer))
                steps += 1
                if not steps & (steps - 1):  # at powers of two
                    self._detect_threads(steps)
            elif op == STEP:
                step_one(buffer, (what & 0x0FFFFFFF) - first)
            elif op == RESET:
                instances.reset_rows(buffer, ((what & 0x0FFFFFFF) - first,))
            elif op == RESET_ALL:
                channel.note(buffer, instances.reset_rows(buffer))
            elif op == MESSAGE:
                if not channel.is_before(self._skip):
                    packed, _ = receive_packed(self._socket)
                    send(self._socket, _performed(instances, packed))
            else:
                with contextlib.suppress(OSError):  # the caller may have stopped waiting
                    send(self._socket, perform(instances, "close"))
                return
            if os.getpid() != self._pid:  # an environment forked, and this is the child
                os._exit(0)
            if self._reports or self._flags:
                self._deliver()
            what = channel.finish_and_next()

    def _detect_threads(self, steps: int) -> None:
        """Detects whether environments compute in other threads than this one."""
        times = time.process_time(), time.thread_time()
        if steps == 1:
            self._times = times
        elif steps >= _ENOUGH_STEPS:
            every, mine = (now - then for now, then in zip(times, self._times, strict=True))
            is_alone = every < 1.1 * mine + 1e-3
            if is_alone != self._is_alone:
                self._is_alone = is_alone
                self._channel.set_alone(is_alone)

    def _deliver(self) -> None:
        """Sends reports to the caller. Those without room are sent later."""
        if self._flags:
            self._flags = self._instances.is_recovering
            self._channel.call_attention()
        reports = self._reports
        while reports:
            instance, what, text = reports[0]
            tail = encoded(text.replace("\0", ""))
            if len(tail) > _REPORT_SIZE:  # the end of a traceback says most
                tail = b"...\n" + tail[-_REPORT_SIZE:]
            if not self._channel.report(f"{instance}\n{what}\n".encode() + tail + b"\0"):
                break
            del reports[0]


def perform(instances: Instances, kind: str, *what: Any) -> Any:
    """Serves a message; returns ("ok", value) or ("error", instance, traceback)."""
    if kind == "close":
        failed = instances.close()
        return ("error", *failed) if failed else ("ok", None)
    rows, *rest = what
    if kind == "options":
        (packed,) = rest
        instances.options = None if packed is None else cloudpickle.loads(packed)
        return "ok", None
    values = []
    for i, row in enumerate(rows):
        if kind == "call":
            outcome = _attempt(instances.call, row, *rest)
        else:
            outcome = _attempt(instances.set_attr, row, rest[0], rest[1][i])
        if outcome[0] == "error":
            return "error", instances.first + row, outcome[1]
        values.append(outcome[1])
    return "ok", values


def _performed(instances: Instances, packed: bytes) -> Any:
    """Serves a pickled message, which this process may be unable to unpickle."""
    try:
        kind, *what = cloudpickle.loads(packed)
        return perform(instances, kind, *what)
    except BaseException as error:
        return "error", instances.first, "".join(traceback.format_exception(error))


def _attempt(function: Any, *args: Any) -> tuple[str, Any]:
    try:
        value = function(*args)
        cloudpickle.dumps(value)  # a value that cannot be pickled is an error too
    except BaseException as error:
        return "error", "".join(traceback.format_exception(error))
    return "ok", value


def _keep_copies_out(memory: Any, fd: int) -> None:
    """Maps the memory privately in a process that an environment forks, so it cannot answer."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype, size_t = ctypes.c_void_p, ctypes.c_size_t
    libc.mmap.argtypes = (ctypes.c_void_p, size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protection, private = mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | _MAP_FIXED
    what = (address, len(memory), protection, private, fd, 0)
    os.register_at_fork(after_in_child=lambda: libc.mmap(*what))


def _end_with_caller(sock: socket.socket, pidfd: int | None) -> None:
    """Makes this process end with the caller, however that ends."""
    if pidfd is not None and not pool_library().jaxenvs_end_with(pidfd):
        return

    def watch() -> None:
        poll = select.poll()
        poll.register(sock.fileno(), select.POLLHUP)
        poll.poll()
        with contextlib.suppress(OSError):
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
