"""Environments in threads of this process."""

import logging
import signal
import threading
import time

import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import EnvTimeoutError, WorkerError
from tests.bridge.envs import (
    Composite,
    Counter,
    Meeting,
    Misbehaving,
    collected_while_stepping,
    same_answers,
)


def make(fns, **kwargs):
    return jaxenvs.make_pool(fns, backend="thread", **kwargs)


def counters(n, **kwargs):
    return [lambda i=i: Counter(number=i, **kwargs) for i in range(n)]


def pool_threads():
    return [t for t in threading.enumerate() if t.name.startswith("jaxenvs-pool")]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("num_workers", [1, 3])
def test_threads_answer_as_one_loop_does(mode, num_workers):
    fns = [lambda i=i: Counter(number=i, length=2 + i) for i in range(5)]
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 3, 5) for _ in range(30)]
    same_answers(fns, actions, "thread", autoreset_mode=mode, num_workers=num_workers)


def test_threads_with_nested_spaces_and_limit_match_one_loop():
    rng = np.random.default_rng(0)
    actions = [
        {"button": rng.integers(0, 4, 4), "stick": rng.uniform(-1, 1, (4, 2)).astype(np.float32)}
        for _ in range(12)
    ]
    for mode in ("next_step", "same_step"):
        same_answers([Composite] * 4, actions, "thread", autoreset_mode=mode, time_limit=5)


def test_as_many_environments_wait_at_once_as_there_are_threads():
    meeting = threading.Barrier(8)  # nobody leaves before eight are there
    with make([lambda: Meeting(meeting.wait)] * 16, num_workers=8) as pool:
        pool.reset(seed=0)
        for _ in range(3):
            assert len(set(pool.step(np.zeros(16, int))[1])) == 1
        assert pool.num_workers == 8


def test_renders_wait_side_by_side():
    meeting = threading.Barrier(4)
    with make([lambda: Meeting(meeting.wait)] * 4) as pool:
        assert [frame.shape for frame in pool.render()] == [(1, 1, 3)] * 4


def test_uneven_environments_come_as_they_finish():
    gate = threading.Event()
    fns = [*counters(5), lambda: Meeting(lambda: gate.wait(10))]
    with jaxenvs.make_pool(
        [lambda fn=fn: _Plain(fn()) for fn in fns], backend="thread", batch_size=2
    ) as pool:
        pool.async_reset(seed=0)
        steps = np.zeros(6, int)
        ids = np.concatenate([pool.recv()[4]["env_id"] for _ in range(3)])
        assert sorted(ids) == list(range(6))
        pool.send(np.zeros(6, int), np.arange(6))
        for _ in range(20):  # the last one is at its first step all the while
            _, _, _, _, info = pool.recv()
            assert 5 not in info["env_id"]
            np.add.at(steps, info["env_id"], 1)
            pool.send(np.zeros(2, int), info["env_id"])
        gate.set()
        seen = set()
        while 5 not in seen:
            info = pool.recv()[4]
            seen |= set(info["env_id"].tolist())
            pool.send(np.zeros(len(info["env_id"]), int), info["env_id"])
        assert (steps[:5] > 0).all()


class _Plain(gymnasium.Wrapper):
    """Gives environments of different kinds one observation."""

    observation_space = gymnasium.spaces.Box(-1, 1e6, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def reset(self, **kwargs):
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), *self.env.step(action)[1:]


def test_async_reset_options_and_seeds_reach_their_environments():
    with make(counters(4), batch_size=2, num_workers=1) as pool:
        pool.async_reset(seed=3, options={"level": 1}, env_ids=[0, 1])
        pool.async_reset(seed=5, options={"level": 2}, env_ids=[3, 2])
        for _ in range(2):
            pool.recv()
        levels = [options["level"] for options in pool.get_attr("options")]
        assert levels == [1, 1, 2, 2] and pool.get_attr("seed") == (3, 4, 7, 8)


@pytest.mark.parametrize("where", ["step", "reset", "render", "close"])
def test_environment_exception_is_raised_with_its_traceback(where, tmp_path):
    marker = str(tmp_path / "done")
    pool = make([*counters(2), lambda: Misbehaving("raises", marker, where)])
    pool.reset(seed=0)

    def run():
        for _ in range(7):
            pool.step(np.zeros(3, int))
        pool.render()
        pool.close()

    with pytest.raises(WorkerError, match="deliberate") as raised:
        run()
    assert raised.value.env_ids == (2,) and "in raises" in str(raised.value)
    assert "backends/" not in str(raised.value)  # frames of ours
    if where in ("step", "reset"):
        assert pool.step(np.zeros(3, int))[4]["restarted"].tolist() == [False, False, True]
    pool.close()
    assert not pool_threads()


def test_environment_raising_system_exit_does_not_end_a_thread(tmp_path):
    marker = str(tmp_path / "done")
    with make([lambda: Misbehaving("exits", marker)] * 2, num_workers=1) as pool:
        pool.reset(seed=0)

        def run():
            for _ in range(4):
                pool.step(np.zeros(2, int))

        with pytest.raises(WorkerError, match="SystemExit"):
            run()
        pool.step(np.zeros(2, int))


@pytest.mark.parametrize("num_workers", [1, 3])
def test_hanging_environment_is_named_and_can_be_waited_for(num_workers):
    gate = threading.Event()
    fns = [lambda: Meeting(lambda: None), lambda: Meeting(gate.wait), lambda: Meeting(lambda: None)]
    with make(fns, timeout=0.1, num_workers=num_workers) as pool:
        pool.reset(seed=0)
        with pytest.raises(EnvTimeoutError, match="environment 1") as raised:
            pool.step(np.zeros(3, int))
        assert raised.value.env_ids == (1,)
        gate.set()
        assert pool.step_wait()[1].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("together", [True, False])
def test_hanging_environment_is_abandoned_and_replaced(together, caplog):
    gate, made = threading.Event(), []

    def hangs_once():
        made.append(Meeting(gate.wait if not made else lambda: None))
        return made[-1]

    fns = [lambda: Meeting(lambda: None), hangs_once]
    with (
        caplog.at_level(logging.WARNING, "jaxenvs"),
        make(fns, timeout=0.1, on_failure="restart", batch_size=2 if together else 1) as pool,
    ):
        pool.reset(seed=0)
        seen = {}
        for _ in range(1 if together else 2):
            if together:
                batch = pool.step(np.zeros(2, int))
            elif seen:
                batch = pool.recv()
            else:
                pool.send(np.zeros(2, int), [0, 1])
                batch = pool.recv()
            for i, row in enumerate(batch[4]["env_id"].tolist()):
                seen[row] = batch[3][i], batch[4]["restarted"][i], batch[4]["elapsed_step"][i]
        assert seen == {0: (False, False, 1), 1: (True, True, 0)}
        assert "environment 1" in caplog.text and len(made) == 2
        gate.set()  # the old one comes back, writes nowhere and is closed
        for step in range(2, 5):
            _, reward, _, truncated, _ = pool.step(np.zeros(2, int))
            assert reward.tolist() == [step, step - 1] and not truncated.any()
        _until(lambda: made[0].closed and not made[1].closed)
    assert made[1].closed and not pool_threads()


def test_close_gives_up_on_a_hanging_environment_after_grace(caplog):
    gate, began = threading.Event(), threading.Event()
    made = [Meeting(lambda: None), Meeting(lambda: (began.set(), gate.wait()))]
    pool = make([lambda env=env: env for env in made])
    pool.reset(seed=0)
    pool.step_async(np.zeros(2, int))
    assert began.wait(5)
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, "jaxenvs"):
        pool.close(grace=0.2)
    assert time.monotonic() - begun < 2
    assert made[0].closed and "environments [1]" in caplog.text
    gate.set()
    _until(lambda: not pool_threads())


def test_ctrl_c_leaves_a_pool_that_can_be_reset():
    gate = threading.Event()
    fns = [lambda: Meeting(lambda: None), lambda: Meeting(lambda: gate.wait(10))]
    with make(fns) as pool:
        pool.reset(seed=0)
        threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            pool.step(np.zeros(2, int))
        threading.Timer(0.1, gate.set).start()
        pool.reset(seed=1)  # waits for the step that was cut off
        for step in range(1, 4):
            assert pool.step(np.zeros(2, int))[1].tolist() == [step, step]


def test_nan_observation_is_refused_naming_its_environment():
    fns = [*counters(2), lambda: _Nan(number=2)]
    with make(fns) as pool:
        pool.reset(seed=0)
        with pytest.raises(WorkerError, match="NaN") as raised:
            pool.step(np.zeros(3, int))
        assert raised.value.env_ids == (2,)


class _Nan(Counter):
    def step(self, action):
        observation, *rest = super().step(action)
        return observation * np.float32("nan"), *rest


def test_pool_collected_by_one_of_its_environments_is_closed():
    with collected_while_stepping(make) as made:
        _until(lambda: all(env.closed for env in made) and not pool_threads())


def test_closed_and_forgotten_pools_leave_no_threads():
    for _ in range(20):
        with make(counters(8)) as pool:
            pool.reset(seed=0)
            pool.step_async(np.zeros(8, int))
    assert not pool_threads()
    pool = make(counters(8))
    del pool
    _until(lambda: not pool_threads())


def _until(is_so):
    end = time.monotonic() + 30  # a collection takes seconds where much has been compiled
    while not is_so() and time.monotonic() < end:
        time.sleep(0.005)
    assert is_so()
