"""Pools whose caller steps some of the environments itself."""

import os
import time

import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.bridge.memory.channel import INTERRUPTED, TIMEOUT
from jaxenvs.errors import ClosedError, PoolError, WorkerError
from tests.bridge.envs import Counter, Misbehaving, counters, tell, wait_until_told


def shared(env, n=None, **kwargs):
    options = {"backend": "process", "caller_steps": True, "num_workers": 1, **kwargs}
    return jaxenvs.make_pool(env, n, **options)


def test_the_callers_share_and_the_workers_make_one_batch():
    theirs = gymnasium.make_vec("CartPole-v1", 5, vectorization_mode="sync")
    with shared("CartPole-v1", 5, num_workers=2) as pool:
        assert pool.caller_steps and pool.worker_bounds == (1, 3, 5)
        np.testing.assert_array_equal(pool.reset(seed=3)[0], theirs.reset(seed=3)[0])
        rng = np.random.default_rng(0)
        for _ in range(200):
            actions = rng.integers(0, 2, 5)
            for mine, their in zip(pool.step(actions)[:4], theirs.step(actions)[:4], strict=True):
                np.testing.assert_array_equal(mine, their)


def test_a_step_can_be_begun_and_waited_for():
    with shared(counters(4)) as pool:
        pool.reset()
        pool.step_async([0, 1, 2, 0])
        observation, reward, _, _, info = pool.step_wait()
        np.testing.assert_array_equal(observation[:, 0], np.arange(4))
        np.testing.assert_array_equal(reward, 1)
        np.testing.assert_array_equal(info["action"], [0, 1, 2, 0])


def test_recv_returns_environments_as_they_finish_once_each():
    with shared(counters(5, length=1000), batch_size=2) as pool:
        pool.async_reset(seed=0)
        counts = np.zeros(5, int)
        for _ in range(60):
            observation, _, _, _, info = pool.recv()
            ids = info["env_id"]
            np.testing.assert_array_equal(observation[:, 0], ids)
            np.testing.assert_array_equal(info["elapsed_step"], counts[ids])
            counts[ids] += 1
            pool.send(np.zeros(2, int), ids)
        assert pool.num_pending == 5


@pytest.mark.parametrize(
    ("n", "workers", "batch_size"), [(6, 1, 3), (6, 1, 1), (7, 2, 2), (8, 3, 5)]
)
def test_recv_takes_turns_when_all_environments_are_finished(n, workers, batch_size):
    """The caller's own are always at hand, and so are the workers' if they are fast."""
    with shared(counters(n, length=1000), num_workers=workers, batch_size=batch_size) as pool:
        pool.async_reset(seed=0)
        counts, lines = np.zeros(n, int), pool._backend._others.channel
        for _ in range(20 * n):
            while any(asked != done for asked, done, _ in map(lines.counts, range(workers))):
                time.sleep(0)
            ids = pool.recv()[4]["env_id"]
            counts[ids] += 1
            pool.send(np.zeros(batch_size, int), ids)
        assert counts.min() > counts.max() / 2, counts


class _Waits(Counter):
    def __init__(self, marker):
        super().__init__()
        self.marker = marker

    def step(self, action):
        wait_until_told(self.marker)
        return super().step(action)


def test_slow_worker_does_not_hold_up_the_callers_environments(marker):
    slow = lambda: _Waits(marker)  # noqa: E731
    with shared([*counters(2, length=1000), slow, slow], batch_size=2) as pool:
        pool.reset()
        pool.send(np.zeros(4, int))
        for _ in range(5):
            ids = pool.recv()[4]["env_id"]
            assert ids.tolist() == [0, 1]
            pool.send([0, 0], ids)
        tell(marker)
        seen = {int(i) for _ in range(2) for i in pool.recv()[4]["env_id"]}
        assert seen == {0, 1, 2, 3}


def _send_and_receive_all(pool):
    pool.send(np.zeros(pool.num_envs, int))
    while pool.num_pending:
        pool.recv()


@pytest.mark.parametrize("how", ["between", "within"])
def test_requests_begun_before_ctrl_c_are_never_received(how, monkeypatch):
    with shared(counters(6, length=100), batch_size=2) as pool:
        pool.reset()
        part = pool._backend if how == "between" else pool._backend._mine
        method = part.start_some if how == "between" else part.take_next

        def cut(*args):
            method(*args)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(part, method.__name__, cut)
            with pytest.raises(KeyboardInterrupt):
                _send_and_receive_all(pool)
        for _ in range(2):
            pool.async_reset(seed=0)
            seen = []
            while pool.num_pending:
                observation, *_, info = pool.recv()
                np.testing.assert_array_equal(observation[:, 2], 0)
                seen += info["env_id"].tolist()
            assert sorted(seen) == [0, 1, 2, 3, 4, 5]


def test_call_cut_by_ctrl_c_does_not_hide_finished_environments(monkeypatch):
    with shared(counters(4, length=1000), batch_size=1) as pool:
        pool.reset()
        process = pool._backend._others._processes[0]

        def cut(seconds=None):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(process, "receive_packed", cut)
            with pytest.raises(KeyboardInterrupt):
                pool.call("process", env_ids=[3])
        pool.send(np.zeros(4, int))
        seen = set()
        for _ in range(400):
            ids = pool.recv()[4]["env_id"]
            seen |= set(ids.tolist())
            pool.send([0], ids)
            time.sleep(0 if len(seen) == 4 else 0.001)
        assert seen == {0, 1, 2, 3}


@pytest.mark.parametrize("how", [INTERRUPTED, TIMEOUT])
def test_callers_exception_is_raised_after_a_wait_is_cut_short(how, tmp_path, monkeypatch):
    with shared(
        [lambda: Misbehaving("raises", str(tmp_path / "done"), at=1), *counters(1)]
    ) as pool:
        pool.reset()
        others = pool._backend._others
        take, statuses = others.take, []

        def cut(out, timeout):
            if timeout != 0:
                statuses.append(how if not statuses else take(out, timeout))
                return statuses[-1]
            return TIMEOUT

        monkeypatch.setattr(others, "take", cut)
        pool.send([0, 0], [1, 0])
        with pytest.raises(WorkerError, match="deliberate") as caught:
            pool.recv()
        assert caught.value.env_ids == (0,) and len(statuses) == 2
        assert pool.recv()[4]["restarted"].tolist() == [True, False]


def test_calls_reach_both_processes():
    with shared(counters(4)) as pool:
        pool.reset(options={"level": 3})
        pids = pool.call("process")
        assert pids[:2] == (os.getpid(),) * 2 and len({*pids}) == 2
        pool.set_attr("length", [1, 2, 3, 4])
        assert pool.get_attr("length") == (1, 2, 3, 4)
        assert pool.get_attr("options") == ({"level": 3},) * 4
        assert [frame[0, 0, 0] for frame in pool.render([3, 0])] == [3, 0]


@pytest.mark.parametrize("which", [0, 1])
def test_an_exception_names_its_environment_on_either_side(which, tmp_path):
    fns = counters(2)
    fns[which] = lambda: Misbehaving("raises", str(tmp_path / "done"), at=2)
    with shared(fns) as pool:
        pool.reset()
        pool.step([0, 0])
        with pytest.raises(WorkerError, match="deliberate") as caught:
            pool.step([0, 0])
        assert caught.value.env_ids == (which,)
        *_, info = pool.step([0, 0])
        assert info["restarted"].tolist() == [which == 0, which == 1]


def test_killed_worker_is_replaced_while_the_caller_goes_on(tmp_path):
    fns = [counters(1)[0], lambda: Misbehaving("is_killed", str(tmp_path / "done"), at=2)]
    with shared(fns) as pool:
        pool.reset()
        pool.step([0, 0])
        observation, _, _, truncated, info = pool.step([0, 0])
        assert info["restarted"].tolist() == truncated.tolist() == [False, True]
        assert observation[:, 2].tolist() == [2, 0]


class _Closes(Counter):
    def __init__(self, path):
        super().__init__()
        self.path = path

    def close(self):
        with open(self.path, "a") as file:
            file.write("closed\n")


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_fork_of_the_caller_steps_nothing_and_closes_nothing(tmp_path):
    path = tmp_path / "closed"
    with shared([lambda: _Closes(path), *counters(1)]) as pool:
        pool.reset()
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                with pytest.raises(ClosedError, match="forked from"):
                    pool.step([0, 0])
                pool.close()
                pool._backend.close(0)
                status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert pool.step([0, 0])[0][:, 2].tolist() == [1, 1]
        assert not path.exists()
    assert path.read_text() == "closed\n"


def test_caller_steps_with_nobody_to_share_with_is_refused():
    with pytest.raises(PoolError, match="for the caller"):
        shared(counters(2), num_workers=2)
    with pytest.raises(PoolError, match='backend="process"'):
        shared(counters(2), backend="serial")
