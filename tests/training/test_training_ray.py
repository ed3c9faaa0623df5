"""Workers as Ray actors, on a cluster of several nodes that the tests start."""

import os
import signal
import sys
import time

import gymnasium
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import MissingExtraError
from jaxenvs.training import A2C, ActorCritic, DiscountedReturns, Learner, Scheme, VTrace, remote
from jaxenvs.training.schemes.worker_group import RayGroup
from tests.bridge.envs import Counter
from tests.bridge.test_ray import NODE, QUICK
from tests.training.test_schemes import children, pool

# Most of a test is that Ray starts processes, which import JAX and compile.
pytestmark = pytest.mark.interop
CPU = {"num_cpus": 1}


@pytest.fixture(scope="module")
def cluster():
    """Three nodes; the driver is on the first, which has no room for workers."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    head = {**NODE, "num_cpus": 0}
    cluster = Cluster(initialize_head=True, head_node_args={**head, "_system_config": QUICK})
    for _ in range(2):
        cluster.add_node(**NODE)
    ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()


def scheme(**parts):
    small = {
        "algorithm": A2C(),
        "actor": ActorCritic(hidden_sizes=(8,)),
        "storage": DiscountedReturns(),
    }
    return Scheme(**{"env": "CartPole-v1", "num_envs": 4, "unroll_length": 4, **small, **parts})


def where(group):
    """Node and process of each worker."""
    import ray

    def ask(actor):
        return ray.get_runtime_context().get_node_id(), os.getpid()

    return ray.get([actor.__ray_call__.remote(ask) for actor in group._actors])


def descendants(process):
    for child in children(process):
        yield child
        yield from descendants(child)


def gone(processes):
    """Waits a little for processes to be gone."""
    end = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{process}") for process in processes):
        assert time.monotonic() < end
        time.sleep(0.05)


def go_on_until(learner, condition, seconds=120):
    """Steps until `condition()`; every step counts as many as it should."""
    end, per_step = time.monotonic() + seconds, learner._executor.steps_per_update
    while not condition():
        assert time.monotonic() < end
        before = learner._environment_steps
        row = learner.step()
        assert row["steps"] == before + per_step
        # The update in which a worker was lost may have had no gradient at all.
        assert all(np.isfinite(row.get(name, 0.0)) for name in ("policy_loss", "value_loss"))


@pytest.mark.parametrize("sync", [False, True], ids=["asynchronous", "synchronous"])
def test_collection_goes_on_when_a_worker_and_a_node_are_killed(cluster, sync):
    import ray

    chosen = scheme(collection=remote(2, sync=sync, resources=CPU), storage=VTrace())
    with Learner(chosen, total_steps=10**6) as learner:
        first = jax.device_get(learner._executor.learner_state.weights.params)
        for _ in range(4):
            learner.step()
        group = learner._executor._source._group
        (node, process), (other, _) = where(group)
        assert node != other
        os.kill(process, signal.SIGKILL)
        go_on_until(learner, lambda: learner.updates >= 20)
        assert where(group)[0][1] != process  # made anew
        go_on_until(learner, lambda: learner.updates >= 24)

        nodes = {each.node_id: each for each in cluster.worker_nodes}
        cluster.add_node(**NODE)
        cluster.remove_node(nodes[other], allow_graceful=False)

        def is_dead():
            return not any(node["NodeID"] == other and node["Alive"] for node in ray.nodes())

        go_on_until(learner, is_dead)
        assert other not in [place for place, _ in where(group)]
        go_on_until(learner, lambda end=learner.updates + 4: learner.updates >= end)
        last = jax.device_get(learner._executor.learner_state.weights.params)
        processes = [process for _, process in where(group)]
    moved = jax.tree.map(lambda x, y: not np.array_equal(x, y), first, last)
    assert any(jax.tree.leaves(moved))
    gone(processes)


def test_workers_know_the_ids_of_their_caller(cluster, monkeypatch):
    class Worker:
        def number(self):
            return gymnasium.make("Inherited-v0").unwrapped.number

    monkeypatch.setattr(sys.modules["__main__"], "Named", Counter, raising=False)
    gymnasium.register("Inherited-v0", "__main__:Named", kwargs={"number": 7})
    group = RayGroup(lambda index: Worker(), 1, CPU)
    try:
        assert group.call_all("number") == [7]
    finally:
        group.close()
        del gymnasium.registry["Inherited-v0"]


def test_synchronous_gradients_go_on_when_a_worker_is_killed(cluster):
    import ray

    chosen = scheme(gradients=remote(2, resources=CPU), update="decentralized")
    with Learner(chosen, total_steps=10**6) as learner:
        learner.step()
        assert learner.step()["steps"] == 64
        group = learner._executor._group
        before = [process for _, process in where(group)]
        ray.kill(group._actors[1], no_restart=False)
        gradient_steps = learner._executor._gradient_steps
        go_on_until(learner, lambda: learner._executor._gradient_steps >= gradient_steps + 2)
        after = [process for _, process in where(group)]
        assert after[0] == before[0] and after[1] != before[1]
        learner.update_algo_parameter("learning_rate", 0.0)
        held = jax.device_get(learner._executor.learner_state.weights.params)
        learner.step()
        learner.step()
        jax.tree.map(
            np.testing.assert_array_equal, held, learner._executor.learner_state.weights.params
        )
    assert ray.is_initialized()  # which is not the learner's to end


def test_ray_actor_error_is_raised_by_the_step(cluster):
    import ray

    driver = os.getpid()

    def make():
        if os.getpid() != driver:
            raise ValueError("a deliberate failure")
        return jaxenvs.make_vec("CartPole-v1", 4)

    chosen = scheme(env=make, num_envs=None, collection=remote(1, resources=CPU))
    with (
        Learner(chosen, total_steps=100) as learner,
        pytest.raises(ray.exceptions.RayError, match=r"(?s)in make.*a deliberate failure"),
    ):
        learner.step()


def test_hosted_environments_train_in_actors_and_end_with_them(cluster):
    chosen = scheme(
        env="gymnasium/CartPole-v1", collection=remote(2, sync=False, resources=CPU),
        storage=VTrace(),
    )  # fmt: skip
    with Learner(chosen, total_steps=10**6) as learner:
        go_on_until(learner, lambda: learner.updates >= 8)
        actors = [process for _, process in where(learner._executor._source._group)]
        processes = [*actors, *(each for actor in actors for each in descendants(actor))]
        assert learner.evaluate(2).mean > 0
    assert len(processes) > len(actors)
    gone(processes)


def test_an_actor_that_is_slow_is_not_waited_for(cluster, tmp_path):
    driver = os.getpid()

    def make():
        is_slow = os.getpid() != driver
        if is_slow:
            try:
                os.close(os.open(tmp_path / "first", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                is_slow = False
        return pool(0.5 if is_slow else 0.0)

    chosen = scheme(
        env=make,
        num_envs=None,
        collection=remote(3, resources={"num_cpus": 0.5}),
        fraction_workers=0.6,
        fraction_samples=0.25,
    )
    with Learner(chosen, total_steps=1000) as learner:
        learner.step()
        begin = time.monotonic()
        rows = [learner.step() for _ in range(3)]
        seconds = time.monotonic() - begin
    # Two whole unrolls of four steps, and a single step of the third: half a second, not two.
    assert [row["steps"] for row in rows] == [18, 27, 36]
    assert 1.4 < seconds < 5


def test_a_cluster_that_is_too_small_is_warned_of(cluster):
    chosen = scheme(collection=remote(2, resources={"num_cpus": 40, "resources": {"trunk": 1}}))
    with pytest.warns(UserWarning, match="workers ask for") as warned:
        Learner(chosen, total_steps=100).close()
    said = [str(each.message) for each in warned if "workers ask for" in str(each.message)]
    assert len(said) == 2
    assert "2 workers ask for 40 CPU each, but the Ray cluster has 2 in total" in said[0]
    assert "1 trunk each, but the Ray cluster has 0 in total" in said[1]


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"jaxenvs\[ray\]"):
        Learner(scheme(collection=remote(2, resources=CPU)), total_steps=100)
