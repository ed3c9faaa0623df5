"""Environments and processes that fail, and callers that ask for what cannot be."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings

import gymnasium
import numpy as np
import psutil
import pytest
from gymnasium import spaces

import jaxenvs
from jaxenvs.bridge.memory import segment as _segment
from jaxenvs.bridge.workers import wire as _wire
from jaxenvs.errors import (
    ActionError,
    AlreadyPendingError,
    ClosedError,
    EnvIdError,
    EnvTimeoutError,
    NothingPendingError,
    PoolError,
    SeedError,
    WorkerError,
)
from tests.bridge.conftest import (
    WITHOUT_FUTEX,
    in_processes,
    make,
    with_and_without_futex,
    with_any_backend,
    zeros,
)
from tests.bridge.envs import Composite, Counter, Misbehaving, counters, tell


def with_one(what, marker, *, where="step", at=2, n=4, one=1):
    """Counters, and in place of one of them an environment that misbehaves."""
    fns = counters(n)
    fns[one] = lambda: Misbehaving(what, marker, where=where, at=at)
    return fns


# --- processes that die ---


@in_processes
@pytest.mark.parametrize("what", ["is_killed", "exits_at_once"])
@pytest.mark.parametrize("on_failure", ["raise", "restart"])
def test_dead_worker_is_replaced_and_others_keep_their_results(
    backend, what, on_failure, marker, caplog
):
    with make(with_one(what, marker), backend, on_failure=on_failure) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        with caplog.at_level(logging.WARNING, "jaxenvs"):
            observation, reward, terminated, truncated, info = pool.step(zeros(pool))
            end = time.monotonic() + 10
            named = "environments [0, 1]"
            while named not in caplog.text and time.monotonic() < end:  # a thread says it later
                time.sleep(0.01)
        np.testing.assert_array_equal(observation[:, 2], [0, 0, 2, 2])
        np.testing.assert_array_equal(observation[2:, 1], [1, 1])  # still their first episode
        np.testing.assert_array_equal(reward, [0, 0, 2, 2])
        np.testing.assert_array_equal(truncated, [True, True, False, False])
        np.testing.assert_array_equal(info["restarted"], [True, True, False, False])
        np.testing.assert_array_equal(info["elapsed_step"], [0, 0, 2, 2])
        assert not terminated.any()
        how = "SIGKILL" if what == "is_killed" else "status 3"
        assert how in caplog.text and named in caplog.text
        observation, _, _, truncated, info = pool.step(zeros(pool))
        np.testing.assert_array_equal(observation[:, 2], [1, 1, 3, 3])
        assert not truncated.any() and not info["restarted"].any()
        assert pool.call("process")[0] == pool.call("process")[1] != pool.call("process")[2]


@with_and_without_futex
def test_a_dead_worker_is_replaced_under_send_and_recv(backend, marker):
    with make(with_one("is_killed", marker), backend, batch_size=2) as pool:
        pool.async_reset(seed=0)
        seen = {}
        while len(seen.get(1, ())) < 5:  # the other worker goes on meanwhile
            _, _, _, truncated, info = pool.recv()
            np.testing.assert_array_equal(truncated, info["restarted"])
            for number, restarted in zip(info["env_id"], info["restarted"], strict=True):
                seen.setdefault(int(number), []).append(bool(restarted))
            pool.send(zeros(pool, 2), info["env_id"])
        assert seen[1] == [False, False, True, False, False]  # reset, one step, the fatal one
        assert sum(seen[0]) == 1 and not sum([*seen.get(2, ()), *seen.get(3, ())])


@in_processes
@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
def test_a_worker_that_dies_in_a_reset_is_replaced(backend, mode, marker):
    fns = with_one("is_killed", marker, where="reset")
    with make(fns, backend, autoreset_mode=mode) as pool:
        pool.reset(seed=0)
        observation, info = pool.reset(seed=1)
        np.testing.assert_array_equal(observation[:, 2], 0)
        np.testing.assert_array_equal(info["restarted"], [True, True, False, False])
        assert info["seed"].tolist() == [1, 2, 3, 4]  # what it was asked for is done by the new one
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)


@with_and_without_futex
def test_a_worker_killed_while_idle_is_replaced(backend):
    with make(counters(4), backend) as pool:
        pool.reset(seed=0)
        victim = pool.call("process")[3]
        os.kill(victim, signal.SIGKILL)
        observation, _, _, truncated, info = pool.step(zeros(pool))
        np.testing.assert_array_equal(observation[:, 2], [1, 1, 0, 0])
        np.testing.assert_array_equal(truncated, info["restarted"])
        np.testing.assert_array_equal(truncated, [False, False, True, True])


@with_and_without_futex
def test_a_worker_that_dies_in_a_call_is_an_error_of_that_call(backend, marker):
    with make(with_one("exits_at_once", marker, where="render"), backend) as pool:
        pool.reset(seed=0)
        with pytest.raises(WorkerError, match="render"):
            pool.render()
        np.testing.assert_array_equal(
            pool.step(zeros(pool))[4]["restarted"], [True, True, False, False]
        )
        assert len(pool.render()) == 4


def _dies_in_every_reset():
    env = Counter()
    env.reset = lambda **_: os._exit(4)
    return env


def _fails_to_arrive():
    raise ImportError("what only the worker has")


class _Odd:
    def __reduce__(self):
        return _fails_to_arrive, ()


class _AnswersOddly(Counter):
    """One of its answers can be pickled, and raises when it is unpickled."""

    def odd(self):
        return _Odd()


@in_processes
def test_call_answer_that_fails_to_unpickle_fails_that_call_only(backend):
    with make([*counters(1), *[lambda: _AnswersOddly(number=1)] * 3], backend) as pool:
        pool.reset(seed=0)
        pool.send(zeros(pool, 1), [1])
        for _ in range(2):
            with pytest.raises(WorkerError, match="odd: its answer cannot") as caught:
                pool.call("odd", env_ids=[3])
            assert caught.value.env_ids == (3,)
        assert pool.recv()[4]["env_id"].tolist() == [1]
        assert pool.get_attr("number") == (0, 1, 1, 1)
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], [1, 2, 1, 1])


def test_descriptors_of_message_failing_to_unpickle_are_closed():
    ours, theirs = socket.socketpair()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    with ours, theirs:
        _wire.send(theirs, _Odd(), (writing,))
        os.close(writing)
        with pytest.raises(ImportError):
            _wire.receive(ours)
    assert os.read(reading, 1) == b""  # nobody can write to it any more
    os.close(reading)


@pytest.mark.parametrize(
    ("backend", "on_failure"),
    [("process", "raise"), ("process", "restart"), (WITHOUT_FUTEX, "restart")],
    indirect=["backend"],
)
def test_a_worker_that_dies_again_and_again_is_given_up(backend, on_failure, monkeypatch):
    fns = [*counters(1), _dies_in_every_reset]
    pool = make(fns, backend, on_failure=on_failure)
    words = r"failed in step or reset: process \d+ .* could not be replaced: it died 3 times"
    with pytest.raises(WorkerError, match=words) as caught:
        pool.reset(seed=0)
    assert caught.value.env_ids == (1,) and "traceback" not in str(caught.value)
    for use in (lambda: pool.step(zeros(pool)), pool.reset, lambda: pool.call("process")):
        with pytest.raises(WorkerError, match="cannot continue"):
            use()
    # Nor is its number used again, which may be that of another process by now.
    gone = pool._backend.pids[1]
    assert not psutil.pid_exists(gone)
    ended = []
    monkeypatch.setattr(os, "kill", lambda pid, number: ended.append(pid))
    monkeypatch.setattr(os, "killpg", os.kill)
    pool.close()
    assert gone not in ended and ended


@in_processes
def test_deaths_of_an_idle_worker_do_not_end_the_pool(backend):
    with make(counters(4), backend, on_failure="restart") as pool:
        pool.reset(seed=0)
        for _ in range(4):
            victim = pool.call("process")[3]
            os.kill(victim, signal.SIGKILL)
            while pool._backend.pids[1] == victim or pool._backend._processes[1].reviving:
                time.sleep(0.01)
        observation, _, _, truncated, info = pool.step(zeros(pool))
        np.testing.assert_array_equal(observation[:, 2], [1, 1, 0, 0])
        np.testing.assert_array_equal(truncated, [False, False, True, True])
        np.testing.assert_array_equal(info["restarted"], truncated)


def _raises_when_made_again(marker):
    if os.path.exists(marker):
        with open(marker, "a") as file:
            file.write("again\n")
        raise ValueError("only once")
    return Misbehaving("is_killed", marker, at=1)


@in_processes
def test_replacement_with_failing_constructor_is_not_retried(backend, marker):
    fns = [*counters(1), lambda: _raises_when_made_again(marker)]
    pool = make(fns, backend, on_failure="restart")
    pool.reset(seed=0)
    with pytest.raises(WorkerError, match="could not be replaced"):
        pool.step(zeros(pool))
    time.sleep(0.3)
    with open(marker) as file:
        assert file.read().count("again") == 1
    pool.close()


def _hangs_when_made_again(marker):
    if os.path.exists(marker):
        time.sleep(1000)
    return Misbehaving("is_killed", marker, at=2)


@in_processes
def test_a_replacement_that_hangs_in_its_constructor_is_given_up(backend, marker, monkeypatch):
    fns = [*counters(1), lambda: _hangs_when_made_again(marker)]
    pool = make(fns, backend, on_failure="restart", timeout=0.3)
    pool.reset(seed=0)
    pool.step(zeros(pool))
    pool._backend.timeout = 0.02  # of messages; a constructor has ten times as long
    process, started = pool._backend._processes[1], []
    start, seconds = process.start, 10 * (process.made_in + 0.02)
    monkeypatch.setattr(process, "start", lambda: started.append(1) or start())
    with pytest.raises(WorkerError, match=rf"not constructed within {seconds:.3g} s"):
        pool.step(zeros(pool))
    assert len(started) == 3
    pool.close()


@pytest.mark.parametrize("on_failure", ["raise", "restart"])
def test_a_method_that_hangs_is_a_timeout(backend, on_failure, marker):
    if backend == "serial":
        pytest.skip("a timeout needs a worker")
    fns = with_one("hangs_until_told", marker, where="render")
    with make(fns, backend, timeout=0.3, on_failure=on_failure) as pool:
        pool.reset(seed=0)
        with pytest.raises(EnvTimeoutError, match=r"did not answer within 0.3 s") as caught:
            pool.render()
        assert 1 in caught.value.env_ids
        if on_failure == "restart" and backend != "asyncio":
            restarted = pool.step(zeros(pool))[4]["restarted"]
            assert restarted[1] and not restarted[3]
        begin = time.monotonic()
        pool.close(grace=0.5)
        assert time.monotonic() - begin < 4
    tell(marker)
    end = time.monotonic() + 10
    while any(thread.name.startswith("jaxenvs-pool") for thread in threading.enumerate()):
        assert time.monotonic() < end, threading.enumerate()
        time.sleep(0.05)


LIMITED = """
import resource, jaxenvs
from tests.bridge.envs import Counter
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
try:
    jaxenvs.make_pool(Counter, 40, num_workers=40)
except jaxenvs.errors.PoolError as error:
    print(str(error)[:35])
resource.setrlimit(resource.RLIMIT_NOFILE, (48, 48))
with jaxenvs.make_pool(Counter, 2, num_workers=1) as pool:
    print(len(pool.reset()[0]))
"""


def test_too_few_descriptors_are_an_error_that_says_so():
    found = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60
    )
    assert found.stdout == "this process has too many open file\n2\n", found.stderr


# --- exceptions ---


class _Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class _RaisesOddly(Counter):
    def __init__(self, number=0, error=None):
        super().__init__(number=number)
        self.error = error

    def step(self, action):
        if self.error is not None and self.count == 1:
            raise self.error
        return super().step(action)


@pytest.mark.parametrize("error", [_Unprintable(), ValueError("bad \udcff surrogate")])
def test_exception_without_text_fails_its_environment_only(backend, error):
    fns = [*counters(3), lambda: _RaisesOddly(3, error)]
    with make(fns, backend) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        with pytest.raises(WorkerError, match="failed in step") as caught:
            pool.step(zeros(pool))
        assert caught.value.env_ids == (3,)
        observation, *_, info = pool.step(zeros(pool))
        np.testing.assert_array_equal(observation[:, 2], [3, 3, 3, 1])
        np.testing.assert_array_equal(info["restarted"], [False, False, False, True])


class _Unreadable:
    def __reduce__(self):
        return _fails_to_arrive, ()


class _OddInfo(Counter):
    def __init__(self, number, info):
        super().__init__(number=number)
        self.info = info

    def step(self, action):
        result = super().step(action)
        return (*result[:4], self.info)


def _recursive():
    info = {"count": 1}
    info["itself"] = info
    return info


def test_an_info_that_is_no_dict_is_an_error_of_its_environment(backend):
    with make([*counters(3), lambda: _OddInfo(3, [1, 2])], backend) as pool:
        pool.reset(seed=0)
        with pytest.raises(WorkerError, match=r"info is \[1, 2\]; expected a dict") as caught:
            pool.step(zeros(pool))
        assert caught.value.env_ids == (3,)
        assert pool.call("episode")[:3] == (1, 1, 1)


def test_info_that_contains_itself_is_accepted(backend):
    with make([*counters(3), lambda: _OddInfo(3, _recursive())], backend) as pool:
        pool.reset(seed=0)
        info = pool.step(zeros(pool))[4]
        np.testing.assert_array_equal(info["count"], [1, 1, 1, 1])
        assert info["itself"]["_count"].tolist() == [False, False, False, True]


def test_an_info_may_be_none(backend):
    with make([*counters(3), lambda: _OddInfo(3, None)], backend) as pool:
        pool.reset(seed=0)
        observation, *_, info = pool.step(zeros(pool))
        np.testing.assert_array_equal(observation[:, 2], 1)
        assert info["_count"].tolist() == [True, True, True, False]


@in_processes
def test_an_info_that_cannot_be_unpickled_is_left_out(backend, caplog):
    with make([*counters(3), lambda: _OddInfo(3, {"odd": _Unreadable()})], backend) as pool:
        pool.reset(seed=0)
        for _ in range(2):
            with caplog.at_level(logging.WARNING, "jaxenvs"):
                observation, *_, info = pool.step(zeros(pool))
            assert "info of environment 3" in caplog.text and "odd" not in info
            np.testing.assert_array_equal(info["_count"], [True, True, True, False])
        np.testing.assert_array_equal(observation[:, 2], 2)


SCRIPT = """
import enum, gymnasium, numpy as np, jaxenvs
class Color(enum.Enum):
    RED = 1
class Env(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {}
    def step(self, action):
        return 0, 0.0, False, False, {"color": Color.RED}
with jaxenvs.make_pool(Env, 1, backend="process", num_workers=1) as pool:
    pool.reset()
    print(pool.step(np.zeros(1, int))[4]["color"][0] is Color.RED)
"""


def test_infos_may_have_classes_that_the_script_defines():
    run = [sys.executable, "-c", SCRIPT]
    found = subprocess.run(run, capture_output=True, text=True, timeout=60)
    assert found.stdout == "True\n", found.stderr


@pytest.mark.parametrize("what", ["raises", "exits"])
@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize("on_failure", ["raise", "restart"])
def test_exception_names_its_environment_and_has_the_traceback(
    backend, what, where, on_failure, marker, caplog
):
    with make(with_one(what, marker, where=where), backend, on_failure=on_failure) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))

        def fail():
            return pool.step(zeros(pool)) if where == "step" else pool.reset(seed=0)

        kind = "ValueError: a deliberate error" if what == "raises" else "SystemExit: 3"
        if on_failure == "raise":
            with pytest.raises(WorkerError) as caught:
                fail()
            assert caught.value.env_ids == (1,)
            text = str(caught.value)
        else:
            with caplog.at_level(logging.WARNING, "jaxenvs"):
                result = fail()
            np.testing.assert_array_equal(result[-1]["restarted"], [False, True, False, False])
            if where == "step":
                np.testing.assert_array_equal(result[0][:, 2], [2, 0, 2, 2])
                np.testing.assert_array_equal(result[3], [False, True, False, False])
            text = caplog.text
        assert f"failed in {where}: {kind}" in text and "environment 1 (" in text
        assert "Traceback" in text and f"in {what}" in text and "envs.py" in text
        assert "jaxenvs/bridge/" not in text  # our own frames say nothing to its author
        observation, *_, info = pool.step(zeros(pool))  # the pool goes on
        expected = [3, 1, 3, 3] if where == "step" else [1, 1, 1, 1]
        np.testing.assert_array_equal(observation[:, 2], expected)
        assert info["restarted"].any() == (on_failure == "raise")


def test_failed_environments_of_a_batch_are_all_named(backend, tmp_path):
    fns = counters(8)
    for i in (0, 1, 6):
        fns[i] = lambda i=i: Misbehaving("raises", f"{tmp_path}/{i}", at=1)
    with make(fns, backend) as pool:
        pool.reset(seed=0)
        with pytest.raises(WorkerError) as caught:
            pool.step(zeros(pool))
        assert sorted(caught.value.env_ids) == [0, 1, 6]
        assert str(caught.value).count("ValueError: a deliberate error") >= 3


def _raises_long():
    env = Counter()

    def step(action):
        raise ValueError("x" * 20_000 + "the end")

    env.step = step
    return env


def test_long_exception_message_keeps_its_end(backend):
    with make([_raises_long], backend) as pool:
        pool.reset(seed=0)
        with pytest.raises(WorkerError, match="the end"):
            pool.step(zeros(pool))


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_exception_in_autoreset_names_the_environment(backend, mode, marker):
    fns = with_one("raises", marker, where="reset")
    with make(fns, backend, autoreset_mode=mode) as pool:
        pool.reset(seed=0)
        for _ in range(4 if mode == "same_step" else 5):
            pool.step(zeros(pool))
        with pytest.raises(WorkerError, match="failed in reset") as caught:
            pool.step(zeros(pool))
        assert caught.value.env_ids == (1,)
        assert pool.step(zeros(pool))[4]["restarted"].tolist() == [False, True, False, False]


@with_any_backend
def test_a_recv_that_raises_gives_its_batch_to_the_next(backend, marker):
    with make(with_one("raises", marker, at=1), backend, batch_size=2) as pool:
        pool.reset(seed=0)
        pool.send(zeros(pool))
        seen, failed = [], []
        while len(seen) < 4:
            try:
                _, _, _, truncated, info = pool.recv()
            except WorkerError as error:
                failed += error.env_ids
            else:
                seen += info["env_id"].tolist()
                np.testing.assert_array_equal(truncated, info["env_id"] == 1)
        assert failed == [1] and sorted(seen) == [0, 1, 2, 3]


def test_an_exception_in_render_names_the_environment(backend, marker):
    with make(with_one("raises", marker, where="render"), backend) as pool:
        pool.reset(seed=0)
        with pytest.raises(WorkerError, match="failed in render: ValueError") as caught:
            pool.render()
        assert caught.value.env_ids == (1,) and "in raises" in str(caught.value)
        assert len(pool.render()) == 4
        assert not pool.step(zeros(pool))[4]["restarted"].any()


class _HasMethods(Counter):
    def fails(self):
        raise ValueError("a deliberate error")


def test_an_exception_in_a_method_leaves_the_environment(backend):
    with make([_HasMethods] * 2, backend) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        with pytest.raises(WorkerError, match="failed in fails: ValueError") as caught:
            pool.call("fails", env_ids=[1])
        assert caught.value.env_ids == (1,)
        observation, *_, info = pool.step(zeros(pool))
        np.testing.assert_array_equal(observation[:, 2], 2)
        assert not info["restarted"].any()


@pytest.mark.parametrize("what", ["raises", "exits"])
def test_an_exception_in_close_is_told_after_all_is_closed(backend, what, marker):
    pool = make(with_one(what, marker, where="close"), backend)
    pool.reset(seed=0)
    with pytest.raises(WorkerError, match="failed in close") as caught:
        pool.close()
    assert caught.value.env_ids == (1,) and pool.closed
    pool.close()


def test_exception_in_close_is_logged_under_restart(backend, marker, caplog):
    with caplog.at_level(logging.WARNING, "jaxenvs"):
        make(with_one("raises", marker, where="close"), backend, on_failure="restart").close()
    assert "failed in close: ValueError: a deliberate error" in caplog.text


@pytest.mark.parametrize("what", ["raises", "exits"])
def test_an_exception_in_a_constructor_names_the_environment(backend, what, marker):
    with pytest.raises(WorkerError, match=r"environment 3 \(.*its constructor") as caught:
        make(with_one(what, marker, where="init", one=3), backend)
    assert caught.value.env_ids == (3,)
    assert "Traceback" in str(caught.value) and f"in {what}" in str(caught.value)


@in_processes
def test_constructor_that_ends_its_process_reports_exit_status(backend, marker):
    with pytest.raises(WorkerError, match="status 3 while it constructed it") as caught:
        make(with_one("exits_at_once", marker, where="init"), backend)
    assert caught.value.env_ids == (1,)


def _made_once(marker):
    if os.path.exists(f"{marker}.made"):
        raise OSError("the port is taken")
    with open(f"{marker}.made", "w"):
        pass
    return Misbehaving("raises", marker, at=1)


@pytest.mark.parametrize("on_failure", ["raise", "restart"])
def test_an_environment_that_cannot_be_made_anew_is_an_error(backend, on_failure, marker):
    fns = counters(4)
    fns[1] = lambda: _made_once(marker)
    with make(fns, backend, on_failure=on_failure) as pool:
        pool.reset(seed=0)
        for _ in range(2):  # and stays one
            with pytest.raises(WorkerError, match="OSError: the port is taken") as caught:
                pool.step(zeros(pool))
            assert set(caught.value.env_ids) == {1}
        os.unlink(f"{marker}.made")  # until it can be made
        if on_failure == "raise":
            with pytest.raises(WorkerError, match="could not be constructed again"):
                pool.step(zeros(pool))
        else:
            assert pool.step(zeros(pool))[4]["restarted"][1]
        assert pool.step(zeros(pool))[0][1, 2] == 1


# --- environments that hang ---


@with_and_without_futex
def test_hanging_environment_is_named_and_does_not_delay_close(backend, marker):
    pool = make(with_one("hangs", marker), backend, timeout=0.2)
    pool.reset(seed=0)
    pool.step(zeros(pool))
    with pytest.raises(EnvTimeoutError, match=r"environment 1 .* within 0.2 s") as caught:
        pool.step(zeros(pool))
    assert caught.value.env_ids == (1,)
    with pytest.raises(EnvTimeoutError):
        pool.step_wait()
    with pytest.raises(AlreadyPendingError):
        pool.step(zeros(pool))
    begun = time.monotonic()
    pool.close()
    assert time.monotonic() - begun < 3  # not the 5 s that environments have for their close()


@in_processes
def test_slow_environment_can_be_waited_for_after_a_timeout(backend):
    with make(counters(2, seconds=0.6), backend, timeout=0.2) as pool:
        pool.reset(seed=0)
        with pytest.raises(EnvTimeoutError):
            pool.step(zeros(pool))
        while True:
            try:
                observation, reward, *_, info = pool.step_wait()
                break
            except EnvTimeoutError:
                pass
        np.testing.assert_array_equal(observation[:, 2], 1)
        assert reward.tolist() == [1, 1] and not info["restarted"].any()


@with_and_without_futex
@pytest.mark.parametrize("together", [True, False])
def test_hanging_environment_is_restarted(backend, together, marker, caplog):
    fns = with_one("hangs", marker)
    batch_size = 4 if together else 2
    with (
        caplog.at_level(logging.WARNING, "jaxenvs"),
        make(fns, backend, timeout=0.2, on_failure="restart", batch_size=batch_size) as pool,
    ):
        pool.reset(seed=0)
        pool.step(zeros(pool), np.arange(4))
        pool.send(zeros(pool))
        restarted = {}
        while len(restarted) < 4:
            _, _, _, truncated, info = pool.recv()
            np.testing.assert_array_equal(truncated, info["restarted"])
            restarted.update(zip(info["env_id"].tolist(), truncated.tolist(), strict=True))
        assert restarted[1] and not restarted[2] and not restarted[3]
        assert "environment 1 (" in caplog.text and "did not answer within 0.2 s" in caplog.text
        assert pool.step(zeros(pool, 1), [1])[0][0, 2] == 1


@in_processes
def test_slow_environments_in_a_row_do_not_time_out(backend):
    fns = counters(4, seconds=0.2)
    with make(fns, backend, num_workers=1, timeout=0.45) as pool:
        pool.reset(seed=0)
        observation, *_, info = pool.step(zeros(pool))  # takes 0.8 s
        np.testing.assert_array_equal(observation[:, 2], 1)
        assert not info["restarted"].any()


@in_processes
@pytest.mark.slow
def test_slow_constructor_does_not_count_toward_the_timeout(backend, marker):
    def slow():
        time.sleep(1.5)
        return Misbehaving("is_killed", marker)

    with make([slow], backend, timeout=0.5) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        assert pool.step(zeros(pool))[4]["restarted"].all()
        assert pool.step(zeros(pool))[0][0, 2] == 1


# --- answers that do not fit ---


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("has_another_shape", r"float32\[4\]; its space expects float32\[3\]"),
        ("has_another_rank", r"float32\[3, 1\]; its space expects"),
        ("is_text", "its space expects"),
        ("is_nan", r"an observation is NaN"),
        ("rewards_none", "the reward is not a single number"),
        ("rewards_nan", r"a reward is NaN"),
        ("rewards_array", r"not a single number\.  Return float\(reward\)"),
        ("returns_four", r"\(expected 5, got 4\)\nstep must return .* as in classic gym"),
    ],
)
def test_invalid_step_result_is_an_error_of_its_environment(backend, what, message, marker):
    with make(with_one(what, marker, at=4), backend) as pool:  # beyond the first, looked at closer
        pool.reset(seed=0)
        for _ in range(3):
            pool.step(zeros(pool))
        with pytest.raises(WorkerError, match=message) as caught:
            pool.step(zeros(pool))
        assert caught.value.env_ids == (1,)
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], [5, 1, 5, 5])


@with_any_backend
def test_reset_without_info_says_what_to_return(backend):
    class Old(Counter):
        def reset(self, **kwargs):
            return super().reset()[0]

    expected = r"ValueError: .*\nreset must return observation and info"
    with make([Old], backend) as pool, pytest.raises(WorkerError, match=expected):
        pool.reset()


@pytest.mark.parametrize(("what", "taken"), [("is_nan", np.nan), ("rewards_nan", 0)])
def test_without_validation_nan_passes(backend, what, taken, marker):
    with make(with_one(what, marker), backend, validate=False) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        observation, reward, *_ = pool.step(zeros(pool))
        assert np.isnan(observation[1, 1] if what == "is_nan" else reward[1])
        assert not np.isnan(observation[0]).any()


def test_nan_in_a_final_observation_is_found(backend, marker):
    def nan_at_the_end():
        return Misbehaving("is_nan", marker, at=5)

    with make([nan_at_the_end], backend, autoreset_mode="same_step") as pool:
        pool.reset(seed=0)
        for _ in range(4):
            pool.step(zeros(pool))
        with pytest.raises(WorkerError, match="final observation is NaN"):
            pool.step(zeros(pool))


@pytest.mark.parametrize("at", [1, 4])
def test_float64_observation_is_accepted_for_a_float32_space(backend, at, marker):
    with make(with_one("is_float64", marker, at=at), backend, validate=True) as pool:
        pool.reset(seed=0)
        for step in range(1, 5):
            observation = pool.step(zeros(pool))[0]
            assert observation.dtype == np.float32
            np.testing.assert_array_equal(observation[:, 2], step)


class _Whole(Counter):
    observation_space = spaces.Discrete(10)

    def __init__(self, value):
        super().__init__()
        self.value = value

    def _observation(self):
        return self.value


@pytest.mark.parametrize("value", [0.5, np.zeros(1, int), None])
def test_discrete_observation_must_be_a_whole_number(backend, value):
    with make([lambda: _Whole(value)], backend) as pool, pytest.raises(WorkerError):
        pool.reset(seed=0)


@pytest.mark.parametrize("value", [3, np.int8(3), np.array(3, np.int64)])
def test_discrete_observation_may_have_any_integer_type(backend, value):
    with make([lambda: _Whole(value)], backend) as pool:
        assert pool.reset(seed=0)[0].tolist() == [3]


class _TwoBits(Counter):
    observation_space = spaces.MultiBinary(2)

    def __init__(self, value, at=4):
        super().__init__(length=9)
        self.value, self.at = value, at

    def _observation(self):
        return np.array(self.value) if self.count == self.at else np.array([0, 1])


class _Small(_TwoBits):
    observation_space = spaces.Box(-5, 5, (), np.int8)

    def _observation(self):
        return np.int64(self.value) if self.count == self.at else np.int64(3)


@pytest.mark.parametrize(
    ("env", "value", "shown"),
    [
        (_TwoBits, [5, 300], "contains 300, which does not fit the int8"),
        (_TwoBits, [-129, 0], "contains -129, which does not fit the int8"),
        (_Small, 300, "contains 300, which does not fit the int8"),
    ],
)
def test_integers_that_the_space_cannot_hold_are_refused(backend, env, value, shown):
    with make([lambda: env(value)], backend, validate=False) as pool:
        pool.reset(seed=0)
        for _ in range(3):
            observation = pool.step(zeros(pool))[0]
        np.testing.assert_array_equal(observation, [[0, 1]] if env is _TwoBits else [3])
        with pytest.raises(WorkerError, match=shown) as caught:
            pool.step(zeros(pool))
        assert caught.value.env_ids == (0,)


def test_observation_outside_its_space_warns_raises_or_passes(backend, tmp_path, recwarn):
    def fns(name):
        return with_one("is_outside", f"{tmp_path}/{name}", at=1)

    with make(fns("warns"), backend) as pool:
        pool.reset(seed=0)
        with pytest.warns(UserWarning, match="environment 1 returned an observation outside"):
            observation = pool.step(zeros(pool))[0]
        np.testing.assert_array_equal(observation[1], -5)
    with make(fns("raises"), backend, validate=True) as pool:
        pool.reset(seed=0)
        with pytest.raises(WorkerError, match="outside its space") as caught:
            pool.step(zeros(pool))
        assert caught.value.env_ids == (1,)
    recwarn.clear()
    with make(fns("passes"), backend, validate=False) as pool:
        pool.reset(seed=0)
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][1], -5)
    assert not recwarn.list


class _OutsideOnce(Counter):
    """Its first observations are 1, and that of step `at` is outside the space."""

    def __init__(self, at):
        super().__init__(length=9)
        self.at = at

    def _observation(self):
        return np.full(3, -5 if self.count == self.at else 1, np.float32)


@pytest.mark.parametrize("at", range(4))
def test_first_three_observations_are_compared_with_the_space(at):
    with make([lambda: _OutsideOnce(at)], "serial") as pool, warnings.catch_warnings(record=True):
        warnings.simplefilter("error" if at == 3 else "always")
        told = pytest.warns(UserWarning, match="outside") if at < 3 else contextlib.nullcontext()
        with told:
            pool.reset(seed=0)
            for _ in range(4):
                pool.step(zeros(pool))


# --- what else environments do ---


@in_processes
def test_environments_may_print(backend, marker, capfd):
    with make(with_one("prints", marker), backend) as pool:
        pool.reset(seed=0)
        for step in range(1, 4):
            np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], step)


def test_environments_may_start_threads(backend, marker):
    pool = make(with_one("starts_threads", marker), backend)
    pool.reset(seed=0)
    for step in range(1, 4):
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], step)
    begun = time.monotonic()
    pool.close()
    assert time.monotonic() - begun < 3


@in_processes
def test_environments_may_change_their_directory(backend, marker):
    here = os.getcwd()
    with make(with_one("changes_directory", marker), backend) as pool:
        pool.reset(seed=0)
        for _ in range(2):
            pool.step(zeros(pool))
        assert os.getcwd() == here
        assert pool.call("directory") == ("/", "/", here, here)


@in_processes
def test_environments_may_fork_without_corrupting_results(backend, marker):
    fns = with_one("forks", marker)
    with make(fns, backend) as pool:
        pool.reset(seed=0)
        numbers = [0, 0, 2, 3]
        for step in range(1, 9):
            observation = pool.step(zeros(pool))[0]
            if step >= 2:
                time.sleep(0.02)  # time for the copy, which writes after some 0.05 s, to do harm
            np.testing.assert_array_equal(observation[:, 0], numbers)


# --- what cannot be made ---


@in_processes
def test_a_function_that_cannot_be_pickled_says_what_to_do(backend):
    lock = threading.Lock()
    with pytest.raises(PoolError, match=r"functions 0 to 1 cannot be sent.*inside the function"):
        make([lambda: (lock, Counter())[1]] * 2, backend, num_workers=1)


class _Other(Counter):
    observation_space = spaces.Box(0, 7, (3,), np.float32)


class _OtherActions(Counter):
    action_space = spaces.Discrete(7)


class _Listing(Counter):
    observation_space = spaces.Dict({"list": spaces.Sequence(spaces.Discrete(5))})


@pytest.mark.parametrize(
    ("other", "shown"), [(_Other, "Box(0.0, 7.0"), (_OtherActions, "Discrete(7)")]
)
def test_spaces_that_differ_are_both_shown(backend, other, shown):
    with pytest.raises(PoolError, match="environments 0 and 2") as caught:
        make([*counters(2), other], backend)
    assert shown in str(caught.value)
    assert str(Counter.observation_space) in str(caught.value) or "Discrete(3)" in str(caught.value)


def test_a_space_without_arrays_is_refused(backend):
    with pytest.raises(PoolError, match=r"cannot hold Sequence.* at \['list'\]"):
        make([_Listing], backend)


@pytest.mark.parametrize("batch_size", [0, 3, -1])
def test_a_batch_has_from_one_to_all_environments(backend, batch_size):
    with pytest.raises(PoolError, match=rf"batch_size={batch_size} for num_envs=2"):
        make(counters(2), backend, batch_size=batch_size)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"num_workers": 0},
        {"num_workers": 3},
        {"envs_per_worker": 0},
        {"num_workers": 1, "envs_per_worker": 1},
        {"timeout": 0},
        {"on_failure": "ignore"},
        {"validate": "last"},
        {"autoreset_mode": "never"},
        {"time_limit": 0},
        {"backend": "fork"},
        {"num_envs": 5},
    ],
)
def test_make_pool_refuses_impossible_arguments(kwargs):
    with pytest.raises(PoolError, match=str(next(reversed(kwargs.values())))):
        jaxenvs.make_pool(counters(2), **kwargs)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("num_envs", [0, -1, 4.0, "4", True]),
        ("batch_size", [2.0, "2", True, 0, 3]),
        ("num_workers", [1.0, "1", True, None]),
        ("envs_per_worker", [1.0, "1", 0]),
        ("timeout", ["3", 0, -1, float("nan"), float("inf"), True]),
        ("time_limit", [2.5, "2", -1, True]),
        ("info_fields", ["count", 5, [1], {"count": 1}]),
    ],
)
def test_make_pool_names_the_invalid_argument(name, values):
    for value in values:
        with pytest.raises(PoolError, match=rf"make_pool got {name}=.*expected"):
            jaxenvs.make_pool(Counter, **{"num_envs": 2, name: value})
    for value in values if name not in ("num_envs", "info_fields") else ():
        with pytest.raises(PoolError, match=name):
            jaxenvs.make_pool("gymnasium/CartPole-v1", 2, backend="native", **{name: value})


def test_invalid_seeds_are_refused_before_anything_is_made():
    def make_none():
        raise AssertionError("an environment was made")

    for seed in ("a", 1.5, -1, 2**63, True, [1], [1, 2, 3], [1, "a"], [1, None], np.array(1.5)):
        with pytest.raises(SeedError, match="make_pool got"):
            jaxenvs.make_pool(make_none, 2, seed=seed)
    with pytest.raises(SeedError, match="3 seeds for 2 environments"):
        jaxenvs.make_pool(
            lambda: gymnasium.make_vec("CartPole-v1", 2), backend="native", seed=[1, 2, 3]
        )


def test_numpy_numbers_are_accepted_as_arguments(backend):
    options = {"batch_size": np.int32(1), "time_limit": np.int64(3)}
    if backend != "serial":
        options |= {"num_workers": np.int8(2)}
        options |= {} if backend == "asyncio" else {"timeout": np.float32(60)}
    with jaxenvs.make_pool(
        Counter, np.int64(2), backend=backend, seed=np.int64(5), **options
    ) as pool:
        assert pool.num_envs == 2 and pool.batch_size == 1
        assert pool.reset()[1]["seed"].tolist() == [5, 6]
        for _ in range(3):
            truncated = pool.step(zeros(pool), [0, 1])[3]
        assert truncated.all()


@pytest.mark.parametrize("workers", [{"num_workers": 2}, {"envs_per_worker": 1}])
def test_serial_backend_refuses_worker_counts(workers):
    with pytest.raises(PoolError, match=r'got \w+=\d with backend="serial".*no workers'):
        jaxenvs.make_pool(Counter, 2, backend="serial", **workers)


class _Named(Counter):
    def step(self, action):
        return (*super().step(action)[:4], {"name": "abc", "rows": [[1], [1, 2]], "x": 1})


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("name", "is 'abc', not a number"),
        ("rows", ".*not a number or an array"),
        ("y", "neither reset .*'name'"),
    ],
)
def test_info_field_that_is_not_a_number_is_refused(backend, name, shown):
    with pytest.raises(PoolError, match=rf"info_fields names '{name}', which {shown}"):
        make([_Named], backend, info_fields=["x", name])


def test_space_shared_by_all_environments_is_not_compared(monkeypatch):
    compared = []

    class Space(spaces.Box):
        def __eq__(self, other):
            compared.append(other)
            return super().__eq__(other)

        __hash__ = None

    class Env(Counter):
        observation_space = Space(-1, 1e6, (3,), np.float32)

    with make([Env] * 3, "serial"):
        assert not compared


@in_processes
def test_too_little_shared_memory_is_an_error_in_advance(backend, monkeypatch):
    monkeypatch.setattr(_segment, "available_memory", lambda: 2**20)
    with pytest.raises(PoolError, match=r"GiB of shared memory: 0\.00 GiB are available"):
        make(counters(2), backend)


_V2 = "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"
_V1 = tuple(f"/sys/fs/cgroup/memory/memory.{name}_in_bytes" for name in ("limit", "usage"))


@pytest.mark.parametrize(
    ("files", "limit", "used", "expected"),
    [
        (_V2, 3000, 1000, 2000),
        (_V1, 3000, 1000, 2000),
        (_V2, 3000, 4000, 0),
        (_V2, 99000, 1000, 8192),
        (_V2, "max", 1000, 8192),
        (_V1, 2**63 - 4096, 1000, 8192),  # which says that there is no limit
        ((), "", "", 8192),
    ],
)
def test_available_memory_is_the_least_of_machine_and_cgroup(
    files, limit, used, expected, monkeypatch
):
    texts = {"/proc/meminfo": "MemTotal: 16 kB\nMemFree: 4 kB\nMemAvailable: 8 kB\n"}
    texts |= zip(files, (f"{limit}\n", f"{used}\n"), strict=False)
    monkeypatch.setattr(_segment, "_read", lambda path: texts.get(path, ""))
    assert _segment.available_memory() == expected


# --- misuse ---


_BAD_ACTIONS = [
    np.zeros(3, int),
    np.zeros((4, 1), int),
    np.zeros(4),
    np.zeros(4, bool),
    [0, 0, 0, 3],
    [0, -1, 0, 0],
    np.array([0, 0, 255, 0], np.uint8),
    np.array([0, 0, -1, 0], np.int8),
    ["a"] * 4,
    None,
    0,
]


def test_bad_actions_are_refused_and_nothing_is_stepped(backend):
    with make(counters(4), backend) as pool:
        pool.reset(seed=0)
        for actions in _BAD_ACTIONS:
            for use in (
                lambda actions=actions: pool.step(actions),
                lambda actions=actions: pool.step_async(actions),
                lambda actions=actions: pool.send(actions),
                lambda actions=actions: pool.send(actions, [3, 2, 1, 0]),
            ):
                with pytest.raises(ActionError, match="action"):
                    use()
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)


class _Many(Counter):
    action_space = spaces.MultiDiscrete([2, 300], start=[-1, 0])


class _Bits(Counter):
    action_space = spaces.MultiBinary(2)


class _Moves(Counter):
    action_space = spaces.Box(-1, 1, (2,), np.float32)


class _Levels(Counter):
    action_space = spaces.Box(0, 200, (2,), np.uint8)


@pytest.mark.parametrize(
    ("env", "good", "bad"),
    [
        (_Many, [-1, 299], [-2, 0]),
        (_Many, [0, 0], [0, 300]),
        (_Bits, [0, 1], [0, 2]),
        (_Moves, [0.5, -1], [np.nan, 0]),
        (_Moves, [5, -7], [np.nan, 0]),  # the environment checks the bounds
        (_Levels, [0, 200], [0, 256]),
    ],
)
def test_action_values_are_validated(env, good, bad):
    env.step = lambda self, action: (self._observation(), float(action.sum()), False, False, {})
    with make([env], "serial") as pool:
        pool.reset(seed=0)
        assert pool.step([good])[1] == sum(good)
        for dtype in (None, np.int16) if np.isfinite(bad).all() else (None,):
            with pytest.raises(ActionError, match="action 0"):
                pool.step(np.array([bad], dtype))
    with make([env], "serial", validate=False) as pool:
        pool.reset(seed=0)
        if env is not _Levels:
            pool.step([bad])


def test_actions_in_a_tree_are_named_by_their_key(backend):
    with make([Composite] * 2, backend) as pool:
        pool.reset(seed=0)
        good = {"button": np.zeros(2, int), "stick": np.zeros((2, 2))}
        for bad, match in (
            ({"button": good["button"]}, "expected the structure of"),
            ({**good, "more": 1}, "expected the structure of"),
            (np.zeros(2), "expected the structure of"),
            ({**good, "button": np.full(2, 4)}, r"action 0\['button'\] is 4"),
            ({**good, "stick": np.zeros((2, 3))}, r"actions\['stick'\] are float64\[2, 3\]"),
            ({**good, "stick": np.full((2, 2), np.nan)}, r"\['stick'\] contains NaN"),
        ):
            with pytest.raises(ActionError, match=match):
                pool.step(bad)
        assert pool.step(good)[1].tolist() == [0, 0]


_BAD_ENV_IDS = [
    ([4], "numbered from 0 to 3"),
    ([-1], "numbered from 0 to 3"),
    ([1, 1], r"\[1\] more than once"),
    ([], "at least one"),
    ([0.0], "int32"),
    ([True, False, True, False], "int32"),
    (0, "int32"),
    ([[0]], "int32"),
    ("a", "int32"),
]


def test_invalid_env_ids_are_refused(backend):
    with make(counters(4), backend, batch_size=2) as pool:
        pool.reset(seed=0)
        for env_ids, match in _BAD_ENV_IDS:
            for use in (
                lambda env_ids=env_ids: pool.send(zeros(pool, 1), env_ids),
                lambda env_ids=env_ids: pool.step(zeros(pool, 1), env_ids),
                lambda env_ids=env_ids: pool.reset(env_ids=env_ids),
                lambda env_ids=env_ids: pool.async_reset(env_ids=env_ids),
                lambda env_ids=env_ids: pool.render(env_ids),
            ):
                with pytest.raises(EnvIdError, match=match):
                    use()
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)


def test_an_environment_at_work_cannot_be_sent_again(backend):
    with make(counters(4), backend, batch_size=2) as pool:
        pool.reset(seed=0)
        pool.send(zeros(pool, 2), [1, 2])
        for use in (
            lambda: pool.send(zeros(pool, 2), [2, 3]),
            lambda: pool.async_reset(env_ids=[1]),
            lambda: pool.reset(env_ids=[1]),
            lambda: pool.call("process", env_ids=[1]),
            lambda: pool.render([1]),
            lambda: pool.set_attr("length", 7),
            lambda: pool.step(zeros(pool)),
            lambda: pool.step_async(zeros(pool)),
            lambda: pool.reset(),
        ):
            with pytest.raises(AlreadyPendingError, match=r"recv\(\)"):
                use()
        assert pool.call("number", env_ids=[0, 3]) == (0, 3)  # the others are idle
        assert sorted(pool.recv()[4]["env_id"].tolist()) == [1, 2]


def test_a_step_is_begun_once_and_waited_for_once(backend):
    with make(counters(4), backend) as pool:
        for wait in (pool.step_wait, pool.reset_wait, pool.recv):
            with pytest.raises(NothingPendingError):
                wait()
        for step in (pool.step, pool.step_async, pool.send):
            with pytest.raises(PoolError, match="reset"):
                step(zeros(pool))
        pool.reset(seed=0)
        pool.step_async(zeros(pool))
        for use in (
            lambda: pool.step_async(zeros(pool)),
            lambda: pool.step(zeros(pool)),
            lambda: pool.send(zeros(pool)),
            lambda: pool.send(zeros(pool, 1), [0]),
            pool.reset,
            pool.reset_async,
            pool.async_reset,
            pool.render,
            lambda: pool.call("process"),
        ):
            with pytest.raises(AlreadyPendingError, match="result of a step"):
                use()
        with pytest.raises(NothingPendingError):
            pool.reset_wait()
        assert pool.step_wait()[1].tolist() == [1] * 4
        with pytest.raises(NothingPendingError):
            pool.step_wait()
        pool.reset_async()
        with pytest.raises(NothingPendingError):
            pool.step_wait()
        pool.reset_wait()


def test_environments_can_step_before_others_are_reset(backend):
    with make(counters(4), backend) as pool:
        pool.reset(seed=0, env_ids=[2, 0])
        assert pool.step(zeros(pool, 2), [0, 2])[0][:, 0].tolist() == [0, 2]
        with pytest.raises(PoolError, match=r"environments \[1, 3\] were (stepped before|reset)"):
            pool.step(zeros(pool, 4), [0, 1, 2, 3])
        with pytest.raises(PoolError, match=r"before environments \[1, 3\] were reset"):
            pool.step(zeros(pool))


def test_bad_seeds_are_refused(backend):
    with make(counters(2), backend) as pool:
        for seed in ([1], [1, 2, 3], -1, 2**63, 1.5, "a", [1, -2], True):
            with pytest.raises(SeedError, match="seed"):
                pool.reset(seed=seed)
        pool.reset(seed=0)


def test_bad_masks_are_refused(backend):
    with make(counters(2), backend) as pool:
        pool.reset(seed=0)
        for mask in ([True], [0, 1], [False, False]):
            with pytest.raises(PoolError, match="reset_mask"):
                pool.reset(options={"reset_mask": np.array(mask)})
        with pytest.raises(PoolError, match="Pass one of them"):
            pool.reset(options={"reset_mask": np.array([True, False])}, env_ids=[0])


@in_processes
def test_unpicklable_messages_are_refused_and_the_pool_goes_on(backend):
    with make(counters(2), backend) as pool:
        pool.reset(seed=0)
        lock = threading.Lock()
        with pytest.raises(PoolError, match=r"'set_attr'.* cannot be sent"):
            pool.set_attr("number", lock)
        with pytest.raises(PoolError, match="options cannot be sent"):
            pool.reset(options={"lock": lock})
        pool.set_attr("lock", 0)
        pool.call("__setattr__", "lock", 1)
        with pytest.raises(WorkerError, match="pickle"):
            pool.call("unpicklable")
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)


@with_any_backend
def test_use_after_close_is_refused(backend):
    pool = make(counters(2), backend)
    pool.reset(seed=0)
    pool.step_async(zeros(pool))
    pool.close()
    pool.close()
    for use in (
        lambda: pool.step(zeros(pool)),
        lambda: pool.step(zeros(pool), [0, 1]),
        lambda: pool.step_async(zeros(pool)),
        pool.step_wait,
        lambda: pool.send(zeros(pool)),
        pool.recv,
        pool.reset,
        pool.reset_async,
        pool.reset_wait,
        pool.async_reset,
        pool.render,
        lambda: pool.call("process"),
        lambda: pool.set_attr("length", 1),
    ):
        with pytest.raises(ClosedError, match=r"after close\(\)"):
            use()


@with_and_without_futex
def test_messages_to_a_worker_do_not_crowd_out_results_that_wait(backend):
    with make(counters(2), backend, num_workers=1, batch_size=1) as pool:
        pool.reset(seed=0)
        pool.send(zeros(pool, 1), [0])
        for _ in range(60):
            assert pool.call("number", env_ids=[1]) == (1,)
        assert pool.recv()[4]["env_id"].tolist() == [0]


# --- threads ---


@with_any_backend
def test_two_threads_may_step_at_once(backend):
    with make(counters(2, length=1000), backend) as pool:
        pool.reset(seed=0)
        rewards = [[], []]

        def work(mine):
            for _ in range(50):
                mine.append(float(pool.step(zeros(pool))[1][0]))

        threads = [threading.Thread(target=work, args=(mine,)) for mine in rewards]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert sorted(rewards[0] + rewards[1]) == list(range(1, 101))


@with_any_backend
def test_one_thread_may_send_and_another_receive(backend):
    rounds, n = 50, 4
    with make(counters(n, length=10_000), backend, batch_size=2) as pool:
        pool.reset(seed=0)
        counts, begun = np.zeros(n, int), threading.Semaphore(0)
        idle = [threading.Semaphore(1) for _ in range(n)]

        def sender():
            for _ in range(rounds):
                for i in range(n):
                    idle[i].acquire()
                    pool.send(zeros(pool, 1), [i])
                    begun.release()

        thread = threading.Thread(target=sender)
        thread.start()
        while counts.sum() < rounds * n:
            begun.acquire()
            info = pool.recv()[4]
            for i in info["env_id"].tolist():
                counts[i] += 1
                idle[i].release()
            for _ in range(len(info["env_id"]) - 1):
                begun.acquire()
        thread.join(20)
        assert counts.tolist() == [rounds] * n
        assert pool.call("count") == (rounds,) * n


def test_gymnasium_wrapper_closes_the_pool(backend):
    pool = make(counters(2), backend)
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(pool)
    wrapped.reset(seed=0)
    wrapped.close()
    assert pool.closed


class _Ending(Counter):
    """Raises an exception that ends a generator, in the reset or the step of its first episode."""

    def __init__(self, what, kind, done):
        super().__init__(length=2)
        self.what, self.kind, self.done = what, kind, done

    def _raise(self, what):
        if what == self.what and self.episode == 1 and not os.path.exists(self.done):
            open(self.done, "w").close()
            raise self.kind("on purpose")

    def reset(self, **kwargs):
        self._raise("reset")
        return super().reset(**kwargs)

    def step(self, action):
        self._raise("step")
        return super().step(action)


@pytest.mark.parametrize("kind", [GeneratorExit, StopIteration])
@pytest.mark.parametrize("what", ["reset", "step"])
def test_generator_exit_and_stop_iteration_name_the_environment(backend, what, kind, tmp_path):
    fns = [Counter, lambda: _Ending(what, kind, f"{tmp_path}/done")]
    with make(fns, backend, autoreset_mode="same_step") as pool:
        pool.reset(seed=0)
        with pytest.raises(WorkerError, match=kind.__name__) as raised:
            [pool.step(zeros(pool)) for _ in range(3)]
        assert raised.value.env_ids == (1,)
        assert pool.step(zeros(pool))[4]["restarted"].tolist() == [False, True]
