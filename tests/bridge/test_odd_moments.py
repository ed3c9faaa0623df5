"""Ctrl-C, close, refusals and failures at moments where they are rare."""

import asyncio
import os
import signal
import sys
import threading
import time
import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.bridge.backends._threads import PoolThread
from jaxenvs.errors import ClosedError, EnvTimeoutError, PoolError, WorkerError
from tests.bridge.conftest import (
    in_processes,
    wait_until,
    with_and_without_futex,
    with_any_backend,
    zeros,
)
from tests.bridge.envs import Counter

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs processes")


class Awaited(Counter):
    """A counter that lives on the event loop."""

    async def step(self, action):
        return super().step(action)


class Fails(Counter):
    """Action 2 is an error."""

    def step(self, action):
        if action == 2:
            raise ValueError("action 2")
        return super().step(action)


def make(env_fn, backend, n=4, **kwargs):
    workers = {} if backend == "serial" else {"num_workers": 2}
    return jaxenvs.make_pool(env_fn, n, backend=backend, **{**workers, **kwargs})


def interrupting(*_):
    raise KeyboardInterrupt


# --- Ctrl-C ---


@pytest.mark.parametrize("name", ["begin_all", "end_all", "begin_some", "end_some"])
def test_ctrl_c_before_a_ledger_update_leaves_a_usable_pool(backend, name, monkeypatch):
    with make(lambda: Counter(length=100), backend, batch_size=2) as pool:
        pool.reset(seed=0)
        if name == "end_some":
            pool.send(zeros(pool))
        call = {
            "begin_some": lambda: pool.send(np.zeros(2, int), [1, 2]),
            "end_some": pool.recv,
        }.get(name, lambda: pool.step(zeros(pool)))
        events = iter([interrupting, *[getattr(pool._ledger, name)] * 10])
        with monkeypatch.context() as patch:
            patch.setattr(pool._ledger, name, lambda *args: next(events)(*args))
            with pytest.raises(KeyboardInterrupt):
                call()
        np.testing.assert_array_equal(pool.reset(seed=0)[0][:, 2], 0)
        np.testing.assert_array_equal(pool.step(zeros(pool))[0][:, 2], 1)
        pool.send(zeros(pool))
        assert sorted(int(i) for _ in range(2) for i in pool.recv()[4]["env_id"]) == [0, 1, 2, 3]


@pytest.mark.parametrize("env_fn", [Counter, Awaited])
@pytest.mark.parametrize("how", ["step", "call"])
def test_ctrl_c_before_requests_begin_leaves_a_usable_pool(env_fn, how, monkeypatch):
    backend = "asyncio" if env_fn is Awaited else "thread"
    with make(env_fn, backend) as pool:
        pool.reset(seed=0)
        call = pool.step if how == "step" else lambda _: pool.call("process")
        launches = iter([interrupting, *[pool._backend._launch] * 10])
        with monkeypatch.context() as patch:
            patch.setattr(pool._backend, "_launch", lambda found: next(launches)(found))
            with pytest.raises(KeyboardInterrupt):
                call(zeros(pool))
        np.testing.assert_array_equal(pool.reset(seed=0)[0][:, 2], 0)
        assert len(pool.call("process")) == 4


# --- close ---


@with_any_backend
def test_a_pool_that_another_thread_closes_ends_waits(backend):
    if backend == "serial":
        pytest.skip("the environment is stepped by the caller")
    pool = make(lambda: Counter(seconds=1.0), backend, 1, num_workers=1)
    pool.reset()
    errors = []

    def step():
        try:
            pool.step(zeros(pool))
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    time.sleep(0.1)
    pool.close(grace=0.1)
    thread.join(0.7)
    assert len(errors) == 1


# --- refusals ---


def test_send_is_refused_once_programs_step_the_pool(backend):
    with make(Counter, backend, batch_size=2) as pool:
        pool.async_reset()
        env_id = pool.recv()[4]["env_id"]
        pool.recv()
        jaxenvs.HostEnv(pool)
        for ids in (env_id, env_id.copy()):
            with pytest.raises(PoolError, match="stepped by compiled programs"):
                pool.send(np.zeros(2, int), ids)


def test_a_refused_step_changes_no_later_answer():
    def make_vectorized():
        return gymnasium.vector.SyncVectorEnv([lambda: Counter(length=100)] * 3)

    with jaxenvs.make_pool(make_vectorized, backend="native") as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        with pytest.raises(PoolError, match="steps all its environments together"):
            pool.step([0], env_ids=[0])
        mask = np.array([False, True, False])
        np.testing.assert_array_equal(pool.reset(options={"reset_mask": mask})[0][:, 2], [1, 0, 1])


@pytest.mark.parametrize("path", ["ffi", "callback"])
def test_nan_in_actions_of_half_precision_is_refused(path):
    class Half(Counter):
        action_space = gymnasium.spaces.Box(-1, 1, (), np.float16)

        def step(self, action):
            return super().step(0)

    env = jaxenvs.HostEnv(make(Half, "process", 2), path=path)
    state, _ = env.reset(jax.random.key(0))
    step = jax.jit(env.step)
    state, timestep = step(state, jnp.zeros(2, jnp.float16), jax.random.key(0))
    np.testing.assert_array_equal(timestep.observation[:, 2], 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="NaN"):
        jax.block_until_ready(step(state, jnp.full(2, jnp.nan, jnp.float16), jax.random.key(0)))
    env.close()


# --- failures and hangs ---


@with_any_backend
def test_partial_step_that_times_out_can_be_waited_for(backend):
    if backend == "serial":
        pytest.skip("a timeout needs a worker")
    with make(lambda: Counter(seconds=0.6), backend, 2, timeout=0.2) as pool:
        pool.reset()
        with pytest.raises(EnvTimeoutError, match="Wait again with recv"):
            pool.step([0], env_ids=[1])
        assert pool.num_pending == 1
        time.sleep(0.6)
        assert pool.recv()[4]["env_id"].tolist() == [1]


@in_processes
def test_a_worker_is_replaced_whatever_the_timeout(backend):
    with make(Counter, backend, 1, timeout=1e9, num_workers=1) as pool:
        pool.reset()
        pool._backend._processes[0].kill()
        assert pool.step(zeros(pool))[4]["restarted"].all()
        assert len(pool.call("process")) == 1


@pytest.mark.parametrize("before", ["steps", "partial step", "partial reset"])
@pytest.mark.parametrize("then", ["all", "some"])
def test_the_final_observation_of_a_failure_is_the_latest(backend, before, then):
    kwargs = {"autoreset_mode": "same_step", "on_failure": "restart"}
    with make(lambda: Fails(length=100), backend, 2, **kwargs) as pool:
        pool.reset(seed=0)
        for _ in range(3):
            pool.step(zeros(pool))
        expected = 3
        if before == "partial step":
            pool.step([0], env_ids=[0])
            expected = 4
        elif before == "partial reset":
            pool.reset(env_ids=[0])
            expected = 0
        step = {"all": lambda: pool.step([2, 0]), "some": lambda: pool.step([2], env_ids=[0])}
        info = step[then]()[4]
        assert info["restarted"][0] and info["final_obs"][0][2] == expected


@pytest.mark.parametrize("before", ["steps", "partial step"])
@pytest.mark.parametrize("then", ["all", "some"])
def test_no_final_observation_is_nan(backend, before, then):
    class Breaks(Counter):
        def step(self, action):
            observation, *rest = super().step(action)
            return (observation * (np.nan if action == 2 else 1), *rest)

    kwargs = {"autoreset_mode": "same_step", "on_failure": "restart"}
    with make(lambda: Breaks(length=100), backend, 2, **kwargs) as pool:
        pool.reset(seed=0)
        pool.step(zeros(pool))
        if before == "partial step":
            pool.step([0], env_ids=[0])
        step = {"all": lambda: pool.step([2, 0]), "some": lambda: pool.step([2], env_ids=[0])}
        info = step[then]()[4]
        assert info["restarted"][0] and not np.isnan(info["final_obs"][0]).any()


@pytest.fixture
def until(tmp_path):
    """A file until which environments hang: no thread outlives a test."""
    path = tmp_path / "over"
    yield str(path)
    path.touch()
    wait_until(lambda: not any(isinstance(each, PoolThread) for each in threading.enumerate()))


def hang(until):
    while not os.path.exists(until):
        time.sleep(0.01)


async def hang_on_loop(until):
    while not os.path.exists(until):
        await asyncio.sleep(0.01)


class HangsInCalls(Counter):
    def hang(self, until):
        hang(until)


class AwaitsInCalls(Awaited):
    async def hang(self, until):
        await hang_on_loop(until)


@pytest.mark.parametrize(
    ("backend", "env_fn"),
    [("thread", HangsInCalls), ("process", HangsInCalls), ("asyncio", AwaitsInCalls)],
)
def test_a_call_that_hangs_is_made_once(backend, env_fn, until):
    kwargs = {"timeout": 0.6, "on_failure": "restart"}
    with make(env_fn, backend, 2, **kwargs) as pool:
        pool.reset()
        pool.step(zeros(pool))
        with pytest.raises(EnvTimeoutError, match="constructed again"):
            pool.call("hang", until, env_ids=[1])
        for restarted in (True, False):
            observation, _, _, truncated, info = pool.step(zeros(pool))
            assert info["restarted"].tolist() == truncated.tolist() == [False, restarted]
            assert observation[1, 2] == 1 - restarted
        assert observation[0, 2] == 3


@pytest.mark.parametrize("kind", ["thread", "process", "asyncio"])
def test_environment_hanging_in_every_reset_is_given_up(kind, tmp_path, until):
    class Hangs(Counter):
        def __init__(self):
            super().__init__()
            with open(tmp_path / "made", "a") as file:
                file.write("x")

        def reset(self, *, seed=None, options=None):
            hang(until)

    class Awaits(Hangs):
        async def reset(self, *, seed=None, options=None):
            await hang_on_loop(until)

    env_fn = Awaits if kind == "asyncio" else Hangs
    pool = make(env_fn, kind, 1, timeout=0.1, on_failure="restart", num_workers=1)
    # The third hang ends a worker process for good; threads are replaced a third time.
    error, made = (WorkerError, 3) if kind == "process" else (EnvTimeoutError, 4)
    with pytest.raises(error):
        pool.reset()
    assert len((tmp_path / "made").read_text()) == made
    pool.close(grace=0.1)


def test_a_timeout_that_an_environment_raises_is_quoted():
    class TimesOut(Awaited):
        async def step(self, action):
            raise TimeoutError("the device said nothing")

    class InThread(Counter):
        async def look(self):
            raise TimeoutError("the lens is shut")

    with make(TimesOut, "asyncio", 1, num_workers=1) as pool:
        pool.reset()
        with pytest.raises(WorkerError, match="the device said nothing"):
            pool.step(zeros(pool))
    pool = make(InThread, "asyncio", 1, num_workers=1)
    with pool, pytest.raises(WorkerError, match="the lens is shut"):
        pool.call("look")


def test_warnings_that_are_errors_hide_no_failure():
    class Outside(Fails):
        observation_space = gymnasium.spaces.Box(-1, 0.5, (3,), np.float32)

    with make(Outside, "serial", 2) as pool:
        pool.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(WorkerError, match="action 2"):
                pool.step([0, 2])


def test_auto_backend_works_when_the_cpu_clock_has_not_moved(monkeypatch):
    monkeypatch.setattr("jaxenvs.bridge.making.choosing._cpu_seconds", lambda: (0.0, 0.0))
    with jaxenvs.make_pool(Counter, 2) as pool:
        assert pool.reset()[0].shape == (2, 3)


# --- reports and infos of one worker ---


@pytest.mark.parametrize("many", [6, 150])
@pytest.mark.parametrize("caller_steps", [False, True])
def test_failed_environments_of_a_partial_step_are_all_named(caller_steps, many):
    class FailsAtLength(Fails):
        def step(self, action):
            if action == 2:
                raise ValueError("x" * 20_000 + "action 2")
            return super().step(action)

    n = many + 2
    kwargs = {"num_workers": 1, "caller_steps": caller_steps}
    with make(FailsAtLength, "process", n, **kwargs) as pool:
        pool.reset()
        with pytest.raises(WorkerError) as caught:
            pool.step(np.full(many, 2), range(many))
        assert sorted(caught.value.env_ids) == list(range(many))
        assert str(caught.value).count("action 2\n") == 2 * many
        observation, *_, info = pool.step(zeros(pool), range(n))
        assert info["restarted"].tolist() == [True] * many + [False] * 2
        np.testing.assert_array_equal(observation[:, 2], 1)


@pytest.mark.parametrize("path", ["ffi", "callback"])
def test_a_program_goes_on_after_several_failures_of_one_worker(path):
    pool = make(Fails, "process", 4, num_workers=1, batch_size=2)
    with pool:
        env = jaxenvs.HostEnv(pool, path=path)
        state, _ = jax.jit(env.reset)(jax.random.key(0))
        state = jax.jit(env.send)(state, jnp.full(2, 2), jnp.array([0, 1]))
        with pytest.raises(Exception, match="environment 1"):
            jax.block_until_ready(jax.jit(env.recv)(state))
        state, timestep = jax.jit(env.reset)(jax.random.key(1))
        np.testing.assert_array_equal(timestep.observation[:, 2], 0)


class LongInfo(Counter):
    """Has an info that is longer than the memory for it, and slow steps for action 1."""

    def step(self, action):
        if action == 1:
            time.sleep(0.6)
        observation, reward, terminated, truncated, info = super().step(action)
        info["text"] = f"{self.number} {self.count} " + "x" * 5000
        return observation, reward, terminated, truncated, info


@with_and_without_futex
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_long_info_does_not_wait_for_other_environments(backend, is_killed):
    fns = [lambda i=i: LongInfo(i) for i in range(2)]
    with make(fns, backend, None, num_workers=1, batch_size=1, timeout=0.4) as pool:
        pool.reset()
        pool.send(np.array([0, 1]), [0, 1])
        if is_killed:
            wait_until(lambda: pool._backend.channel.num_finished() == 1)
            os.kill(pool._backend.pids[0], signal.SIGKILL)
        *_, info = pool.recv()
        assert info["env_id"].tolist() == [0]
        assert info["text"].tolist() == ["0 1 " + "x" * 5000]


@in_processes
def test_reset_options_are_unaffected_by_later_changes(backend):
    with make(Counter, backend, 2, num_workers=1) as pool:
        options = {"level": [1]}
        pool.reset(options=options)
        options["level"].append(2)
        (pid,) = pool._backend.pids
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pool._backend.pids != [pid])
        pool.reset(options={"level": [1]})
        assert pool.get_attr("options") == ({"level": [1]},) * 2


class _OnlyHere:
    def __reduce__(self):
        return _only_in, (os.getpid(),)


def _only_in(pid):
    if os.getpid() != pid:
        raise ValueError("only there")
    return _OnlyHere()


@in_processes
def test_arguments_failing_to_unpickle_are_an_error_of_the_call(backend):
    with make(Counter, backend, 2) as pool:
        pids = pool.call("process")
        with pytest.raises(WorkerError, match="only there"):
            pool.reset(options={"what": _OnlyHere()})
        with pytest.raises(WorkerError, match="only there"):
            pool.set_attr("length", _OnlyHere())
        pool.reset()
        assert pool.call("process") == pids


def test_hang_after_vain_restarts_does_not_suggest_on_failure(until):
    class Hangs(Counter):
        def step(self, action):
            hang(until)

    pool = make(Hangs, "thread", 1, timeout=0.05, on_failure="restart", num_workers=1)
    pool.reset()
    pool._backend._hangs[0] = 3
    with pytest.raises(EnvTimeoutError, match="Constructing them again did not help") as caught:
        pool.step(zeros(pool))
    assert "on_failure" not in str(caught.value)
    pool.close(grace=0.1)
