"""Environments in threads of this process, and on an event loop."""

import asyncio
import gc
import logging
import signal
import threading
import time
import warnings

import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import EnvTimeoutError, PoolError, WorkerError
from tests.bridge.conftest import wait_until
from tests.bridge.envs import (
    Composite,
    Counter,
    Meeting,
    Misbehaving,
    collected_while_stepping,
    same_answers,
)


def make(fns, kind="coroutines", **kwargs):
    return jaxenvs.make_pool(fns, **{**KINDS[kind], **kwargs})


class Async:
    """Makes coroutine functions of another environment's methods; counts who is in one."""

    inside = most = 0  # of all at once

    def __init__(self, env, names=("reset", "step", "render", "close"), wait=None):
        self.env, self.wait = env, wait or (lambda: asyncio.sleep(0))
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.cancelled = False
        for name in {"reset", "step", "render", "close"} - set(names):
            setattr(self, name, getattr(env, name))

    async def reset(self, **kwargs):
        return await self._meet(lambda: self.env.reset(**kwargs))

    async def step(self, action):
        return await self._meet(lambda: self.env.step(action))

    async def render(self):
        return await self._meet(self.env.render)

    async def close(self):
        return await self._meet(self.env.close)

    async def _meet(self, function):
        cls = type(self)
        cls.inside += 1
        cls.most = max(cls.most, cls.inside)
        try:
            await self.wait()
            return function()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        finally:
            cls.inside -= 1


@pytest.fixture(autouse=True)
def nothing_is_left():
    Async.inside = Async.most = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # a coroutine that was never awaited
        yield
        gc.collect()
    wait_until(lambda: not pool_threads())


def pool_threads():
    return [t for t in threading.enumerate() if t.name.startswith("jaxenvs-pool")]


KINDS = {
    "one thread": {"backend": "thread", "num_workers": 1},
    "threads": {"backend": "thread", "num_workers": 3},
    "coroutines": {"backend": "asyncio"},
    "one coroutine": {"backend": "asyncio"},
    "ordinary": {"backend": "asyncio"},
}
each_kind = pytest.mark.parametrize("kind", ["threads", "coroutines", "ordinary"])


def of_kind(kind, env):
    if kind == "one coroutine":
        return Async(env, ("render",))
    return Async(env) if kind == "coroutines" else env


class Blocking(gymnasium.Wrapper):
    """Waits for a gate in every step."""

    def __init__(self, env, gate):
        super().__init__(env)
        self.gate = gate

    def step(self, action):
        self.gate.wait(10)
        return self.env.step(action)


def gated(kind, env, gate):
    """An environment whose steps wait for a gate."""
    if kind != "coroutines":
        return Blocking(env, gate)
    return Async(env, ("step",), lambda: _opened(gate))


async def _opened(gate):
    while not gate.is_set():
        await asyncio.sleep(1e-3)


def async_counters(n, **kwargs):
    return [lambda i=i: Async(Counter(i, **kwargs)) for i in range(n)]


@pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers_as_one_loop_does(mode, kind):
    fns = [lambda i=i: Counter(number=i, length=2 + i) for i in range(5)]
    theirs = [lambda fn=fn: of_kind(kind, fn()) for fn in fns]
    rng = np.random.default_rng(0)
    actions = [rng.integers(0, 3, 5) for _ in range(30)]
    same_answers(fns, actions, theirs=theirs, autoreset_mode=mode, **KINDS[kind])


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_nested_spaces_and_a_limit_match_one_loop(mode, kind):
    rng = np.random.default_rng(0)
    actions = [
        {"button": rng.integers(0, 4, 4), "stick": rng.uniform(-1, 1, (4, 2)).astype(np.float32)}
        for _ in range(12)
    ]
    fns, theirs = [Composite] * 4, [lambda: of_kind(kind, Composite())] * 4
    kwargs = {"autoreset_mode": mode, "time_limit": 5, **KINDS[kind]}
    same_answers(fns, actions, theirs=theirs, **kwargs)


class _Rendering(gymnasium.Wrapper):
    def __init__(self):
        super().__init__(Counter())

    async def render(self):
        await asyncio.sleep(0)
        return self.env.render()


def test_coroutines_use_asyncio_and_other_backends_refuse_them():
    with jaxenvs.make_pool([_Rendering] * 2) as pool:
        assert pool.backend == "asyncio"
        assert [frame.shape for frame in pool.render()] == [(2, 3, 3)] * 2
    for backend in ("serial", "thread", "process"):
        with pytest.raises(PoolError, match="coroutine") as raised:
            jaxenvs.make_pool([_Rendering] * 2, backend=backend)
        assert f'backend="{backend}"' in str(raised.value) and "asyncio" in str(raised.value)


def test_coroutines_of_classic_gym_are_awaited():
    """As agymc's users write them: no info from reset, one flag from step."""
    made = []

    class Classic:
        observation_space, action_space = Counter.observation_space, Counter.action_space

        def __init__(self):
            self.env, self.seeds, self.is_open = Counter(length=2), [], True
            made.append(self)

        def seed(self, seed):
            self.seeds.append(seed)

        async def reset(self):
            await asyncio.sleep(0)
            return self.env.reset()[0]

        async def step(self, action):
            await asyncio.sleep(0)
            observation, reward, terminated, _, info = self.env.step(action)
            return observation, reward, terminated, info

        async def close(self):
            await asyncio.sleep(0)
            self.is_open = False

    with make([Classic] * 2, autoreset_mode="same_step") as pool:
        pool.reset(seed=4)
        _, reward, terminated, _, _ = pool.step([0, 0])
        assert reward.tolist() == [1, 1] and not terminated.any()
        observation, reward, terminated, _, info = pool.step([0, 0])
        assert reward.tolist() == [2, 2] and terminated.all()
        assert observation[:, 2].tolist() == [0, 0] and info["final_obs"][1][2] == 2
        assert [env.seeds for env in made] == [[4], [5]]
    assert not any(env.is_open for env in made)


def test_coroutines_wait_at_once_in_every_method():
    pool = make(async_counters(16, length=2), autoreset_mode="same_step")
    for call, calls in (
        (lambda: pool.reset(seed=0), 1),
        (lambda: pool.step(np.zeros(16, int)), 1),
        (lambda: pool.step(np.zeros(16, int)), 1),  # and the resets that follow
        (pool.render, 1),
        (pool.close, 1),
    ):
        Async.most = 0
        for _ in range(calls):
            call()
        assert Async.most == 16 and Async.inside == 0


def test_as_many_environments_wait_at_once_as_there_are_threads():
    meeting = threading.Barrier(8)  # nobody leaves before eight are there
    with make([lambda: Meeting(meeting.wait)] * 16, "threads", num_workers=8) as pool:
        pool.reset(seed=0)
        for _ in range(3):
            assert len(set(pool.step(np.zeros(16, int))[1])) == 1
        assert pool.num_workers == 8


def test_renders_wait_side_by_side():
    meeting = threading.Barrier(4)
    with make([lambda: Meeting(meeting.wait)] * 4, "threads", num_workers=4) as pool:
        assert [frame.shape for frame in pool.render()] == [(1, 1, 3)] * 4


def test_ordinary_environments_wait_side_by_side_with_coroutines():
    meeting = threading.Barrier(4)
    fns = [lambda: Meeting(meeting.wait)] * 4 + [lambda: Async(Meeting(lambda: None))] * 3
    with make(fns) as pool:
        pool.reset(seed=0)
        for step in range(1, 4):
            assert (pool.step(np.zeros(7, int))[1] == step).all()
        assert pool.num_workers == 4


def test_environments_go_on_while_the_caller_does_something_else():
    made = [Async(Counter(i)) for i in range(4)]
    with make([lambda env=env: env for env in made]) as pool:
        pool.reset(seed=0)
        pool.step_async(np.zeros(4, int))
        wait_until(lambda: made[3].env.count == 1)
        assert (pool.step_wait()[1] == 1).all()


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_uneven_environments_come_as_they_finish(kind):
    gate = threading.Event()
    fns = [lambda i=i: of_kind(kind, Counter(i, length=1000)) for i in range(5)]
    fns.append(lambda: gated(kind, Counter(5, length=1000), gate))
    with make(fns, kind, batch_size=2) as pool:
        pool.async_reset(seed=0)
        ids = np.concatenate([pool.recv()[4]["env_id"] for _ in range(3)])
        assert sorted(ids) == list(range(6))
        pool.send(np.zeros(6, int), np.arange(6))
        steps = np.zeros(6, int)
        for _ in range(20):  # the last one is at its first step all the while
            observation, reward, _, _, info = pool.recv()
            assert (observation[:, 0] == info["env_id"]).all() and 5 not in info["env_id"]
            np.add.at(steps, info["env_id"], 1)
            assert (reward == steps[info["env_id"]]).all()
            pool.send(np.zeros(2, int), info["env_id"])
        gate.set()
        seen = set()
        while 5 not in seen:
            info = pool.recv()[4]
            seen |= set(info["env_id"].tolist())
            pool.send(np.zeros(len(info["env_id"]), int), info["env_id"])


@pytest.mark.parametrize("kind", ["one thread", "coroutines"])
def test_async_reset_options_and_seeds_reach_their_environments(kind):
    envs = [Counter(i) for i in range(4)]
    with make([lambda env=env: of_kind(kind, env) for env in envs], kind, batch_size=2) as pool:
        pool.async_reset(seed=3, options={"level": 1}, env_ids=[0, 1])
        pool.async_reset(seed=5, options={"level": 2}, env_ids=[3, 2])
        for _ in range(2):
            pool.recv()
        assert [env.options["level"] for env in envs] == [1, 1, 2, 2]
        assert [env.seed for env in envs] == [3, 4, 7, 8]


def test_asyncio_pool_works_inside_a_running_event_loop():
    async def cell():
        with make(async_counters(3)) as pool:
            pool.reset(seed=0)
            await asyncio.sleep(0)
            return pool.step(np.zeros(3, int))[1]

    assert asyncio.run(cell()).tolist() == [1, 1, 1]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("where", ["step", "reset", "render", "close"])
def test_coroutine_exception_is_raised_with_its_traceback(where, mode, marker):
    fns = [*async_counters(2), lambda: Async(Misbehaving("raises", marker, where))]
    pool = make(fns, autoreset_mode=mode)
    pool.reset(seed=0)

    def run():
        for _ in range(7):
            pool.step(np.zeros(3, int))
        pool.render()
        pool.close()

    with pytest.raises(WorkerError, match="deliberate") as raised:
        run()
    text = str(raised.value)
    assert raised.value.env_ids == (2,) and "in raises" in text and f"failed in {where}" in text
    assert "backends/" not in text  # frames of ours
    if where in ("step", "reset"):
        assert pool.step(np.zeros(3, int))[4]["restarted"].tolist() == [False, False, True]
        assert not pool.step(np.zeros(3, int))[4]["restarted"].any()
    pool.close()
    assert not pool_threads()


@each_kind
def test_environment_raising_system_exit_ends_no_thread(kind, marker):
    fns = [lambda: of_kind(kind, Misbehaving("exits", marker))] * 2
    with make(fns, kind, num_workers=1) as pool:
        pool.reset(seed=0)

        def run():
            for _ in range(4):
                pool.step(np.zeros(2, int))

        with pytest.raises(WorkerError, match="SystemExit"):
            run()
        pool.step(np.zeros(2, int))


def test_a_constructor_that_raises_leaves_no_thread():
    closed = []

    class Closing(Async):
        async def close(self):
            await asyncio.sleep(0)
            closed.append(self)

    def fails():
        raise ValueError("a deliberate error")

    with pytest.raises(Exception, match="deliberate"):
        make([lambda: Closing(Counter()), fails])
    assert len(closed) == 1


@pytest.mark.parametrize("kind", ["one thread", "threads", "coroutines"])
def test_hanging_environment_is_named_and_can_be_waited_for(kind):
    gate = threading.Event()
    fns = [lambda i=i: of_kind(kind, Counter(i)) for i in range(3)]
    fns[1] = lambda: gated(kind, Counter(1), gate)
    with make(fns, kind, timeout=0.1) as pool:
        pool.reset(seed=0)
        with pytest.raises(EnvTimeoutError, match="environment 1") as raised:
            pool.step(np.zeros(3, int))
        assert raised.value.env_ids == (1,)
        gate.set()
        assert pool.step_wait()[1].tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("together", [True, False])
@each_kind
def test_hanging_environment_is_replaced_and_the_old_one_closed(kind, together, mode, caplog):
    gate, made, coroutines = threading.Event(), [], []

    def hangs_once():
        first = not made
        if kind != "coroutines":
            made.append(Meeting(gate.wait if first else lambda: None))
            return made[-1]
        made.append(Meeting(lambda: None))
        wait = (lambda: asyncio.sleep(60)) if first else None
        coroutines.append(Async(made[-1], ("step",), wait))
        return coroutines[-1]

    fns = [lambda: Meeting(lambda: None), hangs_once]
    options = {"timeout": 0.1, "on_failure": "restart", "batch_size": 2 if together else 1}
    with (
        caplog.at_level(logging.WARNING, "jaxenvs"),
        make(fns, kind, **options, autoreset_mode=mode, num_workers=2) as pool,
    ):
        pool.reset(seed=0)
        if together:
            batches = [pool.step(np.zeros(2, int))]
        else:
            pool.send(np.zeros(2, int), [0, 1])
            batches = [pool.recv(), pool.recv()]
        seen = {}
        for batch in batches:
            for i, row in enumerate(batch[4]["env_id"].tolist()):
                seen[row] = batch[3][i], batch[4]["restarted"][i], batch[4]["elapsed_step"][i]
        assert seen == {0: (False, False, 1), 1: (True, True, 0)}
        assert "environment 1" in caplog.text and len(made) == 2
        gate.set()  # the old one comes back, writes nowhere and is closed
        for step in range(2, 5):
            _, reward, _, truncated, _ = pool.step(np.zeros(2, int))
            assert reward.tolist() == [step, step - 1] and not truncated.any()
        wait_until(lambda: made[0].closed and not made[1].closed)
        assert all(each.cancelled for each in coroutines[:1])
    assert made[1].closed and not pool_threads()


def test_close_gives_up_on_a_hanging_environment_after_grace(caplog):
    gate, began = threading.Event(), threading.Event()
    made = [Meeting(lambda: None), Meeting(lambda: (began.set(), gate.wait()))]
    pool = make([lambda env=env: env for env in made], "threads", num_workers=2)
    pool.reset(seed=0)
    pool.step_async(np.zeros(2, int))
    assert began.wait(5)
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, "jaxenvs"):
        pool.close(grace=0.2)
    assert time.monotonic() - begun < 2
    assert made[0].closed and "environments [1]" in caplog.text
    gate.set()
    wait_until(lambda: not pool_threads())


def test_coroutine_that_blocks_the_loop_is_named_in_the_timeout():
    gate = threading.Event()

    async def blocks():
        gate.wait()

    fns = [lambda: Async(Counter(0)), lambda: Async(Counter(1), ("step",), blocks)]
    fns.append(lambda: Async(Counter(2)))
    with make(fns, timeout=0.1, on_failure="restart") as pool:
        pool.reset(seed=0)
        with pytest.raises(EnvTimeoutError, match="environment 1 ") as raised:
            pool.step(np.zeros(3, int))
        assert raised.value.env_ids == (1,)
        gate.set()
        assert pool.step_wait()[1].tolist() == [1.0, 1.0, 1.0]


def test_close_cancels_hanging_coroutines(caplog):
    forever = lambda: asyncio.sleep(60)  # noqa: E731
    made = [Async(Counter(0)), Async(Counter(1), ("step",), forever)]
    stubborn = Async(Counter(2), ("close",), forever)
    pool = make([lambda env=env: env for env in (*made, stubborn)])
    pool.reset(seed=0)
    pool.step_async(np.zeros(3, int))
    wait_until(lambda: Async.inside == 1)  # what has not begun is not run at all
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, "jaxenvs"):
        pool.close(grace=0.2)
    assert time.monotonic() - begun < 2
    assert made[1].cancelled and stubborn.cancelled and "environments [2]" in caplog.text


@pytest.mark.parametrize("kind", ["one thread", "coroutines", "one coroutine", "ordinary"])
def test_requests_that_have_not_begun_do_not_delay_close(kind, caplog):
    with (
        caplog.at_level(logging.WARNING, "jaxenvs"),
        make([lambda: of_kind(kind, Counter())] * 16, kind, batch_size=4, num_workers=1) as pool,
    ):
        pool.async_reset(seed=0)
    assert not caplog.text


def test_ctrl_c_leaves_a_pool_that_can_be_reset():
    waits = [None, lambda: asyncio.sleep(60)]
    with make([lambda i=i: Async(Counter(i), ("step",), waits[i]) for i in range(2)]) as pool:
        pool.reset(seed=0)
        threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            pool.step(np.zeros(2, int))
        pool.reset(seed=1)  # what hung is cancelled
        pool.set_attr("wait", _soon)
        for step in range(1, 4):
            assert pool.step(np.zeros(2, int))[1].tolist() == [step, step]


async def _soon():
    await asyncio.sleep(0)


def test_asyncio_sleep_of_100_us_takes_under_a_millisecond():
    """epoll alone would round 100 us up to a millisecond."""
    with make([lambda: Async(Counter(length=10**6), ("step",), _briefly)]) as pool:
        pool.reset(seed=0)
        took = []
        for _ in range(40):
            begun = time.perf_counter()
            pool.step(np.zeros(1, int))
            took.append(time.perf_counter() - begun)
        assert min(took) < 0.9e-3


async def _briefly():
    await asyncio.sleep(1e-4)


@each_kind
def test_pool_collected_by_one_of_its_environments_is_closed(kind):
    with collected_while_stepping(
        lambda fns: make(fns, kind), lambda env: of_kind(kind, env)
    ) as made:
        wait_until(lambda: all(env.closed for env in made) and not pool_threads())


@pytest.mark.parametrize("kind", ["threads", "coroutines"])
def test_closed_and_forgotten_pools_leave_no_threads(kind):
    fns = [*[lambda: of_kind(kind, Counter())] * 3, Counter]
    for _ in range(20):
        with make(fns, kind) as pool:
            pool.reset(seed=0)
            pool.step_async(np.zeros(4, int))
    assert not pool_threads()
    pool = make(fns, kind)
    del pool
    wait_until(lambda: not pool_threads())


def test_info_fields_of_coroutines_are_found_in_a_running_loop():
    async def made_within_a_loop():
        with make([lambda: Async(Counter())] * 2, info_fields=["count"]) as pool:
            pool.reset(seed=0)
            return pool.step([0, 0])[4]["count"].tolist()

    assert asyncio.run(made_within_a_loop()) == [1, 1]
