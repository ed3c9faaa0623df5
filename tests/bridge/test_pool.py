"""What a pool returns, whatever steps its environments."""

import functools
import threading
import time

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import jaxenvs
from jaxenvs.bridge.native.libraries import reason_missing, xla_library
from tests.bridge.conftest import make, with_any_backend
from tests.bridge.envs import Composite, Counter, Cut, counters

MODES = ["next_step", "same_step", "disabled"]


def zeros(n):
    return np.zeros(n, np.int64)


@with_any_backend
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_pool_is_gymnasiums_own_step_for_step(backend, mode):
    n = 5
    theirs = gymnasium.make_vec(
        "CartPole-v1",
        n,
        vectorization_mode="sync",
        vector_kwargs={
            "autoreset_mode": getattr(gymnasium.vector.AutoresetMode, mode.upper()),
        },
    )
    with jaxenvs.make_pool("CartPole-v1", n, backend=backend, autoreset_mode=mode) as pool:
        expected, _ = theirs.reset(seed=7)
        found, _ = pool.reset(seed=7)
        np.testing.assert_array_equal(found, expected)
        rng = np.random.default_rng(0)
        for _ in range(300):
            actions = rng.integers(0, 2, n)
            expected, found = theirs.step(actions), pool.step(actions)
            for mine, their in zip(found[:4], expected[:4], strict=True):
                np.testing.assert_array_equal(mine, their)
            assert ("final_obs" in found[4]) == ("final_obs" in expected[4])
            if "final_obs" in found[4]:
                np.testing.assert_array_equal(found[4]["_final_obs"], expected[4]["_final_obs"])
                for mine, their in zip(
                    found[4]["final_obs"], expected[4]["final_obs"], strict=True
                ):
                    np.testing.assert_array_equal(mine, their)


# --- reset ---


def test_seeds_are_given_to_the_environments_in_order(backend):
    with make(counters(4), backend) as pool:
        assert pool.reset(seed=10)[1]["seed"].tolist() == [10, 11, 12, 13]
        assert pool.reset(seed=[4, None, 2, 1])[1]["seed"].tolist() == [4, -1, 2, 1]
        assert pool.reset(seed=np.arange(4))[1]["seed"].tolist() == [0, 1, 2, 3]
        assert pool.reset()[1]["seed"].tolist() == [-1] * 4
        assert pool.reset(seed=5, env_ids=[3, 1])[1]["seed"].tolist() == [8, 6]
        assert pool.reset(seed=[5, 6], env_ids=[3, 1])[1]["seed"].tolist() == [5, 6]
        mask = np.array([False, True, False, True])
        info = pool.reset(seed=[1, 2, 3, 4], options={"reset_mask": mask})[1]
        assert info["seed"][mask].tolist() == [2, 4] and info["_seed"].tolist() == mask.tolist()


def test_pool_seed_is_for_the_first_reset_of_each_environment(backend):
    with make(counters(3), backend, seed=7) as pool:
        assert pool.reset(env_ids=[1])[1]["seed"].tolist() == [8]
        assert pool.reset()[1]["seed"].tolist() == [7, -1, 9]
        assert pool.reset()[1]["seed"].tolist() == [-1] * 3
    with make(counters(3), backend, seed=[5, 6, 7]) as pool:
        assert pool.reset(seed=1)[1]["seed"].tolist() == [1, 2, 3]
        assert pool.reset()[1]["seed"].tolist() == [-1] * 3


def test_reset_options_apply_only_to_requested_resets(backend):
    with make(counters(4, length=2), backend) as pool:
        pool.reset(options={"level": 3})
        assert pool.get_attr("options") == ({"level": 3},) * 4
        pool.reset(env_ids=[1], options={"level": 4})
        assert pool.get_attr("options") == ({"level": 3}, {"level": 4}, {"level": 3}, {"level": 3})
        mask = np.array([True, False, False, False])
        pool.reset(options={"level": 5, "reset_mask": mask})
        assert pool.get_attr("options")[:2] == ({"level": 5}, {"level": 4})
        pool.reset(options={"reset_mask": mask})
        assert pool.get_attr("options")[0] is None
        pool.reset(options={"level": 6})
        for _ in range(3):
            pool.step(zeros(4))
        assert pool.get_attr("options") == (None,) * 4  # nobody asked for those that follow


@with_any_backend
@pytest.mark.parametrize("mode", MODES)
def test_partial_reset_lets_the_others_go_on(backend, mode):
    with make(counters(4, length=3), backend, autoreset_mode=mode) as pool:
        pool.reset(seed=0)
        pool.step(zeros(4))
        before = pool.step(zeros(4))[0]
        kept = before.copy()
        observation, info = pool.reset(env_ids=[2, 0])
        np.testing.assert_array_equal(observation, [[2, 2, 0], [0, 2, 0]])
        assert info["env_id"].tolist() == [2, 0] and info["elapsed_step"].tolist() == [0, 0]
        mask = np.array([False, False, False, True])
        observation, info = pool.reset(options={"reset_mask": mask})
        np.testing.assert_array_equal(observation, [[0, 2, 0], [1, 1, 2], [2, 2, 0], [3, 2, 0]])
        assert info["_count"].tolist() == mask.tolist()
        np.testing.assert_array_equal(before, kept)  # as it was returned
        observation, _, terminated, _, info = pool.step(zeros(4))
        assert terminated.tolist() == [False, True, False, False]
        last = info["final_obs"][1] if mode == "same_step" else observation[1]
        assert last.tolist() == [1, 1, 3]
        assert observation[[0, 2, 3], 2].tolist() == [1, 1, 1]
        assert info["elapsed_step"].tolist() == [1, 3, 1, 1]


@pytest.mark.parametrize("batch_size", [2, 4])
def test_reset_mask_keeps_rows_of_environments_stepped_alone(backend, batch_size):
    with make(counters(4, length=9), backend, batch_size=batch_size) as pool:
        pool.reset(seed=0)
        if batch_size == 4:
            pool.step(zeros(4))
        for ids in ([1], [1, 3], [0]):
            pool.step(zeros(len(ids)), env_ids=ids)
        mask = np.array([True, False, False, False])
        observation, _ = pool.reset(options={"reset_mask": mask})
        base = batch_size == 4
        assert observation[:, 2].tolist() == [0, 2 + base, base, 1 + base]
        mask = np.array([False, False, True, False])
        observation, _ = pool.reset(options={"reset_mask": mask})
        assert observation[:, 2].tolist() == [0, 2 + base, 0, 1 + base]


def test_finished_environment_stays_finished_until_reset(backend):
    fns = [lambda: Counter(0, length=2), lambda: Counter(1, length=9)]
    with make(fns, backend, autoreset_mode="disabled") as pool:
        pool.reset(seed=0)
        pool.step(zeros(2))
        for step in range(2, 5):
            observation, reward, terminated, truncated, info = pool.step(zeros(2))
            np.testing.assert_array_equal(observation, [[0, 1, 2], [1, 1, step]])
            assert reward.tolist() == [2 if step == 2 else 0, step]
            assert terminated.tolist() == [True, False] and not truncated.any()
            assert info["elapsed_step"].tolist() == [2, step]
        assert pool.get_attr("count") == (2, 4)  # it was not stepped any more
        pool.reset(options={"reset_mask": terminated})
        observation, reward, terminated, *_ = pool.step(zeros(2))
        np.testing.assert_array_equal(observation, [[0, 2, 1], [1, 1, 5]])
        assert reward.tolist() == [1, 5] and not terminated.any()


@pytest.mark.parametrize(("batch_size", "ids"), [(2, None), (1, [1])])
@pytest.mark.parametrize("mode", MODES)
def test_episodes_are_truncated_at_their_limit(backend, mode, batch_size, ids):
    options = {"autoreset_mode": mode, "time_limit": 2, "batch_size": batch_size}
    with make(counters(2, length=99), backend, **options) as pool:
        pool.reset(seed=0)
        flags, elapsed = [], []
        for _ in range(5):
            _, _, terminated, truncated, info = pool.step(zeros(batch_size), ids)
            assert not terminated.any()
            flags.append(truncated[0])
            elapsed.append(int(info["elapsed_step"][0]))
        assert (flags, elapsed) == {
            "next_step": ([False, True, False, False, True], [1, 2, 0, 1, 2]),
            "same_step": ([False, True, False, True, False], [1, 2, 1, 2, 1]),
            "disabled": ([False, True, True, True, True], [1, 2, 2, 2, 2]),
        }[mode]


# --- infos ---


class _Informs(Counter):
    """Tells of all kinds of things."""

    def step(self, action):
        observation, reward, over, cut, _ = super().step(action)
        info = {"env_id": 99, "elapsed_step": "mine", "nested": {"deep": self.count}}
        if self.count % 2:
            info["odd"] = np.arange(3) + self.number
        if self.number == 1:
            info["long"] = np.full(1000, self.count)  # more than fits beside the batch
            info |= {"lambda": lambda: None, "lock": threading.Lock()}
        return observation, reward, over, cut, info


@with_any_backend
def test_infos_are_merged_with_masks(backend):
    fns = [lambda i=i: _Informs(number=i) for i in range(3)]
    with make(fns, backend) as pool:
        pool.reset(seed=0)
        for step in range(1, 5):
            info = pool.step(zeros(3))[4]
            assert info["env_id"].tolist() == [0, 1, 2]  # the pool's own
            assert info["elapsed_step"].tolist() == [step] * 3
            assert info["nested"]["deep"].tolist() == [step] * 3
            assert info["nested"]["_deep"].all() and info["_nested"].all()
            assert ("odd" in info) == step % 2
            if step % 2:
                np.testing.assert_array_equal(info["odd"][:, 0], [0, 1, 2])
                assert info["_odd"].all()
            assert info["long"].shape == (3, 1000)
            np.testing.assert_array_equal(info["long"][1], step)
            assert info["_long"].tolist() == [False, True, False]
            assert info["_lambda"].tolist() == [False, True, False]
            assert callable(info["lambda"][1])
            lock = info["lock"][1]
            assert "cannot be pickled" in lock if backend == "process" else lock.acquire()
        part = pool.step(zeros(2), [2, 1])[4]
        assert part["env_id"].tolist() == [2, 1] and part["nested"]["deep"].tolist() == [5, 5]
        np.testing.assert_array_equal(part["long"][1], 5)


class _Tells(Counter):
    """Has one thing to tell."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def step(self, action):
        return (*super().step(action)[:4], {"x": self.value})


MIXED = [
    ([1, "abc", 2.5], object),
    (["abc", 1, 2.5], object),
    (["a", "abc", "ab"], object),
    ([1, None, 2], object),
    ([1, 2**70, 2], object),
    ([1, 2.5, True], np.float64),
    ([True, False, 3], np.int64),
    ([np.int8(1), 300, np.int8(2)], np.int64),
    ([np.uint64(2**63), -1, 2], object),
    ([np.float32(0.5), 1e300, 1], np.float64),
]


def test_infos_become_numeric_arrays_only_without_loss(backend):
    class Env(_Tells):
        def step(self, action):
            told = {f"case {n}": values[self.value] for n, (values, _) in enumerate(MIXED)}
            return (*super().step(action)[:4], told)

    with make([lambda i=i: Env(i) for i in range(3)], backend) as pool:
        pool.reset(seed=0)
        info = pool.step(zeros(3))[4]
        for n, (values, dtype) in enumerate(MIXED):
            found = info[f"case {n}"]
            assert found.dtype == dtype and list(found) == values
            if dtype is object:
                assert list(map(type, found)) == list(map(type, values))


@pytest.mark.parametrize("values", [["a", "abc"], ["abc", "a"]])
def test_arrays_of_text_are_not_cut(backend, values):
    fns = [lambda value=value: _Tells(np.array([value])) for value in values]
    with make(fns, backend) as pool:
        pool.reset(seed=0)
        assert pool.step(zeros(2))[4]["x"][:, 0].tolist() == values


def test_final_info_is_separate_from_the_new_info(backend):
    fns = [lambda: Counter(0, length=2), lambda: Counter(1, length=3)]
    with make(fns, backend, autoreset_mode="same_step") as pool:
        pool.reset(seed=0)
        pool.step(zeros(2))
        info = pool.step(zeros(2))[4]
        assert info["final_info"]["count"][0] == 2 and info["count"].tolist() == [0, 2]
        assert info["_final_info"].tolist() == info["_final_obs"].tolist() == [True, False]
        np.testing.assert_array_equal(info["final_obs"][0], [0, 1, 2])
        assert info["final_obs"][1] is None


@pytest.mark.parametrize("fields", [("count",), {"count": spaces.Box(0, 99, (), np.int32)}])
@pytest.mark.parametrize("mode", MODES)
def test_fields_of_info_are_arrays_at_every_step(backend, fields, mode):
    with make(counters(2, length=2), backend, info_fields=fields, autoreset_mode=mode) as pool:
        info = pool.reset(seed=0)[1]
        assert info["count"].tolist() == [0, 0] and info["_count"].all()
        dtype = np.int32 if isinstance(fields, dict) else np.int64
        for step in range(1, 6):
            info = pool.step(zeros(2))[4]
            assert info["count"].dtype == dtype and info["_count"].all()
            expected = {"next_step": step % 3, "same_step": step % 2, "disabled": min(step, 2)}
            assert info["count"].tolist() == [expected[mode]] * 2
        if mode != "disabled":
            assert pool.step(zeros(1), [1])[4]["count"].shape == (1,)


@pytest.mark.parametrize("fields", [("x",), {"x": spaces.Box(0, 1, (), np.bool_)}])
def test_boolean_info_field_has_dtype_bool(backend, fields):
    with make([lambda: _Tells(True), lambda: _Tells(False)], backend, info_fields=fields) as pool:
        pool.reset(seed=0)
        found = pool.step(zeros(2))[4]["x"]
        assert found.dtype == np.bool_ and found.tolist() == [True, False]


@pytest.mark.parametrize("path", ["ffi", "callback"])
def test_boolean_info_field_in_compiled_programs_has_dtype_bool(path):
    if path == "ffi" and reason_missing(xla_library) is not None:
        pytest.skip("no g++")
    fns = [lambda: _Tells(True), lambda: _Tells(False)]
    pool = make(fns, "process", info_fields=["x"], autoreset_mode="same_step")
    env = jaxenvs.HostEnv(pool, path=path)
    state, _ = env.reset(jax.random.key(0))
    _, timestep = jax.jit(env.step)(state, jax.numpy.zeros(2, int), jax.random.key(0))
    assert timestep.info["x"].dtype == bool and timestep.info["x"].tolist() == [True, False]
    env.close()


# --- whose memory it is ---


def test_step_results_stay_valid_until_the_call_after_next(backend):
    with make(counters(2, length=99), backend) as pool:
        batches = [pool.reset(seed=0)]
        for step in range(1, 9):
            batches.append(pool.step(zeros(2)))
            previous = batches[-2]
            np.testing.assert_array_equal(previous[0][:, 2], step - 1)
            if step > 1:
                np.testing.assert_array_equal(previous[1], step - 1)
        assert np.shares_memory(batches[-1][0], batches[-3][0])


def test_recv_results_stay_valid_until_the_call_after_next(backend):
    with make(counters(4, length=99), backend, batch_size=2) as pool:
        pool.async_reset(seed=0)
        previous = kept = None
        for _ in range(20):
            batch = pool.recv()
            if previous is not None:
                for found, expected in zip(previous[:4], kept, strict=True):
                    np.testing.assert_array_equal(found, expected)
            previous, kept = batch, [array.copy() for array in batch[:4]]
            pool.send(zeros(2), batch[4]["env_id"])


def test_copied_results_stay_valid(backend):
    with make([Composite] * 2, backend, copy=True) as pool:
        pool.reset(seed=0)
        batches = []
        for step in range(4):
            action = {"button": np.full(2, step), "stick": np.full((2, 2), step / 4)}
            batches.append(pool.step(action))
        for step, (observation, reward, *_) in enumerate(batches):
            assert (observation["image"] == step).all() and (reward == step / 2).all()
            assert (observation["pair"][0] == step - 1).all()


@pytest.mark.parametrize("rows", [None, [1, 0]])
@pytest.mark.parametrize("copy", [False, True])
def test_infos_and_copied_batches_stay_valid(copy, rows):
    fns = [lambda: Counter(0, length=3), lambda: Cut(1, length=3)]
    options = {"copy": copy, "info_fields": ["count"] if copy else []}
    with make(fns, "serial", autoreset_mode="same_step", **options) as pool:
        pool.reset(seed=0)
        batches = [pool.step(zeros(2), rows) for _ in range(9)]
        for t, (observation, reward, terminated, truncated, info) in enumerate(batches):
            ids, episode, step = info["env_id"], t // 3 + 1, t % 3 + 1
            count = step % 3  # 0 in the new episode
            assert info["elapsed_step"].tolist() == [step] * 2
            assert info["count"].tolist() == [count] * 2
            if step == 3:
                last = [[i, episode, 3] for i in ids]
                np.testing.assert_array_equal(np.stack(info["final_obs"]), last)
                assert info["final_info"]["count"].tolist() == [3, 3]
            if copy:
                assert observation[:, 2].tolist() == [count] * 2
                assert reward.tolist() == [step] * 2
                assert terminated.tolist() == [step == 3 and i == 0 for i in ids]
                assert truncated.tolist() == [step == 3 and i == 1 for i in ids]


class Reuses(Counter):
    """Has one info, one array for each of its entries, and one frame, and changes them."""

    def __init__(self):
        super().__init__(length=3)
        self.info = {"list": [0], "array": np.zeros(1), "nested": {"array": np.zeros(1)}}
        self.info["lock"] = threading.Lock()  # which cannot be copied
        self.frame = np.zeros((1, 1, 3), np.uint8)

    def _changed(self):
        for array in (self.info["array"], self.info["nested"]["array"], self.info["list"]):
            array[0] = self.count
        self.frame[:] = self.count
        self.info["count"] = self.count
        return self.info

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0], self._changed()

    def step(self, action):
        return *super().step(action)[:4], self._changed()

    def render(self):
        return self.frame


def _counts(info):
    found = [*info["array"][:, 0], *info["nested"]["array"][:, 0], *info["count"]]
    return {*found, *(each[0] for each in info["list"])}


def test_infos_stay_valid_if_environments_reuse_theirs(backend):
    with make([Reuses] * 2, backend, autoreset_mode="same_step") as pool:
        infos = [pool.reset(seed=0)[1], *(pool.step(zeros(2))[4] for _ in range(4))]
        assert [_counts(info) for info in infos] == [{0}, {1}, {2}, {0}, {1}]
        assert _counts(infos[3]["final_info"]) == {3}
        frames = pool.render()
        pool.step(zeros(2))
        assert frames[1].max() == 1


def test_caller_may_change_the_info_of_a_finished_episode():
    with make([Reuses], "serial", autoreset_mode="disabled") as pool:
        pool.reset(seed=0)
        infos = [pool.step(zeros(1))[4] for _ in range(4)]
        infos[3]["list"][0][0] = 99
        assert _counts(pool.step(zeros(1))[4]) == {3}


# --- trees ---


@pytest.mark.parametrize("some", [False, True])
def test_trees_of_arrays_pass_both_ways(backend, some):
    with make([Composite] * 3, backend) as pool:
        observation, _ = pool.reset(seed=0)
        assert pool.observation_space.contains(observation)
        action = {"button": np.array([0, 3, 2]), "stick": np.array([[0, 0], [-1, 1], [0.5, 0.25]])}
        ids = np.array([2, 0, 1])
        if some:
            observation, reward, *_ = pool.step({k: v[ids] for k, v in action.items()}, ids)
        else:
            observation, reward, *_ = pool.step(action)
            ids = np.arange(3)
        button, stick = action["button"][ids], action["stick"][ids].astype(np.float32)
        assert list(observation) == ["image", "pair", "speed"]
        np.testing.assert_array_equal(
            observation["image"], np.tile(button[:, None, None, None], (1, 4, 4, 1))
        )
        np.testing.assert_array_equal(observation["pair"][0], button - 1)
        np.testing.assert_array_equal(observation["pair"][1][:, 0], button & 1)
        np.testing.assert_array_equal(observation["speed"], stick[:, 0])
        np.testing.assert_array_equal(reward, stick.sum(1))
        space = Composite.observation_space
        assert observation["image"].dtype == np.uint8 and observation["speed"].dtype == np.float64
        assert observation["pair"][1].dtype == space["pair"][1].dtype


class _Big(Counter):
    """Observes and acts in an order of bytes that is not the machine's."""

    observation_space = spaces.Box(-1, 1e6, (3,), np.dtype(">f4"))

    def _observation(self):
        return super()._observation().astype(">f4")


def test_observations_may_have_another_byte_order(backend):
    with make([_Big] * 2, backend, autoreset_mode="same_step") as pool:
        pool.reset(seed=0)
        for step in range(1, 4):
            observation, *_, info = pool.step(zeros(2))
            assert observation[:, 2].tolist() == [step] * 2 and not info["restarted"].any()


class _Says(Counter):
    """Tells of which type its last action was."""

    def step(self, action):
        return (*super().step(0)[:4], {"type": type(action).__name__})


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(-1, 1, (), np.float32), "float32"),
        (spaces.Box(-1, 1, (), np.float64), "float64"),
        (spaces.Box(0, 9, (), np.int32), "int"),
        (spaces.Discrete(3), "int"),
    ],
)
def test_scalar_actions_have_the_type_of_their_space(backend, space, expected):
    class Env(_Says):
        action_space = space

    with make([Env] * 2, backend) as pool:
        pool.reset(seed=0)
        actions = np.zeros(2, space.dtype)
        for ids in (None, [1, 0]):
            assert pool.step(actions, ids)[4]["type"].tolist() == [expected] * 2


# --- beside stepping ---


@with_any_backend
def test_methods_and_attributes_of_environments_are_at_hand(backend):
    with make(counters(4), backend) as pool:
        pool.reset(seed=0)
        assert pool.get_attr("number") == (0, 1, 2, 3)
        assert pool.call("number", env_ids=[3, 0]) == (3, 0)
        assert len(set(pool.call("process"))) == (2 if backend == "process" else 1)
        pool.set_attr("number", [4, 5, 6, 7])
        assert pool.get_attr("number") == (4, 5, 6, 7)
        pool.set_attr("length", 1)
        assert pool.step(zeros(4))[2].all()
        with pytest.raises(jaxenvs.errors.PoolError, match="got 2 values for num_envs=4"):
            pool.set_attr("number", [1, 2])
        with pytest.raises(jaxenvs.errors.WorkerError, match="nowhere"):
            pool.get_attr("nowhere")


def test_frames_are_rendered_for_all_or_some(backend):
    with make(counters(4), backend) as pool:
        pool.reset(seed=0)
        frames = pool.render()
        assert len(frames) == 4 and [frame[0, 0, 0] for frame in frames] == [0, 1, 2, 3]
        assert [frame[0, 0, 0] for frame in pool.render([2, 1])] == [2, 1]
        assert pool.render_mode == "rgb_array"


# --- as they finish ---


@with_any_backend
@pytest.mark.parametrize("batch_size", [1, 3, 4])
def test_recv_returns_each_environment_once_per_send(backend, batch_size):
    n, rounds = 7, 60
    with make(counters(n, length=10**9), backend, batch_size=batch_size) as pool:
        pool.async_reset(seed=0)
        counts, end = np.zeros(n, int), time.monotonic() + 20
        # A worker may be slow to start: all come in the end.
        while counts.sum() < rounds * batch_size or (not counts.all() and time.monotonic() < end):
            observation, reward, _, _, info = pool.recv()
            ids = info["env_id"]
            assert len(ids) == batch_size and len(set(ids.tolist())) == batch_size
            np.testing.assert_array_equal(observation[:, 0], ids)
            np.testing.assert_array_equal(reward, counts[ids])  # the step that it was sent
            np.testing.assert_array_equal(info["count"], counts[ids])
            counts[ids] += 1
            pool.send(zeros(batch_size), ids)
        assert counts.min() > 0  # nobody starves
        left = 0
        while left < n:  # fewer come where fewer are at work
            left += len(pool.recv()[4]["env_id"])
        with pytest.raises(jaxenvs.errors.NothingPendingError):
            pool.recv()
        assert sum(pool.get_attr("count")) == counts.sum()


@with_any_backend
def test_send_of_all_can_be_received_in_parts(backend):
    with make(counters(4), backend, batch_size=2) as pool:
        pool.reset(seed=0)
        pool.send(zeros(4))
        seen = np.concatenate([pool.recv()[4]["env_id"] for _ in range(2)])
        assert sorted(seen.tolist()) == [0, 1, 2, 3]
        np.testing.assert_array_equal(pool.step(zeros(4))[0][:, 2], 2)  # and together again
        np.testing.assert_array_equal(pool.step(zeros(2), [3, 1])[0], [[3, 1, 3], [1, 1, 3]])


@with_any_backend
def test_step_async_leaves_time_for_something_else(backend):
    with make(counters(3), backend) as pool:
        pool.reset_async(seed=3)
        assert pool.reset_wait()[1]["seed"].tolist() == [3, 4, 5]
        pool.step_async([0, 1, 2])
        info = pool.step_wait()[4]
        assert info["action"].tolist() == [0, 1, 2]


# --- with Gymnasium ---


def test_gymnasiums_wrappers_of_vectors_go_around_a_pool(backend):
    vector = gymnasium.wrappers.vector
    with make(counters(3, length=2), backend) as pool:
        env = vector.RecordEpisodeStatistics(pool)
        env = vector.TransformReward(env, lambda reward: 2 * reward)
        env = vector.DictInfoToList(env)
        env.reset(seed=0)
        env.step(zeros(3))
        _, reward, terminated, _, infos = env.step(zeros(3))
        assert terminated.all() and reward.tolist() == [4, 4, 4] and len(infos) == 3
        assert [info["episode"]["r"] for info in infos] == [3, 3, 3]
        assert env.single_action_space == spaces.Discrete(3) and env.num_envs == 3
        assert (
            env.unwrapped is pool
            and env.metadata["autoreset_mode"] == pool.metadata["autoreset_mode"]
        )


def test_a_pool_has_the_spaces_of_a_vector(backend):
    with make(counters(3), backend) as pool:
        assert isinstance(pool, gymnasium.vector.VectorEnv)
        assert pool.single_observation_space == Counter.observation_space
        assert pool.observation_space.shape == (3, 3)
        assert pool.action_space == spaces.MultiDiscrete([3, 3, 3])
        pool.reset(seed=0)
        pool.step(pool.action_space.sample())


class Tells(Counter):
    """Has an info of your choice."""

    def __init__(self, info):
        super().__init__()
        self.info = info

    def step(self, action):
        return *super().step(action)[:4], self.info


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ([{"a": {"b": 1}}, {"a": 5}], [{"b": 1}, 5]),
        ([{"a": 5}, {"a": {"b": 1}}], [5, {"b": 1}]),
        ([{"a": 5}, {}], [5, 0]),
        ([{"a": 5}, {"a": 0.5}], [5, 0.5]),
        ([{"a": 5}, {"a": "five"}], [5, "five"]),
        ([{"a": 2**70}, {"a": 1}], [2**70, 1]),
        ([{"a": [1, 2]}, {"a": [1]}], [[1, 2], [1]]),
    ],
)
def test_infos_of_different_kinds_are_all_kept(backend, infos, expected):
    fns = [functools.partial(Tells, info) for info in infos]
    with jaxenvs.make_pool(fns, backend=backend) as pool:
        pool.reset()
        found = pool.step([0, 0])[4]
        assert found["a"].tolist() == expected
        assert found["_a"].tolist() == ["a" in info for info in infos]


@pytest.mark.parametrize("value", [True, 1])
def test_infos_do_not_replace_the_masks_of_the_pools_own(backend, value):
    fns = [functools.partial(Tells, {"_restarted": value, "_env_id": value})] * 2
    with jaxenvs.make_pool(fns, backend=backend) as pool:
        pool.reset()
        info = pool.step([0, 0])[4]
        assert info["_restarted"].tolist() == info["_env_id"].tolist() == [True, True]
        assert "__restarted" not in info


def test_text_observations_of_coroutines_become_bytes():
    class Says(gymnasium.Env):
        observation_space = gymnasium.spaces.Text(8)
        action_space = gymnasium.spaces.Discrete(2)

        async def reset(self, *, seed=None, options=None):
            return "hi", {}

        async def step(self, action):
            return "you", 1.0, False, False, {}

    with jaxenvs.make_pool(Says, 2, backend="asyncio") as pool:
        assert bytes(pool.reset()[0][1]).rstrip(b"\0") == b"hi"
        assert bytes(pool.step([0, 0])[0][1]).rstrip(b"\0") == b"you"
