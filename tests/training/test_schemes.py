"""Who collects, who computes gradients and who applies them, in every combination."""

import functools
import itertools
import os
import threading
import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import TrainingError
from jaxenvs.training import (
    A2C,
    DQN,
    GAE,
    PPO,
    PQN,
    SAC,
    ActorCritic,
    ActorTwinQ,
    DiscountedReturns,
    Learner,
    PrioritizedReplay,
    QNetwork,
    Replay,
    Scheme,
    VTrace,
    central,
    remote,
)
from jaxenvs.training.schemes.executors import make_executor
from jaxenvs.training.schemes.spec import TrainingSpec
from jaxenvs.training.schemes.worker_group import make_workers
from jaxenvs.training.seeds import Seeds
from jaxenvs.wrappers import RecordEpisodeStatistics
from tests.ids import case, diagonal

ID, HOSTED = "CartPole-v1", "gymnasium/CartPole-v1"
A2C_PARTS = {
    "algorithm": A2C(),
    "actor": ActorCritic(hidden_sizes=(8,)),
    "storage": DiscountedReturns(),
}
DQN_PARTS = {
    "algorithm": DQN(batch_size=16, learning_starts=40, replay_ratio=1 / 8),
    "actor": QNetwork(hidden_sizes=(8,)),
    "storage": Replay(1000),
}
PQN_PARTS = {
    "algorithm": PQN(minibatches=2),
    "actor": QNetwork(hidden_sizes=(8,), layer_norm=True),
    "storage": GAE(),
}
SAC_PARTS = {
    "env": "Pendulum-v1",
    "algorithm": SAC(batch_size=16, learning_starts=40, replay_ratio=1 / 8),
    "actor": ActorTwinQ(hidden_sizes=(8,)),
    "storage": PrioritizedReplay(1000),
}
SMALL = {"num_envs": 4, "unroll_length": 4}
ONE = [jax.devices()[0]]  # threads, where devices of one program would be taken
COLLECTIONS = {"central": central(), "sync": remote(2), "async": remote(2, sync=False)}
GRADIENTS = {
    "central": central(),
    "sync": remote(2, resources=ONE),
    "async": remote(2, sync=False),
}


def scheme(env=ID, **parts):
    return Scheme(**{"env": env, **SMALL, **A2C_PARTS, **parts})


def run(scheme, steps=3):
    """The metrics of each step; checks what is so of every combination."""
    gradients = scheme.gradients
    collectors = scheme.collection.n if scheme.collection.sync else 1
    per_update = collectors * gradients.n * 16
    with Learner(scheme, total_steps=steps * per_update - 3, seed=1) as learner:
        first = jax.device_get(learner._executor.learner_state.weights.params)
        rows = []
        while not learner.done():
            rows.append(learner.step())
        last = jax.device_get(learner._executor.learner_state.weights.params)
        gradient_steps = int(learner._executor.learner_state.weights.gradient_steps)
    assert [row["steps"] for row in rows] == [per_update * (i + 1) for i in range(steps)]
    moved = jax.tree.map(lambda x, y: not np.array_equal(x, y), first, last)
    assert any(jax.tree.leaves(moved)) and gradient_steps > 0
    for name, value in rows[-1].items():
        if not name.startswith("episode_"):
            assert np.isfinite(value), name
    assert not [t for t in threading.enumerate() if t.name.startswith("jaxenvs-worker")]
    return rows


@pytest.mark.parametrize(("collection", "gradients"), diagonal(COLLECTIONS, GRADIENTS))
def test_collection_and_gradients_train_in_every_combination(collection, gradients):
    chosen = {"collection": COLLECTIONS[collection], "gradients": GRADIENTS[gradients]}
    rows = run(scheme(**chosen))
    if collection != "central" or gradients != "central":
        expected = {"central": 0, "sync": 0, "async": None}[collection]
        lag = rows[-1]["collection_lag"]
        assert lag == expected if expected is not None else 0 <= lag <= 3
    if gradients == "async":
        assert 0 <= rows[-1]["gradient_lag"] <= 3
    if gradients == "sync":
        run(scheme(update="decentralized", **chosen))


@pytest.mark.parametrize(
    ("parts", "collection", "gradients"),
    [
        case(parts, *place.split(), is_quick=i % 3 == 0)
        for parts, places in (
            (DQN_PARTS, ("async central", "central sync", "async sync", "sync async")),
            (PQN_PARTS, ("async central", "sync sync", "central async")),
            (SAC_PARTS, ("async async", "async central", "sync sync")),
        )
        for i, place in enumerate(places)
    ],
    ids=lambda part: part if isinstance(part, str) else type(part["algorithm"]).__name__,
)
def test_algorithms_train_in_combinations_of_places(parts, collection, gradients):
    chosen = {"collection": COLLECTIONS[collection], "gradients": GRADIENTS[gradients]}
    run(scheme(**parts, **chosen))


# --- what gradients are, and where they are applied ---


def test_worker_gradients_average_to_the_joint_batch_gradient():
    """To 1e-5 of the largest: float32 sums in another order."""
    executor = make_executor(scheme(gradients=GRADIENTS["sync"]), 96, Seeds(0), 1)
    group, train = executor._group, executor.train
    order = train.algorithm, executor._weights, 0
    group.call_all("start_unroll", *order)
    parts = [worker._work[0] for worker in group._workers]
    answers = [gradients for gradients, _ in group.call_all("compute_gradient", *order)]
    executor.close()
    answers = jax.device_get(answers)
    mean = jax.tree.map(lambda x, y: (x + y) / 2, *answers)

    @jax.jit
    def joint_gradient(weights, parts):
        joint = jax.tree.map(lambda *parts: jnp.concatenate(parts), *parts)
        return train.algorithm.gradients(train.context, weights, joint, None)[0]

    expected = jax.device_get(joint_gradient(executor._weights, parts))
    different = jax.tree.map(lambda x, y: not np.allclose(x, y, atol=1e-6), *answers)
    assert any(jax.tree.leaves(different))
    for found, wanted in zip(jax.tree.leaves(mean), jax.tree.leaves(expected), strict=True):
        largest = np.max(np.abs(wanted), initial=0)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 * largest)


def test_centralized_and_decentralized_updates_agree_bitwise():
    """Bit for bit: everyone applies the same mean by the same program."""
    ends = []
    for update in ("centralized", "decentralized"):
        executor = make_executor(
            scheme(gradients=GRADIENTS["sync"], update=update), 96, Seeds(0), 1
        )
        for _ in range(3):
            executor.step(1)
        ends.append(jax.device_get(executor.learner_state.weights))
        for worker in executor._group._workers if update == "decentralized" else []:
            jax.tree.map(np.testing.assert_array_equal, worker._weights, ends[-1])
        executor.close()
    assert ends[0].gradient_steps == 3
    jax.tree.map(np.testing.assert_array_equal, *ends)


def test_td_errors_become_priorities_in_the_memory_of_the_worker():
    parts = DQN_PARTS | {"storage": PrioritizedReplay(64)}
    executor = make_executor(scheme(**parts, gradients=GRADIENTS["sync"]), 640, Seeds(0), 1)
    group, train = executor._group, executor.train
    storage, order = train.storage, (train.algorithm, executor._weights, 1)
    group.call_all("start_unroll", *order)

    @jax.jit
    def draw(weights, state, key):
        keys = jax.random.split(jax.random.fold_in(key, 0))
        batch = train.algorithm.draw_batch(train.context, state, None, 0, keys[0])
        _, _, error = train.algorithm.gradients(train.context, weights, batch, keys[1])
        return batch.index, error

    drawn = [
        jax.device_get(draw(executor._weights, worker._state, worker._key))
        for worker in group._workers
    ]
    group.call_all("compute_gradient", *order)
    for worker, (index, error) in zip(group._workers, drawn, strict=True):
        priorities = np.asarray(worker._state.storage.tree)  # leaves come first
        wanted = (np.abs(error) + storage.epsilon) ** storage.alpha
        np.testing.assert_allclose(priorities[index], wanted, rtol=1e-5)
        others = np.setdiff1d(np.arange(16), index)
        assert len(others) and (priorities[others] == 1).all()  # as they were added
    executor.close()
    assert not np.array_equal(drawn[0][1], drawn[1][1])


def test_async_gradients_stop_after_exceeding_target_kl():
    algorithm = PPO(epochs=2, minibatches=2, target_kl=jnp.float32(-1))  # all have
    chosen = scheme(algorithm=algorithm, gradients=GRADIENTS["async"])
    with Learner(chosen, total_steps=32 * 100) as learner:
        for number in range(1, 5):  # of eight each, four an unroll
            assert learner.step()["steps"] == 32 * number
            assert 2 * number <= learner._executor._gradient_steps <= 2 * number + 2
        learner.update_algo_parameter("target_kl", 1e9)
        learner.step()  # ends what was begun before
        learner.step()
        before = learner._executor._gradient_steps
        learner.step()
        assert learner._executor._gradient_steps == before + 8


def test_anneal_async_gradients_reaches_zero():
    chosen = scheme(algorithm=A2C(anneal=True), gradients=GRADIENTS["async"])
    moved = []
    with Learner(chosen, total_steps=4 * 32) as learner:
        for _ in range(5):
            before = jax.device_get(learner._executor._weights.params)
            learner._executor.step(1)  # the learner itself refuses a fifth one
            after = learner._executor._weights.params
            same = jax.tree.leaves(jax.tree.map(np.array_equal, before, after))
            moved.append(not all(same))
    assert moved == [True, True, True, True, False]  # the last one is beyond the end


@pytest.mark.slow  # each device has programs of its own
def test_workers_on_devices_of_their_own_train():
    two = jax.devices()[1:3]
    run(scheme(collection=remote(2, resources=two)), steps=2)
    run(scheme(gradients=remote(2, sync=False, resources=two)), steps=2)


def test_unrolls_that_may_end_early_are_chunked_or_refused():
    early = {"collection": remote(2), "fraction_workers": 0.5, "fraction_samples": 0.5}
    assert scheme(unroll_length=12, **early).chunks == 4
    assert scheme(unroll_length=6, **early).chunks == 3
    assert scheme(unroll_length=13).chunks == 1
    with pytest.raises(TrainingError, match="unroll_length=13 cannot be collected in chunks"):
        scheme(unroll_length=13, **early)
    with pytest.raises(TrainingError, match="num_envs=0; it must be an integer of at least 1"):
        scheme(num_envs=0)


# --- lags, and samples that are corrected for them ---


def test_lags_count_the_updates_and_gradients_in_between():
    with Learner(scheme(collection=remote(1, sync=False)), total_steps=80) as learner:
        lags = [learner.step()["collection_lag"] for _ in range(5)]
    assert lags == [0, 1, 1, 1, 1]  # it collects while its last unroll is learned from
    with Learner(scheme(gradients=remote(2, sync=False)), total_steps=160) as learner:
        gradients = [2 * learner.step()["gradient_lag"] for _ in range(5)]
    # Each gradient makes the one under way a step older: it is applied later, or still under way.
    assert sum(gradients) + learner._executor._gradient_steps - min(
        as_of for _, as_of in learner._executor._pending.values()
    ) == pytest.approx(10)


@pytest.mark.parametrize("gradients", ["central", "sync", "async"])
def test_pending_work_is_dropped_when_an_older_state_is_loaded(gradients):
    """Its weights would be of the future."""
    chosen = scheme(
        storage=VTrace(), collection=remote(2, sync=False), gradients=GRADIENTS[gradients]
    )
    with Learner(chosen, total_steps=10_000) as learner:
        learner.step()
        state = learner._executor.learner_state
        for _ in range(4):
            learner.step()
        learner._executor.load_state(state)
        rows = [learner.step() for _ in range(4)]
    assert rows[0]["collection_lag"] == 0
    assert all(row["collection_lag"] >= 0 for row in rows)
    assert all(row.get("gradient_lag", 0) >= 0 for row in rows)


def test_log_ratios_compare_the_current_and_the_acting_weights(monkeypatch):
    seen = []
    original = VTrace.estimate

    def estimate(self, segment, **factors):
        jax.debug.callback(lambda x: seen.append(np.asarray(x)), segment.log_ratio)
        return original(self, segment, **factors)

    monkeypatch.setattr(VTrace, "estimate", estimate)
    chosen = scheme(
        collection=remote(1, sync=False), storage=VTrace(), algorithm=A2C(learning_rate=0.02)
    )
    behaviors, unrolls = [], []
    with Learner(chosen, total_steps=48) as learner:
        executor = learner._executor
        source = executor._source
        take = source.next_unroll

        def noted(algorithm, behavior):
            unroll = take(algorithm, behavior)
            behaviors.append(behavior)
            unrolls.append(unroll)
            return unroll

        monkeypatch.setattr(source, "next_unroll", noted)
        for _ in range(3):
            learner.step()
    jax.effects_barrier()
    networks = executor.train.networks
    assert np.abs(seen[0]).max() < 1e-6
    for i in (1, 2):  # sent with the weights before the last step
        steps = unrolls[i].transition

        @jax.jit
        def log_prob(behavior, steps=steps):
            flat = jax.tree.map(lambda x: x.reshape((-1, *x.shape[2:])), steps)
            features = networks.features(flat.observation)
            return networks.log_prob_and_entropy(behavior.params, features, flat.action)[0]

        expected = np.asarray(log_prob(behaviors[i])) - log_prob(behaviors[i - 1])
        np.testing.assert_allclose(seen[i].ravel(), expected, atol=1e-5)
        assert np.abs(expected).max() > 1e-3


def test_unrolls_of_async_collectors_are_truncated_in_replay():
    """Else returns of n steps would go on in another worker's episode."""
    chosen = DQN_PARTS | {"storage": Replay(64, n_step=3)}
    with Learner(
        scheme(collection=remote(2, sync=False), **chosen), total_steps=10 * 16
    ) as learner:
        episodes = sum(learner.step()["episode_count"] for _ in range(4))
        steps = jax.device_get(learner._executor.learner_state.storage.steps)
    assert steps.truncated.shape == (16, 4) and steps.truncated[3::4].all()
    assert not steps.truncated[np.arange(16) % 4 != 3].any()
    assert episodes == steps.terminated.sum()  # of which what was cut is none
    with Learner(scheme(collection=remote(2), **chosen), total_steps=10 * 32) as learner:
        learner.step()
        assert not learner._executor.learner_state.storage.steps.truncated.any()


def test_replay_is_truncated_where_other_episodes_follow():
    """One collector's unrolls are not cut, but where a run goes back or gets other environments."""
    chosen = scheme(collection=remote(1), **DQN_PARTS | {"storage": Replay(64, n_step=3)})
    with Learner(chosen, total_steps=160) as learner:
        learner.step()
        learner._executor.load_state(learner.learner_state)
        cut = jax.device_get(learner.learner_state.storage.steps)
        learner.step()
        after = jax.device_get(learner.learner_state.storage.steps)
        learner.replace(unroll_length=learner.scheme.unroll_length)  # workers begin anew
        replaced = learner.learner_state.storage.steps
    length = learner.scheme.unroll_length
    for steps, last in ((cut, 1), (after, 1), (replaced, 2)):
        ends = np.asarray(steps.truncated | steps.terminated)
        assert ends[length - 1 : last * length : length].all()
        assert not np.delete(steps.truncated, np.s_[length - 1 : last * length : length], 0).any()


@pytest.mark.slow
def test_replace_truncates_replay_only_for_another_environment():
    for chosen in (scheme(**DQN_PARTS), scheme(gradients=remote(2), **DQN_PARTS)):
        with Learner(chosen, total_steps=1600) as learner:
            learner.step()
            learner.replace(unroll_length=learner.scheme.unroll_length)
            assert not learner.learner_state.storage.steps.truncated.any()
            learner.replace(env=jaxenvs.wrappers.StickyAction(jaxenvs.make(ID), 0.25))
            ends = learner.learner_state.storage.steps
            assert (ends.truncated | ends.terminated).any()


# --- hosted environments ---


@pytest.mark.slow
def test_learner_ends_even_if_an_environment_of_a_worker_hangs():
    number = itertools.count()

    def make_env():
        hangs_at = 20 if next(number) == 1 else None
        makes = [functools.partial(Host, hangs_at=hangs_at)] * 2
        pool = jaxenvs.make_pool(
            makes, backend="process", num_workers=1, autoreset_mode="same_step"
        )
        return jaxenvs.HostEnv(pool)

    chosen = scheme(make_env, num_envs=None, collection=remote(2, sync=False))
    with Learner(chosen, total_steps=8 * 30) as learner:
        while not learner.done():
            learner.step()
        start = time.monotonic()
    assert time.monotonic() - start < 60


class Host(gymnasium.Env):
    """Two numbers; may sleep or raise."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds=0.0, raises_at=None, hangs_at=None):
        self.seconds, self.raises_at, self.hangs_at = seconds, raises_at, hangs_at
        self.count = 0

    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        time.sleep(10**6 if self.count == self.hangs_at else self.seconds)
        if self.count == self.raises_at:
            raise RuntimeError("a deliberate failure")
        return np.full(2, 0.1, np.float32), 1.0, False, self.count % 5 == 0, {}


def pool(*arguments, n=1):
    env_fns = [lambda: Host(*arguments)] * n
    return jaxenvs.HostEnv(
        jaxenvs.make_pool(env_fns, backend="process", num_workers=1, autoreset_mode="same_step")
    )


def nothing_is_left(before):
    """Waits a little for processes to be gone."""
    end = time.monotonic() + 10
    while left_over() - before and time.monotonic() < end:
        time.sleep(0.05)
    assert not left_over() - before
    return True


def left_over():
    """Environments' processes, their shared memory, and threads of workers."""
    threads = {t.name for t in threading.enumerate() if t.name.startswith("jaxenvs-worker")}
    memory = {name for name in os.listdir("/dev/shm") if f"{os.getpid()}" in name}
    # Processes of environments are children of one that stays, to make the next ones.
    processes = {f"process {pid}" for child in children("self") for pid in children(child)}
    return processes | threads | memory


def children(pid):
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [c for task in tasks for c in _read(f"/proc/{pid}/task/{task}/children").split()]


def _read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"collection": remote(2, sync=False)},
        pytest.param({"gradients": remote(2)}, marks=pytest.mark.slow),
    ],
    ids=["fused", "async collection", "gradients"],
)
def test_hosted_environments_train_and_end_with_the_learner(chosen):
    before = left_over()
    chosen = scheme(functools.partial(pool, n=2), num_envs=None, unroll_length=8, **chosen)
    rows = run(chosen, steps=2)
    assert rows[-1]["episode_length"] == 5
    assert nothing_is_left(before)


def test_learner_leaves_a_given_environment_open():
    env = pool(n=2)
    with Learner(scheme(env, num_envs=None, unroll_length=8), total_steps=32) as learner:
        learner.step()
        with pytest.raises(TrainingError, match="evaluation_env"):
            learner.evaluate(2)
    assert not env.pools[0].closed
    with pytest.raises(TrainingError, match="num_envs=3"):
        Learner(scheme(env, num_envs=3), total_steps=32)
    env.close()


@pytest.mark.slow
def test_slow_worker_is_not_waited_for():
    calls = itertools.count()

    def make():
        return pool(0.5 if next(calls) == 1 else 0.0)

    chosen = scheme(
        make, num_envs=None, collection=remote(3), fraction_workers=0.6, fraction_samples=0.25
    )
    with Learner(chosen, total_steps=90) as learner:
        learner.step()
        begin = time.monotonic()
        rows = [learner.step() for _ in range(3)]
        seconds = time.monotonic() - begin
    # Two whole unrolls of four steps, and a single step of the third: half a second, not two.
    assert [row["steps"] for row in rows] == [18, 27, 36]
    assert 1.4 < seconds < 4


def test_worker_error_is_raised_after_the_others_have_answered():
    answered = []

    class Worker:
        def __init__(self, index):
            self.index = index

        def work(self):
            if self.index == 0:
                raise RuntimeError("a deliberate failure")
            time.sleep(0.2)
            answered.append(self.index)

        def finish_early(self, number): ...
        def close(self): ...

    group = make_workers(Worker, 3, None)
    with pytest.raises(RuntimeError, match="a deliberate failure"):
        group.call_all("work")
    assert sorted(answered) == [1, 2]
    group.close()


def test_worker_error_is_raised_by_step_and_leaves_nothing():
    before = left_over()
    calls = itertools.count()

    def make():
        return pool(0.0, 6 if next(calls) == 1 else None)

    chosen = scheme(make, num_envs=None, collection=remote(2, sync=False))
    with Learner(chosen, total_steps=1000) as learner:

        def train():
            while True:
                learner.step()

        with pytest.raises(jax.errors.JaxRuntimeError, match=r"(?s)in step.*a deliberate failure"):
            train()
    assert nothing_is_left(before)


@pytest.mark.parametrize("place", ["collection", "gradients"])
def test_a_worker_that_cannot_be_made_leaves_none_of_the_others(place):
    before = left_over()
    calls = itertools.count()

    def make():
        if next(calls) == 2:
            raise ValueError("the third is one too many")
        return pool()

    with pytest.raises(ValueError, match="one too many"):
        Learner(scheme(make, num_envs=None, **{place: remote(3)}), total_steps=100)
    assert nothing_is_left(before)


def test_learner_dropped_unclosed_ends_its_workers():
    before = left_over()
    learner = Learner(scheme(pool, num_envs=None, collection=remote(2)), total_steps=100)
    learner.step()
    assert left_over() - before
    del learner
    assert nothing_is_left(before)


# --- what contradicts itself ---


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"update": "decentralized"}, r"gradients=central\(\).*gradients=remote\(n, sync=True\)"),
        (
            {"update": "decentralized", "gradients": remote(2, sync=False)},
            r"remote\(2, sync=False\)",
        ),
        ({"update": "federated"}, '"centralized" or "decentralized"'),
        ({"fraction_workers": 0.5}, r"collection=central\(\).*remote\(n, sync=True\)"),
        ({"fraction_samples": 0.5, "collection": remote(2, sync=False)}, "sync=False"),
        ({"fraction_workers": 0.0, "collection": remote(2)}, "must be above 0"),
        ({"collection": 2}, r"expected central"),
        ({"unroll_length": 0}, "at least 1"),
        (
            {"algorithm": A2C(normalize_observations=True), "gradients": remote(2)},
            "NormalizeObservation",
        ),
    ],
)
def test_contradictory_scheme_parts_are_refused_when_assembled(parts, words):
    with pytest.raises(TrainingError, match=f"(?s){words}"):
        scheme(**parts)


def test_parts_that_do_not_fit_are_refused_before_anything_runs():
    env = jaxenvs.make_vec(ID, 4)
    with pytest.raises(TrainingError, match="one VectorEnv for 4 collectors"):
        scheme(env, num_envs=None, collection=remote(2), gradients=remote(2))
    with pytest.raises(TrainingError, match=r"storage Replay.*GAE"):
        Learner(scheme(storage=Replay(100), collection=remote(2)), total_steps=100)
    with pytest.raises(TrainingError, match="batch_size=15"):
        Learner(
            scheme(**DQN_PARTS | {"algorithm": DQN(batch_size=15)}, gradients=remote(2)),
            total_steps=100,
        )
    whole = scheme(algorithm=A2C(minibatches=32), collection=remote(2))  # of 16 steps each
    assert TrainingSpec(whole, 100, 0).train.algorithm.minibatches == 32
    with pytest.raises(TrainingError, match="64 equal minibatches"):
        Learner(scheme(algorithm=A2C(minibatches=64), collection=remote(2)), total_steps=100)
    for wrong in (0, True, 1.5):
        with pytest.raises(TrainingError, match="at least 1"):
            remote(wrong)


@pytest.mark.parametrize(
    "parts",
    [
        {"collection": remote(2)},
        {"gradients": remote(2, resources=jax.devices()[:1])},
        {"gradients": remote(2, sync=False)},
    ],
    ids=["collection", "gradients", "asynchronous"],
)
@pytest.mark.slow
def test_every_row_has_the_mean_return_of_the_last_episodes(parts):
    env = RecordEpisodeStatistics(jaxenvs.make("Pendulum-v1", time_limit=6))
    logged = scheme(env, unroll_length=4, log_info=["episode_length"], **parts)
    with Learner(logged, total_steps=10_000) as learner:
        rows = [learner.step() for _ in range(5)]
    ended = np.array([row["episode_count"] for row in rows])
    assert ended[0] == 0 and ended.sum() > 0
    # No episode ends in a worker's fourth unroll; asynchronous rows may have several unrolls.
    assert (ended[1:] == 0).any() or parts == {"gradients": remote(2, sync=False)}
    for name in ("episode_length", "info/episode_length"):
        assert [row[name] for row in rows if not np.isnan(row[name])] == [6] * (5 - first(ended))
    assert not np.isnan([row["episode_return"] for row in rows][first(ended) :]).any()


def first(ended):
    return int(np.flatnonzero(ended)[0])
