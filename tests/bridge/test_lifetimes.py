"""Nothing is left of a pool, however it ends: processes, threads, descriptors, memory."""

import errno
import gc
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from jaxenvs.bridge.workers import wire
from jaxenvs.bridge.workers.fork_server import fork_server
from jaxenvs.errors import ClosedError, PoolError, WorkerError
from tests.bridge.conftest import (
    WITHOUT_FUTEX,
    in_processes,
    make,
    wait_until,
    with_and_without_futex,
    zeros,
)
from tests.bridge.envs import Counter, Misbehaving, counters, tell, wait_until_told
from tests.ids import diagonal, every_nth

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")

BACKENDS = ["process", WITHOUT_FUTEX]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 15.0  # seconds, far more than anything here takes


def is_gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def census():
    """What this process holds: descendants, threads, descriptors, memory of pools."""
    me = psutil.Process()
    with open("/proc/self/maps") as maps:
        segments = sum("jaxenvs-pool" in line for line in maps)
    return {
        "processes": len(me.children(recursive=True)),
        "threads": threading.active_count(),
        "descriptors": me.num_fds(),
        "segments": segments,
    }


# --- closed, collected, never made ---


def _cycle(backend, i):
    with make(counters(2), backend, batch_size=1 + i % 2) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        if i % 3 == 0:
            pool.step_async(zeros(pool)) if pool.batch_size == 2 else pool.send(zeros(pool))


@pytest.mark.parametrize(
    ("backend", "cycles"), [("process", 100), (WITHOUT_FUTEX, 10)], indirect=["backend"]
)
@pytest.mark.slow
def test_cycles_of_making_and_closing_leave_nothing(backend, cycles):
    _cycle(backend, 0)  # starts the process that workers are forked from
    gc.collect()
    before = census()
    for i in range(cycles):
        _cycle(backend, i)
    gc.collect()
    assert census() == before
    assert before["processes"] >= 1


def test_a_closed_pool_gives_its_memory_back_at_once(backend):
    gc.collect()
    gc.disable()
    try:
        before = census()["segments"]
        pool = make(counters(2), backend)
        observation = pool.reset(seed=0)[0].copy()
        pool.close()
        del pool
        assert census()["segments"] == before and observation.shape == (2, 3)
    finally:
        gc.enable()


@with_and_without_futex
def test_a_pool_that_is_forgotten_is_closed(backend):
    _cycle(backend, 0)
    gc.collect()
    before = census()
    pool = make(counters(2), backend)
    pool.reset(seed=0)
    pids = pool.call("process")
    pool.step_async(zeros(pool))
    del pool
    gc.collect()
    wait_until(lambda: all(map(is_gone, pids)))
    wait_until(lambda: census() == before)


@in_processes
def test_a_pool_that_could_not_be_made_leaves_nothing(backend, marker):
    _cycle(backend, 0)
    gc.collect()
    before = census()
    with pytest.raises(WorkerError):
        make([*counters(1), lambda: Misbehaving("raises", marker, where="init")], backend)
    gc.collect()
    assert census() == before


def test_pool_refused_its_memory_leaves_nothing(monkeypatch):
    _cycle("process", 0)
    gc.collect()
    before = census()
    calls = []

    def fails(*args, **kwargs):
        calls.append(args)
        raise OSError(errno.ENOMEM, "there are no more")

    with monkeypatch.context() as patch:
        patch.setattr(mmap, "mmap", fails)
        with pytest.raises(PoolError, match="no more") as caught:
            make(counters(3), "process", num_workers=3)
        del caught
    gc.collect()
    assert len(calls) == 1
    wait_until(lambda: census() == before)


@in_processes
def test_a_replaced_worker_leaves_nothing(backend, marker):
    _cycle(backend, 0)
    gc.collect()
    before = census()
    with make([*counters(1), lambda: Misbehaving("is_killed", marker, at=1)], backend) as pool:
        pool.reset(seed=0)
        assert pool.step(zeros(pool))[4]["restarted"].tolist() == [False, True]
    del pool
    gc.collect()
    assert census() == before


class _Starts(Counter):
    """Starts a program of its own, as environments of simulators do, and never ends it."""

    def reset(self, **kwargs):
        self.child = subprocess.Popen(["sleep", "60"]).pid
        return super().reset(**kwargs)


@in_processes
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_child_processes_of_environments_end_with_their_worker(backend, how):
    with make([_Starts], backend) as pool:
        pool.reset(seed=0)
        (child,) = pool.call("child")
        assert not is_gone(child)
        if how == "killed":
            os.kill(pool.call("process")[0], signal.SIGKILL)
            pool.step(zeros(pool))
    wait_until(lambda: is_gone(child))


class _Counts(Counter):
    """Knows how many objects the garbage collector left out when it was made, and how many not."""

    def __init__(self):
        super().__init__()
        self.objects = gc.get_freeze_count(), len(gc.get_objects())


def test_a_workers_collector_leaves_out_what_workers_share():
    with make([_Counts], "process") as pool:
        ((left_out, visited),) = pool.get_attr("objects")
        assert left_out > 10 * visited


@in_processes
def test_pools_outlive_the_process_their_workers_forked_from(backend):
    with make(counters(2), backend) as pool:
        pool.reset(seed=0)
        os.kill(fork_server._process.pid, signal.SIGKILL)
        fork_server._process.wait()
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)
        os.kill(pool.call("process")[0], signal.SIGKILL)  # its successor comes from another one
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], [0, 2])
        pids = pool.call("process")
    assert all(map(is_gone, pids))
    _cycle(backend, 0)


def test_a_pool_may_be_collected_while_a_worker_is_started(monkeypatch):
    other = make(counters(2), "process")
    pids, sent = other.call("process"), []

    def collecting(*args):
        if not sent:  # what the garbage collector may do anywhere
            sent.append(True)
            other._backend.close(1.0)
        return wire.send(*args)

    monkeypatch.setattr("jaxenvs.bridge.workers.fork_server.send", collecting)
    with make(counters(2), "process") as pool:
        pool.reset(seed=0)
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)
        wait_until(lambda: all(map(is_gone, pids)))
    other.close()


def test_a_fork_while_a_worker_is_started_can_make_pools():
    caller = Caller(
        """
        import threading
        pool = pool_of("step")
        print(fork_server._process.pid, *pool.call("process"), flush=True)
        is_starting, may_end = threading.Event(), threading.Event()

        def start():
            with fork_server._lock:  # as in the middle of a request
                is_starting.set()
                may_end.wait()

        thread = threading.Thread(target=start)
        thread.start()
        is_starting.wait()
        pid = os.fork()
        if pid == 0:
            with pool_of("step") as own:
                assert own.step(np.zeros(2, int))[1].tolist() == [1, 1]
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        may_end.set()
        thread.join()
        pool.close()
        """
    )
    caller.pids()
    status, errors = caller.end()
    assert status == 0 and "Traceback" not in errors


def test_processes_warn_of_nothing_that_was_left_open(monkeypatch):
    monkeypatch.setenv("PYTHONDEVMODE", "1")  # also of the process that workers are forked from
    caller = Caller(
        """
        pool = pool_of("step")
        print(fork_server._process.pid, *pool.call("process"), flush=True)
        os.kill(fork_server._process.pid, 9)
        other = pool_of("step")  # whose workers come from another process
        pid = os.fork()
        if pid == 0:
            pool_of("step").close()
            sys.exit()
        assert os.waitpid(pid, 0)[1] == 0
        """
    )
    caller.pids()
    status, errors = caller.end()
    assert status == 0 and "ResourceWarning" not in errors


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_of_the_caller_cannot_use_its_pool_nor_close_it(backend):
    with make(counters(2), backend) as pool:
        pool.reset(seed=0)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                if backend == "serial":  # which the child has a copy of
                    pool.step(zeros(pool))
                else:
                    with pytest.raises(ClosedError, match="forked from"):
                        pool.step(zeros(pool))
                pool.close()
                del pool
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)


# --- Ctrl-C ---


def _interrupt_when(marker, waits_in):
    """Ctrl-C for this thread as soon as an environment hangs, and this thread waits for it.

    The environment goes on a moment later.
    """
    me = threading.get_ident()

    def is_waiting():
        frame, names = sys._current_frames()[me], []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        return os.path.exists(marker) and waits_in in names

    def run():
        wait_until(is_waiting)
        signal.pthread_kill(me, signal.SIGINT)
        time.sleep(0.3)
        tell(marker)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _hanging_once(marker):
    def hang(env):
        if not os.path.exists(marker):
            with open(marker, "w"):
                pass
            wait_until_told(marker)

    class Hangs(Counter):
        def step(self, action):
            if action == 1:
                hang(self)
            return super().step(action)

        def render(self):
            hang(self)
            return super().render()

    return Hangs


@pytest.mark.parametrize("backend", ["serial", "process"], indirect=True)
def test_ctrl_c_ends_make_pool_while_a_constructor_hangs(backend, marker):
    thread = _interrupt_when(marker, "make_pool")
    with pytest.raises(KeyboardInterrupt):
        make([*counters(1), lambda: Misbehaving("hangs", marker, where="init")], backend)
    thread.join()


@pytest.mark.parametrize("how", every_nth(4, ["recv", "step", "step_wait", "some"]))
def test_after_ctrl_c_a_pool_goes_on_with_a_reset(backend, how, marker):
    with make([*counters(1), _hanging_once(marker)], backend, batch_size=1) as pool:
        pool.reset(seed=0)
        actions = np.array([0, 1])
        if how == "step_wait":
            pool.step_async(actions)
        elif how == "recv":
            pool.send(actions[1:], [1])
        call = {
            "step": lambda: pool.step(actions),
            "some": lambda: pool.step(actions[::-1], [1, 0]),
        }.get(how) or getattr(pool, how)
        thread = _interrupt_when(marker, "step" if how == "some" else how)
        with pytest.raises(KeyboardInterrupt):
            call()
        pool.reset(seed=3)
        thread.join()
        observation, reward, *_, info = pool.step(zeros(pool))
        np.testing.assert_array_equal(observation[:, 2], 1)
        assert not info["restarted"].any() and reward.tolist() == [1, 1]
        pool.send(zeros(pool))
        assert {int(pool.recv()[4]["env_id"][0]) for _ in range(2)} == {0, 1}


@with_and_without_futex
def test_ctrl_c_that_another_thread_receives_ends_a_wait(backend, marker):
    ended, in_time = threading.Event(), []

    def interrupt():
        wait_until(lambda: os.path.exists(marker))
        time.sleep(0.05)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        in_time.append(ended.wait(PATIENCE))
        tell(marker)

    with make([*counters(1), _hanging_once(marker)], backend) as pool:
        pool.reset(seed=0)
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            pool.step(np.array([0, 1]))
        ended.set()
        thread.join()
    assert in_time == [True]


@in_processes
def test_ctrl_c_in_a_call_does_not_mix_up_the_answers_to_others(backend, marker):
    with make([*counters(1), _hanging_once(marker)], backend) as pool:
        pool.reset(seed=0)
        thread = _interrupt_when(marker, "render")
        with pytest.raises(KeyboardInterrupt):
            pool.render()
        assert pool.call("count") == (0, 0)
        thread.join()
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)


@in_processes
def test_ctrl_c_during_an_answer_does_not_garble_the_next(backend, monkeypatch):
    def cut(sock):
        sock.recv(3)
        raise KeyboardInterrupt

    with make(counters(2), backend) as pool:
        pool.reset(seed=0)
        with monkeypatch.context() as patch:
            patch.setattr("jaxenvs.bridge.backends.worker_process.receive_packed", cut)
            with pytest.raises(KeyboardInterrupt):
                pool.call("count")
        *_, info = pool.step(zeros(pool))
        assert info["restarted"].any()
        assert [count in (0, 1) for count in pool.call("count")] == [True, True]


def _cut_after(pool, name, monkeypatch):
    """Has Ctrl-C come just after the backend did what a method of it does."""
    method = getattr(pool._backend, name)

    def cut(*args):
        method(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(pool._backend, name, cut)


@pytest.mark.parametrize("how", ["send", "step_async", "recv"])
def test_requests_begun_before_ctrl_c_are_never_received(backend, how, monkeypatch):
    with make(counters(4, length=100), backend, batch_size=2) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        begin, cut = pool.send, {"send": "start_some", "step_async": "start_all"}.get(how)
        if how == "step_async":
            begin = pool.step_async
        elif how == "recv":
            pool.send(zeros(pool))
            begin, cut = lambda _: pool.recv(), "take"
        with monkeypatch.context() as patch:
            _cut_after(pool, cut, patch)
            with pytest.raises(KeyboardInterrupt):
                begin(zeros(pool))
        time.sleep(0.02)  # some of it is finished, and nobody looked
        for again in range(2):
            pool.async_reset(seed=0)
            seen = []
            while pool.num_pending:
                observation, *_, info = pool.recv()
                np.testing.assert_array_equal(observation[:, 2], 0, err_msg=str(again))
                seen += info["env_id"].tolist()
            assert sorted(seen) == [0, 1, 2, 3]


@in_processes
def test_options_cut_off_by_ctrl_c_arrive_with_the_next_reset(backend, monkeypatch):
    with make(counters(2), backend) as pool:
        pool.reset(options={"level": 1})
        tell = pool._backend._send_message

        def cut(process, *message):
            if process.number == 1:
                raise KeyboardInterrupt
            return tell(process, *message)

        with monkeypatch.context() as patch:
            patch.setattr(pool._backend, "_send_message", cut)
            with pytest.raises(KeyboardInterrupt):
                pool.reset(options={"level": 2})
        for level in (2, 1):
            pool.reset(options={"level": level})
            assert pool.get_attr("options") == ({"level": level},) * 2


# --- callers that end ---


class Caller:
    """A program that makes a pool, and says which processes there are."""

    def __init__(self, source, pool_library=""):
        program = textwrap.dedent(_PROLOGUE) + textwrap.dedent(source)
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, pool_library],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pids(self):
        """The processes of the pool, once an environment is at work."""
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return [int(pid) for pid in line.split()]

    def end(self):
        try:
            _, errors = self.process.communicate(timeout=PATIENCE)
        finally:
            self.process.kill()
        return self.process.returncode, errors


_PROLOGUE = """
    import os, sys, time
    import numpy as np
    import jaxenvs
    from jaxenvs.bridge.native.libraries import use_pool
    from jaxenvs.bridge.workers.fork_server import fork_server
    from tests.bridge.envs import Counter

    if sys.argv[1]:
        use_pool(sys.argv[1])

    class Works(Counter):
        def __init__(self, what):
            super().__init__()
            self.what = what

        def step(self, action):
            if self.what != "step":
                os.write(1, b"at work")  # the output of the caller
            if self.what == "sleeps":
                time.sleep(60)
            elif self.what == "computes":
                while True:
                    pass
            elif self.what == "holds the lock":
                sum(range(10**13))
            return super().step(action)

    def pool_of(what, **kwargs):
        pool = jaxenvs.make_pool([lambda: Works(what)] * 2, backend="process", num_workers=2,
                                 **kwargs)
        pool.reset(seed=0)
        return pool
"""


@pytest.mark.parametrize(
    ("what", "backend", "signal_"),
    [
        *diagonal(["step", "sleeps", "computes", "holds the lock"], BACKENDS, [signal.SIGKILL]),
        *every_nth(2, [("computes", backend, signal.SIGTERM) for backend in BACKENDS]),
    ],
)
def test_a_killed_caller_leaves_no_process(what, backend, signal_, pool_without_futex):
    caller = Caller(
        f"""
        pool = pool_of({what!r})
        print(fork_server._process.pid, *pool.call("process"), flush=True)
        if {what!r} == "step":
            print("at work", flush=True)
            while True:
                pool.step(np.zeros(2, int))
        pool.send(np.zeros(2, int))
        pool.recv()
        """,
        pool_library=pool_without_futex if backend == WITHOUT_FUTEX else "",
    )
    pids = caller.pids()
    assert caller.process.stdout.read(2)  # they are in their step
    assert not any(map(is_gone, pids))
    caller.process.send_signal(signal_)
    assert caller.end()[0] == -signal_
    wait_until(lambda: all(map(is_gone, pids)))


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only a pidfd shows its end")
def test_fork_of_a_killed_caller_keeps_no_other_process_alive():
    caller = Caller(
        """
        pool = pool_of("step")
        other = os.fork()
        if not other:
            time.sleep(60)
            os._exit(0)
        print(fork_server._process.pid, *pool.call("process"), other, flush=True)
        time.sleep(60)
        """
    )
    *pids, other = caller.pids()
    caller.process.kill()
    try:
        wait_until(lambda: all(map(is_gone, pids)))
    finally:
        os.kill(other, signal.SIGKILL)
    assert caller.end()[0] == -signal.SIGKILL


@pytest.mark.parametrize(("how", "backend"), diagonal(["step", "recv", "reset"], BACKENDS))
def test_ctrl_c_ends_a_caller_and_its_workers(how, backend, pool_without_futex):
    caller = Caller(
        f"""
        with pool_of("step") as pool:
            print(fork_server._process.pid, *pool.call("process"), flush=True)
            pool.set_attr("seconds", 0.01)
            print("at work", flush=True)
            while True:
                if {how!r} == "step":
                    pool.step(np.zeros(2, int))
                elif {how!r} == "recv":
                    pool.send(np.zeros(2, int))
                    pool.recv()
                else:
                    pool.reset()
        """,
        pool_library=pool_without_futex if backend == WITHOUT_FUTEX else "",
    )
    pids = caller.pids()
    assert caller.process.stdout.readline() == "at work\n"
    caller.process.send_signal(signal.SIGINT)
    status, errors = caller.end()
    assert status == -signal.SIGINT and "KeyboardInterrupt" in errors
    assert errors.count("Traceback") == 1  # workers have nothing to say
    wait_until(lambda: all(map(is_gone, pids)))


@pytest.mark.parametrize("ending", ["pass", "raise SystemExit(3)", "os._exit(4)", "1 / 0"])
def test_a_caller_may_end_without_closing(ending):
    caller = Caller(
        f"""
        pool = pool_of("step", timeout=1)
        pool.step_async(np.zeros(2, int))
        pool.step_wait()
        print(fork_server._process.pid, *pool.call("process"), flush=True)
        {ending}
        """
    )
    pids = caller.pids()
    status, errors = caller.end()
    assert status == {"pass": 0, "1 / 0": 1}.get(ending, int(ending[-2]) if ")" in ending else 0)
    assert "ZeroDivisionError" in errors if ending == "1 / 0" else not errors
    wait_until(lambda: all(map(is_gone, pids)))


def test_fork_that_exits_leaves_the_pool_to_its_parent():
    caller = Caller(
        """
        import sys
        with pool_of("step") as pool:
            print(fork_server._process.pid, *pool.call("process"), flush=True)
            pid = os.fork()
            if pid == 0:
                sys.exit(0)  # with all that happens at an exit
            assert os.waitpid(pid, 0)[1] == 0
            assert pool.step(np.zeros(2, int))[1].tolist() == [1, 1]
        """
    )
    pids = caller.pids()
    status, errors = caller.end()
    assert status == 0 and "Traceback" not in errors
    wait_until(lambda: all(map(is_gone, pids)))
