"""Pools of what is vectorized already, compared with the same thing driven alone."""

import contextlib

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import jaxenvs
from jaxenvs.errors import PoolError, SeedError, WorkerError
from tests.bridge.envs import Composite, Counter, Cut

KEY = jax.random.key(0)
MODES = {
    "next_step": AutoresetMode.NEXT_STEP,
    "same_step": AutoresetMode.SAME_STEP,
    "disabled": AutoresetMode.DISABLED,
}


def sync(n=3, mode="next_step", copy=True, env=Counter, **kwargs):
    fns = [lambda i=i: env(number=i, **kwargs) for i in range(n)]
    return SyncVectorEnv(fns, copy=copy, autoreset_mode=MODES[mode])


def counters(*args, **kwargs):
    return jaxenvs.make_pool(lambda: sync(*args, **kwargs), backend="native")


def assert_same(found, expected):
    """Of answers of `step`: ours has all that theirs has."""
    for mine, their in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_array_equal(mine, their)
    assert found[1].dtype == np.float64 and found[2].dtype == found[3].dtype == bool
    assert_infos(found[4], expected[4])


def assert_infos(mine, theirs):
    for name, value in theirs.items():
        if isinstance(value, dict):
            assert_infos(mine[name], value)
        elif name == "final_obs":
            for a, b in zip(mine[name], value, strict=True):
                if a is not None:
                    np.testing.assert_array_equal(a, b)
        else:
            np.testing.assert_array_equal(mine[name], value)


# --- Gymnasium's vector environments ---


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_environment_answers_as_it_does_alone(mode):
    alone = sync(mode=mode)
    with counters(mode=mode) as pool:
        assert pool.backend == "native" and pool.num_envs == 3 and pool.autoreset_mode == mode
        assert_infos(pool.reset(seed=5)[1], alone.reset(seed=5)[1])
        for _ in range(5 if mode == "disabled" else 20):
            assert_same(pool.step([0, 1, 2]), alone.step(np.array([0, 1, 2])))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("next_step", [1, 2, 3, 4, 5, 0, 1]),
        ("same_step", [1, 2, 3, 4, 5, 1, 2]),
    ],
)
def test_steps_of_an_episode_are_counted(mode, expected):
    with counters(mode=mode) as pool:
        assert (pool.reset()[1]["elapsed_step"] == 0).all()
        assert [int(pool.step([0, 0, 0])[4]["elapsed_step"][1]) for _ in expected] == expected


def test_steps_of_finished_episodes_are_not_counted():
    fns = [lambda: Counter(0, 2), lambda: Cut(1, 2), lambda: Counter(2, 99)]
    env = SyncVectorEnv(fns, autoreset_mode=MODES["disabled"])
    env_step = env.step

    def step(actions):
        env._autoreset_envs[:] = False  # so that Gymnasium steps finished environments too
        return env_step(actions)

    env.step = step
    with jaxenvs.make_pool(lambda: env, backend="native") as pool:
        pool.reset()
        counts = [pool.step([0, 0, 0])[4]["elapsed_step"].tolist() for _ in range(4)]
        assert counts == [[1, 1, 1], [2, 2, 2], [2, 2, 3], [2, 2, 4]]
        pool.reset(env_ids=[1])
        assert pool.step([0, 0, 0])[4]["elapsed_step"].tolist() == [2, 1, 5]


def test_fresh_arrays_are_passed_on_without_a_copy():
    env = sync()
    with jaxenvs.make_pool(lambda: env, backend="native") as pool:
        pool.reset()
        seen = []
        env_step = env.step
        env.step = lambda actions: seen.append(env_step(actions)) or seen[-1]
        batches = [pool.step([0, 0, 0])[0] for _ in range(2)]
        assert all(np.shares_memory(a, b[0]) for a, b in zip(batches, seen, strict=True))
        assert not np.array_equal(*batches)


def test_memory_that_is_written_to_again_is_copied():
    with counters(copy=False) as pool:
        batches = [pool.reset()[0]] + [pool.step([0, 0, 0])[0] for _ in range(8)]
    assert [int(batch[0, 2]) for batch in batches] == [0, 1, 2, 3, 4, 5, 0, 1, 2]


def test_infos_stay_valid_if_memory_is_reused():
    env = sync(mode="next_step", length=9)
    env_step, memory = env.step, np.zeros(3)

    def step(actions):
        *batch, info = env_step(actions)
        memory[:] += 1
        return *batch, {**info, "array": memory}

    env.step = step
    with jaxenvs.make_pool(lambda: env, backend="native") as pool:
        pool.reset()
        infos = [pool.step([0, 0, 0])[4] for _ in range(3)]
        assert [info["array"].tolist() for info in infos] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]


def test_final_observations_stay_valid_if_memory_is_reused():
    env = sync(mode="same_step", length=2)
    env_step, memory = env.step, np.zeros((3, 3), np.float32)

    def step(actions):
        *batch, info = env_step(actions)
        if "final_obs" in info:  # in one array, as ale_py has them
            memory[:] = np.stack(info["final_obs"])
            info["final_obs"] = memory
        return *batch, info

    env.step = step
    with jaxenvs.make_pool(lambda: env, backend="native") as pool:
        pool.reset()
        infos = [pool.step([0, 0, 0])[4] for _ in range(6)]
        for episode, info in enumerate(infos[1::2], start=1):
            last = [[i, episode, 2] for i in range(3)]
            np.testing.assert_array_equal(np.stack(info["final_obs"]), last)


def test_trees_of_arrays_pass_both_ways():
    class Numbered(Composite):
        def __init__(self, number):
            self.number = number

    actions = {"button": [1, 2], "stick": np.array([[0.5, 0], [0.25, 1]], np.float32)}
    with counters(n=2, env=Numbered) as pool:
        pool.reset()
        observation, reward, *_ = pool.step(actions)
        np.testing.assert_array_equal(observation["image"][:, 0, 0, 0], [1, 2])
        np.testing.assert_array_equal(observation["pair"][0], [0, 1])
        np.testing.assert_array_equal(observation["speed"], [0.5, 0.25])
        np.testing.assert_array_equal(reward, [0.5, 1.25])


def test_vector_environment_resets_some_where_it_can():
    with counters(mode="disabled") as pool:
        pool.reset(seed=1)
        pool.step([0, 0, 0])
        observation, info = pool.reset(env_ids=[2, 0], seed=[7, 8])
        np.testing.assert_array_equal(observation, [[2, 2, 0], [0, 2, 0]])
        np.testing.assert_array_equal(info["seed"], [7, 8])
        np.testing.assert_array_equal(info["env_id"], [2, 0])
        pool.step([0, 0, 0])
        mask = np.array([False, True, False])
        observation, info = pool.reset(options={"reset_mask": mask, "other": 1})
        np.testing.assert_array_equal(observation[:, 2], [1, 0, 1])
        assert pool.get_attr("options") == ({}, {"other": 1}, {})


def test_unbatched_info_is_unchanged_by_a_partial_reset():
    told = {"epoch": 7, "list": [1, 2], "pair": (1, "a"), "name": "abc"}

    def make():
        vector = sync(mode="disabled")
        reset = vector.reset

        def reset_and_tell(**kwargs):
            observation, info = reset(**kwargs)
            return observation, {**info, **told}

        vector.reset = reset_and_tell
        return vector

    with jaxenvs.make_pool(make, backend="native") as pool:
        pool.reset(seed=1)
        mask = np.array([True, False, True])
        info = pool.reset(options={"reset_mask": mask})[1]
        assert {name: info[name] for name in told} == told
        assert info["count"].shape == (3,) and info["_count"].tolist() == mask.tolist()


def test_unsupported_partial_reset_and_step_are_refused():
    make = lambda: gymnasium.make_vec("CartPole-v1", 2)  # noqa: E731
    with jaxenvs.make_pool(make, backend="native") as pool:
        pool.reset(seed=0)
        with pytest.raises(PoolError, match="resets all its environments together"):
            pool.reset(env_ids=[0])
        with pytest.raises(PoolError, match="steps all its environments together"):
            pool.step([0], env_ids=[1])
        assert pool.step([0, 1])[0].shape == (2, 4)


def test_attributes_and_frames_are_per_environment():
    with counters() as pool:
        assert pool.get_attr("number") == (0, 1, 2)
        pool.set_attr("number", [5, 6, 7])
        pool.reset()
        assert [int(picture[0, 0, 0]) for picture in pool.render(env_ids=[2, 1])] == [7, 6]
        with pytest.raises(WorkerError, match="no_such_thing"):
            pool.call("no_such_thing")


def test_step_async_is_the_environments_own():
    class Asynchronous(SyncVectorEnv):
        begun = None

        def step_async(self, actions):
            self.begun = actions

        def step_wait(self):
            return self.step(self.begun)

    env = Asynchronous([Counter, Counter])
    with jaxenvs.make_pool(lambda: env, backend="native") as pool:
        pool.reset()
        pool.step_async([0, 1])
        np.testing.assert_array_equal(env.begun, [0, 1])
        assert (pool.step_wait()[1] == 1).all()
        pool.send([2, 1])
        np.testing.assert_array_equal(env.begun, [2, 1])
        assert (pool.recv()[1] == 2).all()


# --- making one ---


def test_auto_backend_detects_a_vectorized_environment():
    for num_envs in (None, 3):
        with jaxenvs.make_pool(sync, num_envs) as pool:
            assert pool.backend == "native" and pool.num_envs == 3


def test_id_with_a_vectorized_version_matches_gymnasium():
    with jaxenvs.make_pool("CartPole-v1", 3, backend="native", time_limit=4) as pool:
        alone = gymnasium.make_vec(
            "CartPole-v1", 3, vectorization_mode="vector_entry_point", max_episode_steps=4
        )
        np.testing.assert_array_equal(pool.reset(seed=2)[0], alone.reset(seed=2)[0])
        for _ in range(10):
            assert_same(pool.step([0, 1, 0]), alone.step(np.array([0, 1, 0])))


@pytest.mark.parametrize(
    ("kwargs", "word"),
    [
        ({"autoreset_mode": "same_step"}, "autoreset_mode='same_step'.*has 'next_step'"),
        ({"num_envs": 4}, "num_envs=4.*has 3"),
        ({"batch_size": 2}, "batch_size=2.*has 3"),
        ({"num_workers": 2}, "num_workers"),
        ({"time_limit": 5}, "time_limit"),
        ({"timeout": 1.0}, "timeout"),
        ({"on_failure": "restart"}, "on_failure"),
        ({"envs_per_worker": 1}, "envs_per_worker"),
        ({"length": 5}, "only an id accepts"),
    ],
)
def test_native_backend_refuses_unsupported_arguments(kwargs, word):
    with pytest.raises(PoolError, match=word):
        jaxenvs.make_pool(sync, backend="native", **kwargs)


def test_autoreset_mode_of_the_environment_may_be_named():
    with counters(mode="same_step") as pool:
        assert pool.autoreset_mode == "same_step"
    make = lambda: sync(mode="same_step")  # noqa: E731
    with jaxenvs.make_pool(make, autoreset_mode=AutoresetMode.SAME_STEP, backend="native") as pool:
        assert pool.metadata["autoreset_mode"] == AutoresetMode.SAME_STEP


def test_native_backend_refuses_single_environments():
    with pytest.raises(PoolError, match="not a vectorized environment"):
        jaxenvs.make_pool(Counter, backend="native")
    with pytest.raises(PoolError, match="no vectorized version"):
        jaxenvs.make_pool("MountainCar-v0", 2, backend="native")
    with pytest.raises(PoolError, match="needs num_envs"):
        jaxenvs.make_pool("CartPole-v1", backend="native")


# --- faults ---


def test_an_exception_comes_with_its_traceback():
    def fails():
        raise KeyError("deliberate")

    with pytest.raises(WorkerError, match=r"constructor(.|\n)*in fails(.|\n)*deliberate"):
        jaxenvs.make_pool(fails, backend="native")

    class Failing(Counter):
        def step(self, action):
            if action == 2:
                raise ValueError("deliberate")
            return super().step(action)

    with counters(env=Failing) as pool:
        pool.reset()
        with pytest.raises(WorkerError, match=r"vectorized environment.*failed in step") as caught:
            pool.step([0, 2, 0])
        assert caught.value.env_ids == (0, 1, 2)
        pool.reset()
        assert (pool.step([0, 0, 0])[1] == 1).all()


def test_nan_observation_is_reported_unless_validation_is_off():
    class Bad(Counter):
        def step(self, action):
            observation, *rest = super().step(action)
            if self.number == 1:
                observation[1] = np.nan
            return observation, *rest

    with counters(env=Bad) as pool:
        pool.reset()
        with pytest.raises(WorkerError, match=r"NaN.*environments \[1\]"):
            pool.step([0, 0, 0])
    with jaxenvs.make_pool(lambda: sync(env=Bad), validate=False) as pool:
        pool.reset()
        assert np.isnan(pool.step([0, 0, 0])[0][1, 1])


@pytest.mark.parametrize("validate", ["first", True])
def test_an_observation_outside_of_its_space_is_told(validate):
    class Outside(Counter):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)

    with jaxenvs.make_pool(lambda: sync(env=Outside, n=2), validate=validate) as pool:
        pool.reset()
        message = r"environment 0.*outside"
        raised = pytest.raises(WorkerError, match=message)
        with raised if validate is True else pytest.warns(UserWarning, match=message):
            [pool.step([0, 0]) for _ in range(2)]


def test_entries_of_info_are_there_at_every_step():
    with jaxenvs.make_pool(sync, info_fields=["count"]) as pool:
        assert pool.info_fields["count"].shape == ()
        pool.reset()
        for step in (1, 2, 3, 4, 5, 0):
            assert (pool.step([0, 0, 0])[4]["count"] == step).all()


# --- inside compiled programs ---


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_a_compiled_program_steps_a_vector_environment(mode):
    make = lambda: sync(mode=mode, length=3)  # noqa: E731
    env = jaxenvs.HostEnv(jaxenvs.make_pool(make, info_fields=["count"]))
    with contextlib.closing(env):
        assert env.autoreset_mode == mode
        state, first = env.reset(KEY)
        np.testing.assert_array_equal(first.observation[:, ::2], [[0, 0], [1, 0], [2, 0]])
        actions = jnp.zeros(3, jnp.int32)
        step = jax.jit(lambda state, _: env.step(state, actions, KEY))
        _, steps = jax.lax.scan(step, state, length=5)
        count = [1, 2, 0, 1, 2] if mode == "same_step" else [1, 2, 3, 0, 1]
        np.testing.assert_array_equal(steps.observation[:, 1, 2], count)
        np.testing.assert_array_equal(steps.final_observation[:3, 0, 2], [1, 2, 3])
        np.testing.assert_array_equal(steps.info["count"][:, 1], count)
        np.testing.assert_array_equal(steps.final_info["count"][:3, 1], [1, 2, 3])
        elapsed = [1, 2, 3] if mode == "next_step" else [1, 2, 0]
        np.testing.assert_array_equal(steps.info["elapsed_step"][:3, 1], elapsed)
        np.testing.assert_array_equal(steps.final_info["elapsed_step"][:3, 1], [1, 2, 3])
        np.testing.assert_array_equal(steps.terminated[:, 2], [0, 0, 1, 0, 0])


@pytest.mark.interop
def test_a_compiled_program_steps_an_envpool():
    pytest.importorskip("envpool")
    env = jaxenvs.HostEnv(jaxenvs.make_pool("envpool/CartPole-v1", 3))
    with contextlib.closing(env):
        state, first = env.reset(KEY)
        seed = int(jax.random.bits(jax.random.split(KEY, 3)[0]) >> 1) % (2**31 - 3)
        alone = envpool_cartpole(seed=seed)
        np.testing.assert_array_equal(first.observation, alone.reset()[0])
        actions = np.random.default_rng(0).integers(0, 2, (60, 3)).astype(np.int32)
        _, steps = jax.lax.scan(lambda state, a: env.step(state, a, KEY), state, actions)
        for t in range(60):
            observation, reward, terminated, *_ = alone.step(actions[t])
            np.testing.assert_array_equal(steps.observation[t], observation)
            np.testing.assert_array_equal(steps.reward[t], reward)
            np.testing.assert_array_equal(steps.terminated[t], terminated)
        assert steps.terminated.any()


def test_a_compiled_program_resets_some():
    env = jaxenvs.HostEnv(jaxenvs.make_pool(lambda: sync(mode="disabled"), backend="native"))
    with contextlib.closing(env):
        state, timestep = env.reset(KEY)
        state, timestep = env.step(state, jnp.zeros(3, jnp.int32), KEY)
        mask = jnp.array([False, True, False])
        state, timestep = env.reset_where(mask, state, timestep, KEY)
        np.testing.assert_array_equal(timestep.observation, [[0, 1, 1], [1, 2, 0], [2, 1, 1]])
        state, timestep = env.step(state, jnp.zeros(3, jnp.int32), KEY)
        np.testing.assert_array_equal(timestep.observation[:, 2], [2, 1, 2])


@pytest.mark.interop
def test_compiled_programs_send_and_receive_some():
    pytest.importorskip("envpool")
    env = jaxenvs.HostEnv(jaxenvs.make_pool("envpool/CartPole-v1", 4, batch_size=2))
    with contextlib.closing(env):
        state, _ = env.reset(KEY)
        state = env.send(state, jnp.zeros(4, jnp.int32))

        def turn(state, _):
            state, timestep = env.recv(state)
            ids = timestep.info["env_id"]
            return env.send(state, jnp.ones(2, jnp.int32), ids), timestep

        _, steps = jax.lax.scan(turn, state, length=20)
        ids, counts = np.asarray(steps.info["env_id"]), np.asarray(steps.info["elapsed_step"])
        for i in range(4):  # each goes its own way, one step after the other
            own = counts[ids == i]
            assert ((np.diff(own) == 1) | (own[1:] == 0)).all() and len(own) > 3


# --- ale_py ---


@pytest.mark.interop
@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_atari_answers_as_it_does_alone(mode):
    ale = pytest.importorskip("ale_py.vector_env")
    kwargs = {"max_num_frames_per_episode": 160, "frameskip": 4, "noop_max": 5}
    alone = ale.AtariVectorEnv("pong", 3, autoreset_mode=MODES[mode], **kwargs)
    make = lambda: ale.AtariVectorEnv("pong", 3, autoreset_mode=MODES[mode], **kwargs)  # noqa: E731
    with jaxenvs.make_pool(make) as pool:
        assert pool.autoreset_mode == mode
        np.testing.assert_array_equal(pool.reset(seed=3)[0], alone.reset(seed=3)[0])
        rng, ended = np.random.default_rng(0), 0
        for _ in range(90):
            actions = rng.integers(0, 6, 3)
            found, expected = pool.step(actions), alone.step(actions)
            assert_same(found, expected)
            ended += int(found[3].sum())
        assert ended >= 3
        assert found[4]["lives"].dtype == np.int32 and found[4]["_lives"].all()
    alone.close()


@pytest.mark.interop
def test_atari_id_makes_a_vectorized_environment():
    pytest.importorskip("ale_py")
    with jaxenvs.make_pool(
        "ALE/Pong-v5", 2, backend="native", autoreset_mode="same_step", img_height=42
    ) as pool:
        assert pool.autoreset_mode == "same_step"
        assert pool.reset(seed=0)[0].shape == (2, 4, 42, 84)


@pytest.mark.interop
def test_atari_sends_and_receives_partial_batches():
    pytest.importorskip("ale_py")
    with jaxenvs.make_pool("ALE/Pong-v5", 4, batch_size=2, backend="native") as pool:
        pool.async_reset(seed=1)
        seen = set()
        for _ in range(12):
            observation, *_, info = pool.recv()
            assert observation.shape == (2, 4, 84, 84)
            seen |= set(info["env_id"].tolist())
            pool.send(np.array([2, 3]), info["env_id"][::-1])
        assert len(seen) >= 3
        last = pool.recv()[4]["env_id"]
        pool.recv()
        with pytest.raises(PoolError, match="of the latest recv"):
            pool.send([0, 0], last)


# --- EnvPool ---


def envpool_cartpole(n=3, **kwargs):
    envpool = pytest.importorskip("envpool")
    return envpool.make("CartPole-v1", env_type="gymnasium", num_envs=n, **kwargs)


@pytest.mark.interop
def test_envpool_answers_as_it_does_alone():
    alone = envpool_cartpole(seed=7)
    with jaxenvs.make_pool("envpool/CartPole-v1", 3, seed=7) as pool:
        assert pool.backend == "native" and pool.autoreset_mode == "next_step"
        np.testing.assert_array_equal(pool.reset()[0], alone.reset()[0])
        rng = np.random.default_rng(0)
        for _ in range(300):
            actions = rng.integers(0, 2, 3)
            found, expected = pool.step(actions), alone.step(actions)
            assert_same(found, expected)
        assert found[4]["players"]["env_id"].tolist() == [0, 1, 2]
        assert found[4]["elapsed_step"].dtype == np.int32


@pytest.mark.interop
def test_envpool_begins_from_the_seed_of_a_reset():
    with jaxenvs.make_pool("envpool/CartPole-v1", 3) as pool:
        first = pool.reset(seed=7)[0].copy()
        np.testing.assert_array_equal(first, envpool_cartpole(seed=7).reset()[0])
        pool.step([0, 1, 0])
        assert not np.array_equal(pool.reset()[0], first)
        np.testing.assert_array_equal(pool.reset(seed=7)[0], first)
        assert not np.array_equal(pool.reset(seed=[7, 1, 9])[0], first)
        with pytest.raises(SeedError, match="some of its environments"):
            pool.reset(seed=1, env_ids=[0])
    with jaxenvs.make_pool(envpool_cartpole) as pool, pytest.raises(SeedError, match="inside"):
        pool.reset(seed=1)


@pytest.mark.interop
def test_some_of_an_envpool_are_stepped_and_reset():
    with jaxenvs.make_pool("envpool/CartPole-v1", 3, seed=1) as pool:
        before = pool.reset()[0].copy()
        observation, reward, *_, info = pool.step([1, 1], env_ids=[2, 0])
        assert observation.shape == (2, 4) and info["env_id"].tolist() == [2, 0]
        assert (observation[:, 1] > before[[2, 0], 1]).all() and (reward == 1).all()
        observation, info = pool.reset(env_ids=[1, 2])
        assert info["elapsed_step"].tolist() == [0, 0] and np.abs(observation).max() <= 0.05


@pytest.mark.interop
def test_a_reset_by_mask_shows_the_latest_rows_of_the_others():
    with jaxenvs.make_pool("envpool/CartPole-v1", 3, seed=1) as pool:
        pool.reset()
        rows = [pool.step([1], env_ids=[i])[0][0].copy() for i in (0, 1)]
        observation, info = pool.reset(options={"reset_mask": np.array([False, False, True])})
        np.testing.assert_array_equal(observation[:2], rows)
        assert np.abs(observation[2]).max() <= 0.05 and info["env_id"].tolist() == [0, 1, 2]


@pytest.mark.interop
def test_envpool_sends_and_receives_partial_batches():
    with jaxenvs.make_pool("envpool/CartPole-v1", 6, batch_size=2, seed=3) as pool:
        pool.async_reset()
        steps = np.zeros(6, int)
        for _ in range(60):
            observation, reward, *_, info = pool.recv()
            assert observation.shape == (2, 4) and reward.dtype == np.float64
            steps[info["env_id"]] += 1
            pool.send(np.array([0, 1]), info["env_id"])
        assert (steps > 5).all()
        for _ in range(3):
            pool.recv()
        observation, info = pool.reset(seed=3)  # all, in order
        expected = envpool_cartpole(6, seed=3)
        np.testing.assert_array_equal(observation, expected.reset()[0])
        answers = pool.step([0, 1, 0, 1, 0, 1])
        assert_same(answers, expected.step(np.array([0, 1, 0, 1, 0, 1])))
        with pytest.raises(PoolError, match="batches of 2"):
            pool.step([0], env_ids=[3])


@pytest.mark.interop
def test_envpool_options_are_applied_or_refused():
    pytest.importorskip("envpool")
    with jaxenvs.make_pool("envpool/CartPole-v1", 2, num_workers=1, time_limit=3, seed=0) as pool:
        pool.reset()
        assert [bool(pool.step([0, 1])[3].all()) for _ in range(3)] == [False, False, True]
        assert pool.num_workers == 1
        assert pool.get_attr("config")[0]["max_episode_steps"] == 3
        with pytest.raises(PoolError, match="accepts no options"):
            pool.reset(options={"a": 1})
        pool.reset()
    with pytest.raises(PoolError, match="vectorized already"):
        jaxenvs.make_pool("envpool/CartPole-v1", 2, backend="process")
    import envpool

    with pytest.raises(PoolError, match='env_type="gymnasium"'):
        jaxenvs.make_pool(lambda: envpool.make_dm("CartPole-v1", num_envs=2), backend="native")


@pytest.mark.interop
def test_an_unknown_envpool_id_names_close_ones():
    pytest.importorskip("envpool")
    with pytest.raises(jaxenvs.errors.UnknownEnvironmentError, match="envpool/CartPole-v1"):
        jaxenvs.make_pool("envpool/CartPol-v1", 2)
