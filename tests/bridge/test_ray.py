"""Pools of Ray actors, on a cluster of several nodes that the tests start."""

import ctypes
import os
import subprocess
import sys
import threading
import time

import cloudpickle
import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.bridge.backends._ray_actor import Actor
from jaxenvs.bridge.backends.backend import Settings
from jaxenvs.bridge.memory.arrays import MODES
from jaxenvs.bridge.memory.channel import RESET_ALL, STEP_ALL
from jaxenvs.errors import ClosedError, EnvTimeoutError, MissingExtraError, PoolError, WorkerError
from tests.bridge.envs import Counter, Misbehaving, same

pytestmark = pytest.mark.interop

NODE = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 * 2**20}
# Ray's own patience with a silent node is ten seconds and more.
QUICK = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 200,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 2,
}


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core; the driver is on the first."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "_system_config": QUICK})
    nodes = [cluster.head_node, cluster.add_node(**NODE)]
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    assert not any(node.any_processes_alive() for node in nodes)


class _OnNode(Counter):
    def node(self):
        import ray

        return ray.get_runtime_context().get_node_id()

    def draw(self):
        return ctypes.CDLL(None).rand()


def counters(n, **kwargs):
    return [lambda i=i: _OnNode(number=i, **kwargs) for i in range(n)]


def make(env_fns, **kwargs):
    return jaxenvs.make_pool(env_fns, backend="ray", **kwargs)


def test_ray_pool_matches_the_serial_pool_step_for_step(cluster):
    modes = {"autoreset_mode": "same_step", "time_limit": 7}
    with make(counters(6), **modes) as pool, make_serial(counters(6), **modes) as other:
        assert pool.num_workers == 2  # the cores of the cluster
        assert len(set(pool.call("node"))) == 2
        found, expected = pool.reset(seed=3), other.reset(seed=3)
        same(found, expected)
        rng = np.random.default_rng(0)
        for _ in range(30):
            actions = rng.integers(0, 3, 6)
            same(pool.step(actions), other.step(actions))


def make_serial(env_fns, **kwargs):
    return jaxenvs.make_pool(env_fns, backend="serial", **kwargs)


def test_send_and_recv_return_whoever_is_first(cluster):
    fns = [
        *(lambda i=i: Counter(number=i, length=1000) for i in range(3)),
        lambda: Counter(number=3, length=1000, seconds=0.3),
    ]
    with make(fns, batch_size=2, num_workers=4) as pool:
        pool.async_reset()
        counts = np.zeros(4, int)
        end = time.monotonic() + 60
        while counts[:3].min() < 20:  # an actor may answer its first call late on a busy machine
            assert time.monotonic() < end
            observation, _, _, _, info = pool.recv()
            np.testing.assert_array_equal(observation[:, 0], info["env_id"])
            np.testing.assert_array_equal(observation[:, 2], counts[info["env_id"]])
            counts[info["env_id"]] += 1
            pool.send(np.zeros(2, int), info["env_id"])
        assert counts[3] < counts[:3].min()


def test_each_actor_has_its_own_global_generators(cluster):
    with make(counters(2), num_workers=2) as pool:
        assert len(set(pool.call("draw"))) == 2


def test_ray_carries_calls_attributes_frames_options_and_infos(cluster):
    def talkative():
        class Talkative(Counter):
            def reset(self, **kwargs):
                observation, info = super().reset(**kwargs)
                return observation, {**info, "text": "x" * 5000, "options": str(self.options)}

        return Talkative()

    with make([talkative, lambda: Misbehaving("", ""), talkative], num_workers=2) as pool:
        _, info = pool.reset(options={"level": 4})
        assert info["text"][2] == "x" * 5000 and info["options"][2] == "{'level': 4}"
        pool.set_attr("number", [5, 6, 7])
        assert pool.get_attr("number") == (5, 6, 7)
        assert [picture[0, 0, 0] for picture in pool.render(env_ids=[2, 0])] == [7, 5]
        with pytest.raises(WorkerError, match=r"environment 1 .*worker 1.*deliberate") as caught:
            pool.call("raises", env_ids=[1])
        assert caught.value.env_ids == (1,)


def test_a_node_is_killed_and_the_pool_goes_on(cluster):
    import ray

    cluster.add_node(**NODE)
    nodes = {node.node_id: node for node in cluster.worker_nodes}
    nodes.pop(ray.get_runtime_context().get_node_id(), None)  # the driver's
    with make(counters(8, length=10**6), num_workers=4) as pool:
        pool.reset()
        where = pool.call("node")
        node = next(nodes[each] for each in where if each in nodes)
        lost = np.array(where) == node.node_id
        assert 0 < lost.sum() < 8
        actions = np.zeros(8, int)
        for _ in range(3):
            pool.step(actions)
        cluster.remove_node(node, allow_graceful=False)
        count, restarted = np.full(8, 3), np.zeros(8, bool)
        end = time.monotonic() + 30
        while not restarted[lost].all():  # Ray ends the node's processes in the next second
            assert time.monotonic() < end
            observation, _, terminated, truncated, info = pool.step(actions)
            count = np.where(info["restarted"], 0, count + 1)
            restarted |= info["restarted"]
            np.testing.assert_array_equal(observation[:, 2], count)
            np.testing.assert_array_equal(info["elapsed_step"], count)
            np.testing.assert_array_equal(truncated, info["restarted"])
            assert not terminated.any()
        np.testing.assert_array_equal(restarted, lost)
        assert node.node_id not in pool.call("node")
    assert ray.is_initialized()  # which is not ours to end


def test_a_process_that_dies_within_a_step_is_replaced(cluster, tmp_path):
    fns = [Counter, lambda: Misbehaving("is_killed", str(tmp_path / "once")), Counter]
    with make(fns, num_workers=3) as pool:
        pool.reset()
        flags = np.stack([pool.step([0, 0, 0])[4]["restarted"] for _ in range(4)])
        np.testing.assert_array_equal(flags.sum(0), [0, 1, 0])


def test_environment_that_always_dies_ends_the_pool(cluster, monkeypatch):
    monkeypatch.setattr("jaxenvs.bridge.backends.ray._DEATHS_IN_A_ROW", 1)

    def suicidal():
        class Suicidal(Counter):
            def reset(self, **kwargs):
                os._exit(1)

        return Suicidal()

    with make([suicidal], num_workers=1) as pool:
        with pytest.raises(WorkerError, match="times in a row without an answer") as caught:
            pool.reset()
        assert "cannot continue" in str(caught.value)
        with pytest.raises(WorkerError, match="cannot continue"):
            pool.reset()


def test_errors_of_environments_come_with_their_traceback(cluster, tmp_path):
    fns = [Counter, lambda: Misbehaving("raises", str(tmp_path / "once"))]
    with make(fns, num_workers=2) as pool:
        pool.reset()
        pool.step([0, 0])
        with pytest.raises(WorkerError, match=r"environment 1 .*deliberate") as caught:
            pool.step([0, 0])
        assert caught.value.env_ids == (1,) and "in raises" in str(caught.value)
        assert pool.step([0, 0])[0].shape == (2, 3)
    with pytest.raises(WorkerError, match=r"environment 0 .*constructor") as caught:
        make([lambda: Misbehaving("raises", str(tmp_path / "again"), "init")], num_workers=1)
    assert "deliberate" in str(caught.value)


def test_hanging_environment_is_restarted_and_the_others_go_on(cluster, tmp_path):
    fns = [Counter, lambda: Misbehaving("hangs", str(tmp_path / "once"))]
    with make(fns, num_workers=2, timeout=2.0, on_failure="restart") as pool:
        pool.reset()
        flags = np.stack([pool.step([0, 0])[4]["restarted"] for _ in range(3)])
        np.testing.assert_array_equal(flags.sum(0), [0, 1])


def test_environment_that_always_hangs_ends_the_pool(cluster, monkeypatch):
    monkeypatch.setattr("jaxenvs.bridge.backends.ray._DEATHS_IN_A_ROW", 0)

    class Hanging(Counter):
        def step(self, action):
            time.sleep(60)

    with make([Hanging], num_workers=1, timeout=1.0, on_failure="restart") as pool:
        pool.reset()
        with pytest.raises(WorkerError, match="in a row without an answer"):
            pool.step([0])


def test_a_step_ends_when_another_thread_closes_the_pool(cluster):
    class Hanging(Counter):
        def step(self, action):
            time.sleep(60)

    pool = make([Hanging], num_workers=1)
    pool.reset()
    closing = threading.Timer(0.3, pool.close, kwargs={"grace": 0.2})
    closing.start()
    with pytest.raises(ClosedError):
        pool.step([0])
    closing.join()


def test_call_is_repeated_in_a_new_process_unless_it_timed_out(cluster, tmp_path):
    class Called(Counter):
        def exits_once(self):
            if not (tmp_path / "exited").exists():
                (tmp_path / "exited").touch()
                os._exit(1)
            return "there"

        def hangs(self):
            with open(tmp_path / "hung", "a") as file:
                file.write("x")
            time.sleep(60)

    with make([Counter, Called], num_workers=2, timeout=3.0, on_failure="restart") as pool:
        pool.reset()
        assert pool.call("exits_once", env_ids=[1]) == ("there",)
        np.testing.assert_array_equal(pool.step([0, 0])[4]["restarted"], [False, True])
        with pytest.raises(EnvTimeoutError, match="constructed again") as caught:
            pool.call("hangs", env_ids=[1])
        assert caught.value.env_ids == (1,)
        np.testing.assert_array_equal(pool.step([0, 0])[4]["restarted"], [False, True])
        assert (tmp_path / "hung").read_text() == "x"


def test_a_pool_whose_actor_hangs_closes_in_time(cluster):
    class Hanging(Counter):
        def close(self):
            time.sleep(60)

    pool = make([Hanging], num_workers=1)
    process = pool.call("process")[0]
    start = time.monotonic()
    pool.close(grace=0.2)
    assert time.monotonic() - start < 5
    while os.path.exists(f"/proc/{process}"):
        assert time.monotonic() - start < 10
        time.sleep(0.05)


def test_a_pool_ends_the_ray_that_it_started(cluster):
    code = (
        "import jaxenvs, ray\n"
        "pool = jaxenvs.make_pool('CartPole-v1', 2, backend='ray', num_workers=1)\n"
        "pool.reset(seed=0); pool.step([0, 1]); print(ray.is_initialized())\n"
        "pool.close(); print(ray.is_initialized())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"RAY_ADDRESS": cluster.address},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.split() == ["True", "False"], done.stderr


def test_closed_pools_leave_no_actor(cluster):
    with make([Counter] * 2, num_workers=2) as pool:
        processes = pool.call("process")
    end = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}") for pid in processes):
        assert time.monotonic() < end
        time.sleep(0.05)


def test_an_actor_resets_in_the_mode_of_the_request():
    settings = Settings(
        observation_space=Counter.observation_space,
        action_space=Counter.action_space,
        info_fields={"count": gymnasium.spaces.Box(0, 99, (), np.int32)},
        autoreset_mode="next_step",
        mode_is_open=True,
        time_limit=None,
        validate=True,
        timeout=None,
        lock_step=True,
    )
    for mode, counts, size in (("same_step", [1, 0, 1], 9), ("next_step", [1, 2, 0], 7)):
        actor = Actor()
        actor.make(cloudpickle.dumps([lambda: Counter(length=2)]), 0)
        actor.attach(cloudpickle.dumps(settings))
        seen = []
        for op in (RESET_ALL, STEP_ALL, STEP_ALL, STEP_ALL):
            actions = [] if op == RESET_ALL else [np.zeros(1, int)]
            seeds = np.zeros(1, int) if op == RESET_ALL else None
            arrays, *_ = actor.run(op, 0, None, actions, seeds, None, MODES.index(mode))
            assert len(arrays) == size  # final observations and fields travel where there are any
            seen.append(int(arrays[0][0, 2]))
        assert seen[1:] == counts


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"jaxenvs\[ray\]"):
        make([Counter])


def test_options_of_actors_are_for_ray():
    with pytest.raises(PoolError, match="ray_options"):
        jaxenvs.make_pool([Counter], backend="serial", ray_options={"num_cpus": 1})
