"""The interfaces for environments that are not written in JAX."""

import copy

import gymnasium
import numpy as np
import pytest

import jaxenvs
from jaxenvs.bridge.pool import Pool
from jaxenvs.errors import ActionError, ParameterError, PoolError, SeedError
from jaxenvs.faces._third_party import make_batch_for
from jaxenvs.faces.gym_classic import ClassicEnv, ClassicVectorEnv
from tests.bridge.envs import Composite, Counter, Misbehaving

ID = "gymnasium/CartPole-v1"
SERIAL = {"backend": "serial"}


def counters(n=2, length=3):
    return [lambda i=i: Counter(number=i, length=length) for i in range(n)]


def classic(n=2, length=3, **kwargs):
    mode = kwargs.pop("mode", "disabled")
    pool = jaxenvs.make_pool(counters(n, length), autoreset_mode=mode, **SERIAL, **kwargs)
    return jaxenvs.make_gym(pool, api="gym")


# Gymnasium


def test_a_batch_of_a_host_id_is_a_pool():
    with jaxenvs.make_gym(ID, 3, seed=5, time_limit=4, **SERIAL) as pool:
        assert isinstance(pool, Pool) and isinstance(pool, gymnasium.vector.VectorEnv)
        assert pool.autoreset_mode == "next_step"
        first, _ = pool.reset()
        kept = first.copy()
        for _ in range(4):
            *_, truncated, _ = pool.step([0, 1, 0])
        assert truncated.all()
        np.testing.assert_array_equal(first, kept)
        np.testing.assert_array_equal(pool.reset(seed=5)[0], first)


def test_a_single_host_id_is_a_gymnasium_environment():
    env = jaxenvs.make_gym(ID, render_mode="rgb_array", time_limit=2)
    assert isinstance(env, gymnasium.Env) and type(env.unwrapped).__name__ == "CartPoleEnv"
    assert env.spec.max_episode_steps == 2 and env.render_mode == "rgb_array"
    theirs = gymnasium.make("CartPole-v1")
    np.testing.assert_array_equal(env.reset(seed=3)[0], theirs.reset(seed=3)[0])
    env.close()
    assert isinstance(jaxenvs.make_gym(Counter), Counter)


def test_a_pool_is_returned_unchanged():
    with jaxenvs.make_pool(counters(), **SERIAL) as pool:
        assert jaxenvs.make_gym(pool) is pool and jaxenvs.make_gym(pool, 2) is pool
        for options in ({"num_envs": 3}, {"time_limit": 9}, {"copy": True}, {"seed": 0}):
            with pytest.raises(
                ParameterError, match=f"got {next(iter(options))} with an existing pool"
            ):
                jaxenvs.make_gym(pool, **options)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"wrappers": [lambda env: env]}, "jaxenvs.wrappers around make_vec"),
        ({"device": "cpu"}, "run on the host"),
        ({"batched": ["gravity"]}, "list of functions"),
        ({"stagger": True}, "stagger works with native environments"),
        ({"output": "torch"}, "NumpyToTorch"),
        ({"num_envs": None, "seed": 0}, "seed is an argument of reset"),
        ({"num_envs": None, "autoreset_mode": "same_step"}, "pass num_envs"),
        ({"num_envs": None, "backend": "serial"}, "backend for a single .*Pass num_envs"),
        ({"num_envs": None, "validate": False}, "validate for a single .*Pass num_envs"),
    ],
)
def test_options_of_native_environments_are_refused(options, expected):
    with pytest.raises(ParameterError, match=expected):
        jaxenvs.make_gym(ID, **{"num_envs": 2, **options})


def test_other_objects_are_refused():
    for make in (jaxenvs.make_gym, jaxenvs.make_dm):
        with pytest.raises(ParameterError, match="expected an id, an Environment, a pool"):
            make(3, 2)
        with pytest.raises(ParameterError, match="an Environment, a pool"):
            make(jaxenvs.testing.CountingEnv, 2)  # a native class, not an instance
    with pytest.raises(PoolError, match="cannot replace its own limit"):
        jaxenvs.make_gym("envpool/CartPole-v1", 2, time_limit=None)


def test_learner_interfaces_need_native_environments():
    with pytest.raises(ParameterError, match=r"face got 'gymnasium/.*native environment"):
        make_batch_for("face", "same_step", ID, 2, {})
    with (
        jaxenvs.make_pool(counters(), **SERIAL) as pool,
        pytest.raises(ParameterError, match="face got Pool"),
    ):
        make_batch_for("face", "same_step", pool, None, {})


# Classic gym


def test_a_classic_batch_has_one_flag_and_info_per_environment():
    with classic() as env:
        assert isinstance(env, ClassicVectorEnv) and env.num_envs == 2
        assert env.action_space == gymnasium.spaces.MultiDiscrete([3, 3])
        np.testing.assert_array_equal(env.reset(), [[0, 1, 0], [1, 1, 0]])
        observation, reward, done, infos = env.step([1, 2])
        np.testing.assert_array_equal(observation, [[0, 1, 1], [1, 1, 1]])
        assert reward.tolist() == [1, 1] and done.tolist() == [False, False]
        assert len(infos) == 2 and infos[1]["action"] == 2 and infos[1]["count"] == 1
        assert infos[0]["env_id"] == 0 and infos[0]["elapsed_step"] == 1
        assert "TimeLimit.truncated" not in infos[0] and isinstance(copy.copy(infos), list)
        env.step_async([0, 0])
        env.step_wait()
        _, _, done, infos = env.step([0, 0])
        assert done.tolist() == [True, True] and infos[0]["TimeLimit.truncated"] is False
        # Finished environments wait for a reset, like instances of native batches.
        observation, reward, done, infos = env.step([0, 0])
        assert reward.tolist() == [0, 0] and done.all() and observation[0, 2] == 3
        np.testing.assert_array_equal(env.reset()[:, 1], 2)
        assert not env.step([0, 0])[2].any()


def test_same_step_classic_infos_belong_to_the_old_episode():
    with classic(length=2, mode="same_step", time_limit=9) as env:
        env.reset()
        env.step([0, 0])
        observation, reward, done, infos = env.step([1, 1])
        assert done.all() and reward.tolist() == [2, 2]
        np.testing.assert_array_equal(observation[:, 2], 0)
        np.testing.assert_array_equal(infos[1]["terminal_observation"], [1, 1, 2])
        assert infos[1]["count"] == 2 and infos[1]["action"] == 1
        assert "final_info" not in infos[1] and "final_obs" not in infos[1]


def test_infos_read_late_belong_to_their_step():
    with classic(length=2, time_limit=1) as env:
        env.reset()
        *_, cut = env.step([0, 0])
        env.reset()
        env.step([2, 2])
        env.reset()
        assert cut[0]["TimeLimit.truncated"] is True and cut[0]["action"] == 0


def test_classic_seeds_apply_to_the_next_reset():
    env = jaxenvs.make_gym(ID, 2, api="gym", seed=4, **SERIAL)
    first = env.reset()
    assert env.seed(4) == [4, 5]
    np.testing.assert_array_equal(env.reset(), first)
    theirs = gymnasium.make("CartPole-v1")
    np.testing.assert_array_equal(first[1], theirs.reset(seed=5)[0])
    assert not np.array_equal(env.reset(), first)
    for seed in (-1, [1], "a"):
        with pytest.raises(SeedError):
            env.seed(seed)
    env.close()


def test_a_single_classic_environment_and_its_frames():
    env = jaxenvs.make_gym("gymnasium/CartPole-v1", api="gym", time_limit=2)
    assert isinstance(env, ClassicEnv)
    assert env.reset().shape == (4,)
    _, reward, done, _ = env.step(0)
    assert (reward, done) == (1.0, False)
    _, _, done, info = env.step(0)
    assert done and info["TimeLimit.truncated"] is True
    with pytest.raises(ActionError, match="expected a member of"):
        env.step(7)
    pytest.importorskip("pygame")
    assert env.render(mode="rgb_array").shape == (400, 600, 3)  # without a render_mode in make_gym
    env.close()


def test_classic_rendering_calls_and_closing():
    env = classic()
    env.reset()
    frames = env.render(mode="rgb_array")
    assert len(frames) == 2 and (frames[1] == 1).all()
    env.set_attr("number", [8, 9])
    assert env.get_attr("number") == (8, 9) and len(env.call("process")) == 2
    env.step_async([0, 0])
    with pytest.raises(gymnasium.error.AlreadyPendingCallError):
        env.step([0, 0])
    env.step_wait()
    with pytest.raises(gymnasium.error.NoAsyncCallError):
        env.step_wait()
    env.close()
    with pytest.raises(gymnasium.error.ClosedEnvironmentError):
        env.reset()


@pytest.mark.interop
@pytest.mark.parametrize(
    ("id", "options"), [("gym/CartPole-v1", {}), ("envpool/CartPole-v1", {"render_mode": "human"})]
)
def test_environments_of_other_libraries_render(id, options):
    pytest.importorskip("pygame")
    pytest.importorskip(id.partition("/")[0])
    if id.startswith("envpool"):
        options = {**options, "autoreset_mode": "next_step"}
    else:
        options = {**options, **SERIAL}
    with jaxenvs.make_gym(id, 2, api="gym", **options) as env:
        env.reset()
        assert [frame.shape for frame in env.render(mode="rgb_array")] == [(400, 600, 3)] * 2


def test_rendering_without_a_mode_names_the_option():
    pool = jaxenvs.make_pool(ID, 2, **SERIAL)
    env = jaxenvs.make_gym(pool, api="gym")
    env.reset()
    with (
        pytest.warns(UserWarning, match="render"),
        pytest.raises(ParameterError, match='render_mode="rgb_array"'),
    ):
        env.render()
    env.close()


def test_partial_batches_are_refused():
    with (
        jaxenvs.make_pool(counters(), batch_size=1, **SERIAL) as pool,
        pytest.raises(ParameterError, match="steps all environments together"),
    ):
        jaxenvs.make_gym(pool, api="gym")


# dm_env

dm_env = pytest.importorskip("dm_env")
FIRST, MID, LAST = map(int, dm_env.StepType)


def test_a_dm_batch_marks_the_start_and_end_of_episodes():
    fns = [lambda: Counter(length=2), lambda: Counter(number=1, length=3)]
    with jaxenvs.make_pool(fns, autoreset_mode="next_step", copy=True, **SERIAL) as pool:
        env = jaxenvs.make_dm(pool)
        seen = [env.step([0, 0]), *(env.step([1, 1]) for _ in range(4))]
        types = [timestep.step_type.tolist() for timestep in seen]
        expected = [[FIRST, FIRST], [MID, MID], [LAST, MID], [FIRST, LAST], [MID, FIRST]]
        assert types == expected
        assert [timestep.reward.tolist() for timestep in seen[2:4]] == [[2, 2], [0, 3]]
        assert seen[2].discount.tolist() == [0, 1] and seen[3].discount.tolist() == [1, 0]
        np.testing.assert_array_equal(seen[3].observation, [[0, 2, 0], [1, 1, 3]])
        with pytest.raises(ActionError):
            env.step([0, 9])


def test_truncated_episodes_keep_their_discount():
    with jaxenvs.make_dm(ID, 2, time_limit=1, seed=3, **SERIAL) as env:
        first = env.reset()
        last = env.step([0, 0])
        assert last.last().all() and last.discount.tolist() == [1, 1]
        theirs = gymnasium.make("CartPole-v1")
        np.testing.assert_array_equal(first.observation[1], theirs.reset(seed=4)[0])


def test_specs_have_the_dtypes_of_what_is_returned():
    with jaxenvs.make_dm(Composite, 2, **SERIAL) as env:
        timestep = env.reset()
        specs = env.observation_spec()
        assert specs["image"].dtype == np.uint8 and specs["speed"].dtype == np.float64
        specs["image"].validate(timestep.observation["image"])
        specs["speed"].validate(timestep.observation["speed"])
        for spec, part in zip(specs["pair"], timestep.observation["pair"], strict=True):
            spec.validate(part)
        env.reward_spec().validate(timestep.reward)
        env.discount_spec().validate(timestep.discount)
        single = env.single_action_spec()
        assert single["button"].num_values == 4 and single["stick"].shape == (2,)
        assert env.action_spec()["stick"].shape == (2, 2)
        assert env.single_observation_spec()["pair"][0].minimum == -1


def test_a_single_dm_environment():
    env = jaxenvs.make_dm(ID, seed=1, time_limit=2)
    assert env.reset().first() and env.step(1).mid()
    last = env.step(0)
    assert last.last() and last.discount == 1 and env.step(0).first()
    assert env.action_spec().num_values == 2
    env.close()


def test_a_replaced_environment_returns_a_first(tmp_path):
    fns = [Counter, lambda: Misbehaving("raises", str(tmp_path / "done"), at=2)]
    with jaxenvs.make_pool(fns, autoreset_mode="next_step", on_failure="restart", **SERIAL) as pool:
        env = jaxenvs.make_dm(pool)
        types = [env.step([0, 0]).step_type.tolist() for _ in range(4)]
        assert types == [[FIRST, FIRST], [MID, MID], [MID, FIRST], [MID, MID]]


def test_dm_env_needs_next_step_autoreset():
    with jaxenvs.make_pool(counters(), autoreset_mode="same_step", **SERIAL) as pool:
        with pytest.raises(PoolError, match='autoreset_mode="next_step"'):
            jaxenvs.make_dm(pool)
        assert not pool.closed
    with pytest.raises(ParameterError, match="wrappers"):
        jaxenvs.make_dm(ID, 2, wrappers=[lambda env: env])
