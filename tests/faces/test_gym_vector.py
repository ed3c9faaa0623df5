"""`make_gym(id, num_envs)`: a Gymnasium vector environment."""

import copy
import dataclasses
import functools
import itertools
import json
import subprocess
import sys
import threading
import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import jaxenvs
from jaxenvs import wrappers
from jaxenvs.errors import (
    ActionError,
    ParameterError,
    SeedError,
    UnknownParameterError,
    WrapperError,
)
from jaxenvs.testing import CountingEnv, ScriptedEnv
from tests.faces.native import keys_of
from tests.ids import SLOW_TO_COMPILE, diagonal, every_nth, one_id_per_class
from tests.opaque import OpaqueVectorEnv
from tests.rounding import assert_close

CLASSIC = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Pendulum-v1")
MODES = ("next_step", "same_step", "disabled")
PACKED, MANY_PACKED, AS_ARRAYS = 4, 3000, 9000  # numbers of instances that are passed in each way


def assert_same(left, right):
    jax.tree.map(np.testing.assert_array_equal, left, right)


def actions_of(envs, num_steps, seed=0):
    envs.action_space.seed(seed)
    return [envs.action_space.sample() for _ in range(num_steps)]


def play(envs, actions, seed=0):
    """Returns the results of a reset and of steps: observation, reward, terminated, truncated."""
    first, _ = envs.reset(seed=seed)
    return [first, *(envs.step(action)[:4] for action in actions)]


# The jitted path


@pytest.mark.bitwise
@pytest.mark.parametrize(("num_envs", "mode"), diagonal([PACKED, MANY_PACKED, AS_ARRAYS], MODES))
def test_batch_agrees_with_the_jitted_path(num_envs, mode):
    envs = jaxenvs.make_gym("CartPole-v1", num_envs, autoreset_mode=mode, time_limit=13)
    native = jaxenvs.vectorize(
        jaxenvs.make("CartPole-v1", time_limit=13), num_envs, autoreset_mode=mode
    )
    assert envs.metadata["autoreset_mode"] is AutoresetMode[mode.upper()]
    observation, infos = envs.reset(seed=7)
    state, timestep = jax.jit(native.reset)(keys_of(7, num_envs, 0))
    assert_close(observation, timestep.observation)
    assert infos == {}
    step = jax.jit(native.step)
    num_done = 0
    for t, action in enumerate(actions_of(envs, 30), start=1):
        state, timestep = step(state, action, keys_of(7, num_envs, t))
        out = envs.step(action)
        expected = (
            timestep.observation,
            timestep.reward,
            timestep.terminated,
            timestep.truncated,
        )
        assert_close(out[:4], expected)
        assert [part.dtype for part in out[:4]] == [part.dtype for part in expected]
        done = out[2] | out[3]
        num_done += done.sum()
        if mode == "same_step" and done.any():
            assert_close(out[4]["_final_obs"], done)
            finals = np.stack(out[4]["final_obs"][done])
            assert_close(finals, np.asarray(timestep.final_observation)[done])
            assert all(final is None for final in out[4]["final_obs"][~done])
        else:
            assert out[4] == {}
    assert num_done


@pytest.mark.bitwise
@pytest.mark.parametrize(
    ("id", "mode"), every_nth(19, itertools.product(one_id_per_class(), MODES))
)
def test_every_environment_agrees_with_the_jitted_path(id, mode):
    num_envs = 1 if mode == "same_step" else 5
    envs = jaxenvs.make_gym(id, num_envs, autoreset_mode=mode, time_limit=9)
    native = jaxenvs.vectorize(jaxenvs.make(id, time_limit=9), num_envs, autoreset_mode=mode)
    state, timestep = jax.jit(native.reset)(keys_of(1, num_envs, 0))
    assert_close(envs.reset(seed=1)[0], timestep.observation)
    step = jax.jit(native.step)
    for t, action in enumerate(actions_of(envs, 30), start=1):
        state, timestep = step(state, action, keys_of(1, num_envs, t))
        assert_close(envs.step(action)[:2], (timestep.observation, timestep.reward))


def leaves_of(space, value):
    """Returns pairs of a space without parts and its member."""
    if isinstance(space, gymnasium.spaces.Dict):
        return [pair for name in space for pair in leaves_of(space[name], value[name])]
    if isinstance(space, gymnasium.spaces.Tuple):
        return [pair for each in zip(space, value, strict=True) for pair in leaves_of(*each)]
    return [(space, value)]


def has_discrete_observations(id):
    space = jaxenvs.spaces.to_gymnasium(jaxenvs.make(id).observation_space)
    kinds = (gymnasium.spaces.Discrete, gymnasium.spaces.MultiDiscrete)
    return any(isinstance(part, kinds) for part, _ in leaves_of(space, space.sample()))


@pytest.mark.parametrize(
    "id",
    [
        id
        for id in one_id_per_class()
        if id not in SLOW_TO_COMPILE and has_discrete_observations(id)
    ],
)
def test_discrete_observations_have_the_dtype_of_their_space(id):
    envs = jaxenvs.make_gym(id, 2, autoreset_mode="same_step", time_limit=1)
    env = jaxenvs.make_gym(id)
    first, (second, *_, infos) = envs.reset(seed=0)[0], envs.step(actions_of(envs, 1)[0])
    found = [(envs.observation_space, batch) for batch in (first, second)]
    found += [(envs.single_observation_space, final) for final in infos["final_obs"]]
    found += [(env.observation_space, env.reset(seed=0)[0])]
    for space, observation in found:
        for part, value in leaves_of(space, observation):
            assert value.dtype == part.dtype and part.contains(value)


@pytest.mark.parametrize(
    ("layout", "mode"), diagonal(["dict", "tuple"], ["same_step", "next_step"])
)
def test_nested_observations_and_state_keys_match_jitted_path(layout, mode):
    env = CountingEnv(layout=layout, has_key=True)
    envs = jaxenvs.make_gym(env, 5, autoreset_mode=mode)
    native = jaxenvs.vectorize(env, 5, autoreset_mode=mode)
    state, timestep = jax.jit(native.reset)(keys_of(0, 5, 0))
    assert_close(envs.reset(seed=0)[0], timestep.observation)
    step = jax.jit(native.step)
    seen = 0
    for t, action in enumerate(actions_of(envs, 10), start=1):
        state, timestep = step(state, action, keys_of(0, 5, t))
        observation, reward, _, _, infos = envs.step(action)
        assert_close((observation, reward), (timestep.observation, timestep.reward))
        assert envs.observation_space.contains(observation)
        for i in np.flatnonzero(infos.get("_final_obs", [])):
            seen += 1
            assert_close(
                infos["final_obs"][i],
                jax.tree.map(lambda leaf, i=i: leaf[i], timestep.final_observation),
            )
    assert seen > 0 or mode == "next_step"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (3, "wrappers=3 is not a list"),
        ([3], "expected wrappers of jaxenvs.wrappers"),
        ([lambda env: None], "returned NoneType; expected a VectorEnv"),
        ([gymnasium.wrappers.ClipReward], "around the result of make_gym"),
        ([gymnasium.wrappers.vector.RecordEpisodeStatistics], "around the result of make_gym"),
    ],
)
def test_things_that_are_not_wrappers_are_refused(given, expected):
    for make in (jaxenvs.make_gym, jaxenvs.make_dm):
        with pytest.raises(WrapperError, match=expected):
            make("CartPole-v1", 2, wrappers=given)


def test_wrappers_run_inside_the_step():
    stack = [wrappers.TimeAwareObservation, lambda env: env.wrap(wrappers.FrameStackObservation, 3)]
    envs = jaxenvs.make_gym("CartPole-v1", 4, wrappers=stack, autoreset_mode="same_step")
    assert envs.single_observation_space.shape == (3, 5)
    native = jaxenvs.vectorize(jaxenvs.make("CartPole-v1"), 4).wrap(stack[0]).wrap(stack[1])
    state, timestep = jax.jit(native.reset)(keys_of(3, 4, 0))
    assert_close(envs.reset(seed=3)[0], timestep.observation)
    action, step = np.ones(4, np.int32), jax.jit(native.step)
    for t in range(1, 15):
        state, timestep = step(state, action, keys_of(3, 4, t))
        assert_close(envs.step(action)[0], timestep.observation)


def test_an_opaque_vector_env_works_too():
    opaque = OpaqueVectorEnv(
        jaxenvs.vectorize(jaxenvs.make("Pendulum-v1"), 4, autoreset_mode="next_step")
    )
    hidden = jaxenvs.faces.GymVectorEnv(opaque)
    plain = jaxenvs.make_gym("Pendulum-v1", 4)
    actions = actions_of(plain, 5)
    assert_close(play(hidden, actions), play(plain, actions))


NOT_IN_A_KERNEL = {
    "sort": lambda x: jnp.sort(x)[2],
    "scatter": lambda x: jnp.zeros(8).at[x.astype(jnp.int32) % 8].add(x)[1],
    "callback": lambda x: jax.pure_callback(lambda x: x, x[0], x[0], vmap_method="sequential"),
}


@pytest.mark.bitwise
@pytest.mark.parametrize("kind", NOT_IN_A_KERNEL)
def test_a_step_that_cannot_be_one_kernel_still_runs(kind, capfd):
    class Odd(CountingEnv):
        def step(self, state, action, key):
            state, timestep = super().step(state, action, key)
            drawn = NOT_IN_A_KERNEL[kind](jax.random.uniform(key, 64) * 8)
            return state, timestep.replace(reward=timestep.reward + drawn)

    envs = jaxenvs.make_gym(Odd(), 4)
    native = jaxenvs.vectorize(Odd(), 4, autoreset_mode="next_step")
    state, _ = jax.jit(native.reset)(keys_of(0, 4, 0))
    envs.reset(seed=0)
    step = jax.jit(native.step)
    for t in range(1, 4):
        state, timestep = step(state, np.zeros(4, np.int32), keys_of(0, 4, t))
        assert_same(envs.step(np.zeros(4, np.int32))[:2], (timestep.observation, timestep.reward))
    assert "compilation error" not in capfd.readouterr().err  # it would have tried in vain


@pytest.mark.bitwise
def test_64_bit_numbers_are_returned_exactly():
    program = """
import jax, numpy as np
jax.config.update("jax_enable_x64", True)
import jaxenvs
class Wide(jaxenvs.testing.CountingEnv):
    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        wide = jax.numpy.float64(1) / 3 + state.count
        big = state.count + jax.numpy.int64(2**40)
        return state, timestep.replace(info={"wide": wide, "big": big})
    def reset(self, key):
        state, timestep = super().reset(key)
        return state, timestep.replace(
            info={"wide": jax.numpy.float64(0), "big": jax.numpy.int64(0)})
envs = jaxenvs.make_gym(Wide(), 3, autoreset_mode="disabled")
envs.reset(seed=0)
infos = envs.step(np.zeros(3, np.int32))[-1]
assert infos["wide"].dtype == np.float64 and (infos["wide"] == 1 / 3 + 1).all(), infos
assert infos["big"].dtype == np.int64 and (infos["big"] == 2**40 + 1).all(), infos
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


# Arrays belong to the caller


def test_async_step_equals_a_step_even_if_actions_are_reused():
    envs, twin = (jaxenvs.make_gym("Pendulum-v1", 4) for _ in range(2))
    envs.reset(seed=0)
    twin.reset(seed=0)
    for action in actions_of(envs, 5):
        kept = action.copy()
        envs.step_async(action)
        action[:] = 0
        assert_same(envs.step_wait()[:4], twin.step(kept)[:4])


# Seeds


def test_a_trajectory_depends_on_its_own_seed_only():
    seeds = [11, 5, 11, 2**32 - 1]
    actions = np.random.default_rng(0).integers(0, 2, (40, 4))
    four = play(jaxenvs.make_gym("CartPole-v1", 4), actions, seeds)
    two = play(jaxenvs.make_gym("CartPole-v1", 2), actions[:, [1, 3]], [5, 2**32 - 1])
    one = play(jaxenvs.make_gym("CartPole-v1", 1), actions[:, [3]], [2**32 - 1])
    assert_close(jax.tree.map(lambda part: part[[1, 3]], four), two)
    assert_close(jax.tree.map(lambda part: part[[3]], four), one)
    single = jaxenvs.make_gym("CartPole-v1")
    observation, _ = single.reset(seed=11)
    assert_close(observation, four[0][2])
    for t, action in enumerate(actions[:, 2]):
        observation, _, terminated, truncated, _ = single.step(action)
        assert_close(observation, four[t + 1][0][2])
        if terminated or truncated:
            break
    assert np.array_equal(four[0][0], four[0][2]) and not np.array_equal(four[0][0], four[0][1])


@pytest.mark.parametrize("mode", every_nth(2, MODES))
def test_an_int_seed_means_consecutive_seeds(mode):
    three, one = (jaxenvs.make_gym(CountingEnv(), n, autoreset_mode=mode) for n in (3, 1))
    actions = np.zeros((12, 3), int)
    together = play(three, actions, 7)
    assert_close(together, play(three, actions, [7, 8, 9]))
    alone = play(one, actions[:, :1], 8)
    assert_close(jax.tree.map(lambda part: part[1:2], together), alone)


def test_resets_and_steps_share_no_random_numbers():
    class Drawing(CountingEnv):
        """Observes random numbers drawn from the key of the call."""

        def reset(self, key):
            state, timestep = super().reset(key)
            return state, timestep.replace(observation=self.draw(key))

        def step(self, state, action, key):
            state, timestep = super().step(state, action, key)
            return state, timestep.replace(observation=self.draw(key))

        def draw(self, key):
            children = jax.vmap(lambda key: jax.random.uniform(key, ()))(jax.random.split(key, 2))
            return children.astype(jnp.float32)

    envs = jaxenvs.make_gym(Drawing(), 4, autoreset_mode="same_step")
    observations, seen = [envs.reset(seed=0)[0]], []
    for _ in range(12):
        observation, _, terminated, _, infos = envs.step(np.zeros(4, int))
        observations.append(observation)
        seen += [infos["final_obs"][i] for i in np.flatnonzero(terminated)]
    observations += [envs.reset()[0], envs.reset(options={"reset_mask": np.arange(4) > 1})[0][2:]]
    draws = np.concatenate([*observations, seen])
    assert len(seen) > 8 and len(np.unique(draws)) == draws.size


def test_np_random_follows_the_first_seed_as_in_gymnasium():
    envs = jaxenvs.make_gym("CartPole-v1", 3)
    theirs = gymnasium.make_vec("CartPole-v1", 3, vectorization_mode="vector_entry_point")
    for seed in (5, 6):
        envs.reset(seed=seed), theirs.reset(seed=seed)
        assert envs.np_random_seed == theirs.np_random_seed == seed
        expected = gymnasium.utils.seeding.np_random(seed)[0]
        assert envs.np_random.integers(10**6) == expected.integers(10**6)
    envs.reset()
    assert envs.np_random_seed == 6
    envs.reset(seed=[8, 2, 3])
    assert envs.np_random_seed == 8
    theirs.close()


def test_a_seed_means_the_same_in_another_process():
    program = """
import numpy as np, jaxenvs
envs = jaxenvs.make_gym("CartPole-v1", 3)
print(envs.reset(seed=42)[0].tobytes().hex())
for t in range(20): out = envs.step(np.full(3, t % 2))
print(out[0].tobytes().hex())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=120
    )
    envs = jaxenvs.make_gym("CartPole-v1", 3)
    first = envs.reset(seed=42)[0].tobytes().hex()
    for t in range(20):
        last = envs.step(np.full(3, t % 2))[0]
    assert done.stdout.split() == [first, last.tobytes().hex()]


def test_none_in_a_list_of_seeds_is_random():
    envs = jaxenvs.make_gym("CartPole-v1", 3)
    observation, _ = envs.reset(seed=[1, None, 1])
    np.testing.assert_array_equal(observation[0], observation[2])
    assert not np.array_equal(observation[0], observation[1])


@pytest.mark.parametrize(
    ("seed", "words"),
    [
        (-1, "0 to 2"),
        (2**32, "0 to 2"),
        (1.5, "1.5"),
        ("seven", "seven"),
        (True, "True"),
        ([1, 2], "num_envs=3"),
        ([1, 2, -3], "-3"),
        ([1, 2, "x"], "'x'"),
        (2**32 - 2, "instance 2 gets 4294967296"),
        ({1, 2, 3}, "{1, 2, 3}"),
        ({1: 1, 2: 2, 3: 3}, "a list of 3"),
        (np.array(1.0), "array"),
        (np.array(True), "True"),
        (np.array([1.0, 2.0, 3.0]), "1.0"),
        (jnp.zeros((3, 1), int), "got"),
    ],
)
def test_invalid_seeds_are_refused(seed, words):
    envs = jaxenvs.make_gym("CartPole-v1", 3)
    with pytest.raises(SeedError, match=words.replace("*", r"\*")):
        envs.reset(seed=seed)
    envs.reset(seed=0)


def test_seeds_may_be_numpy_numbers():
    envs = jaxenvs.make_gym("CartPole-v1", 3)
    expected = envs.reset(seed=[1, 2, 3])[0]
    assert_same(envs.reset(seed=np.arange(1, 4))[0], expected)
    expected = envs.reset(seed=8)[0]
    for seed in (
        np.int64(8),
        np.array(8),
        jnp.int32(8),
        (8, 9, 10),
        range(8, 11),
        jnp.arange(8, 11),
    ):
        assert_same(envs.reset(seed=seed)[0], expected)
    assert envs.reset(seed=2**32 - 3)[0].shape == (3, 4)


# reset_mask


@pytest.mark.bitwise
@pytest.mark.parametrize("seed", [None, 3, [3, 4, 5, 6]], ids=["no seed", "one", "each"])
@pytest.mark.parametrize("first_seed", [0, [0, 1, 2, 3]], ids=["one at first", "each at first"])
@pytest.mark.parametrize("mode", MODES)
def test_a_reset_mask_resets_only_those_instances(mode, first_seed, seed):
    envs = jaxenvs.make_gym(ScriptedEnv(), 4, autoreset_mode=mode)
    first, _ = envs.reset(seed=first_seed)
    envs.step(np.array([0, 0, 0, 0]))
    before = envs.step(np.array([0, 1, 0, 2] if mode == "disabled" else [0, 0, 0, 0]))[0]
    mask = np.array([True, True, False, False])
    observation, infos = envs.reset(seed=seed, options={"reset_mask": mask})
    np.testing.assert_array_equal(observation[:2, 1], [0, 0])
    np.testing.assert_array_equal(observation[2:], before[2:])
    assert (observation[:2, 0] != first[:2, 0]).all()
    assert observation[0, 0] != observation[1, 0]
    np.testing.assert_array_equal(infos["_count"], mask)
    if seed == [3, 4, 5, 6]:
        expected = jaxenvs.make_gym(ScriptedEnv(), 4).reset(seed=seed)[0]
        np.testing.assert_array_equal(observation[:2], expected[:2])
    observation, _, terminated, truncated, _ = envs.step(np.zeros(4, np.int32))
    np.testing.assert_array_equal(observation[:3, 1], [1, 1, 3])
    frozen = mode == "disabled"
    np.testing.assert_array_equal(observation[3, 1], 2 if frozen else 3)
    np.testing.assert_array_equal(terminated, [False] * 4)
    np.testing.assert_array_equal(truncated, [False, False, False, frozen])


@pytest.mark.parametrize(
    "mask", [[True, False], [1, 0, 1], np.zeros(3, bool), np.ones((3, 1), bool), "all"]
)
def test_an_invalid_reset_mask_is_refused(mask):
    envs = jaxenvs.make_gym("CartPole-v1", 3)
    with pytest.raises(ParameterError, match=r"expected bool\[3\]"):
        envs.reset(seed=0, options={"reset_mask": mask})
    envs.reset(seed=0)
    with pytest.raises(ParameterError, match=r"expected bool\[3\]"):
        envs.reset(options={"reset_mask": mask})
    with pytest.raises(ParameterError, match="expected a dict"):
        envs.reset(options="all")


@pytest.mark.bitwise
@pytest.mark.parametrize("mode", every_nth(2, ["same_step", "next_step"]))
def test_a_staggered_start_depends_on_each_seed(mode):
    make = functools.partial(jaxenvs.make_gym, "CartPole-v1", autoreset_mode=mode, stagger=12)
    three = make(3)
    actions = np.random.default_rng(0).integers(0, 2, (20, 3))
    together = play(three, actions, 4)
    assert_same(together, play(three, actions, [4, 5, 6]))
    alone = play(make(1), actions[:, 2:], 6)
    assert_close(jax.tree.map(lambda part: part[2:], together), alone)
    assert not np.array_equal(together[0], jaxenvs.make_gym("CartPole-v1", 3).reset(seed=4)[0])
    classic = make(3, api="gym")
    classic.seed(4)
    assert_same(classic.reset(), together[0])


# Agreement with Gymnasium


class Masked(ScriptedEnv):
    """`ScriptedEnv` with infos, such as an action mask."""

    def reset(self, key):
        state, timestep = super().reset(key)
        return state, timestep.replace(info=self.tell(state.count))

    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(info=self.tell(state.count))

    def tell(self, count):
        allowed = (jnp.arange(4) + count) % 3 > 0
        return {"count": count, "more": {"action_mask": allowed}}


class MaskedGym(gymnasium.Env):
    """`Masked` without random numbers, for Gymnasium's own vector classes."""

    observation_space = gymnasium.spaces.Box(0, 2**32 - 1, (1,), np.uint32)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.observe()

    def step(self, action):
        self.count += 1
        observation, info = self.observe()
        return observation, float(action), action in (1, 3), action in (2, 3), info

    def observe(self):
        allowed = (np.arange(4) + self.count) % 3 > 0
        info = {"count": self.count, "more": {"action_mask": allowed}}
        return np.array([self.count], np.uint32), info


def assert_same_infos(ours, theirs):
    """Asserts equal names and masks, and equal values wherever the mask is true."""
    assert set(ours) == set(theirs)
    for name in theirs:
        if isinstance(theirs[name], dict):
            assert_same_infos(ours[name], theirs[name])
        elif name == "final_obs":
            for final, expected in zip(ours[name], theirs[name], strict=True):
                np.testing.assert_array_equal(final if expected is None else final[1:], expected)
        else:
            rows = theirs.get(f"_{name}", slice(None))
            np.testing.assert_array_equal(ours[name][rows], theirs[name][rows])


@pytest.mark.parametrize("mode", MODES)
def test_episode_ends_and_infos_agree_with_gymnasium(mode):
    gym_mode = gymnasium.vector.AutoresetMode[mode.upper()]
    theirs = gymnasium.vector.SyncVectorEnv([MaskedGym] * 3, autoreset_mode=gym_mode)
    ours = jaxenvs.make_gym(Masked(), 3, autoreset_mode=mode)
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]

    def assert_same_reset(**kwargs):
        observation, infos = ours.reset(**copy.deepcopy(kwargs))
        expected, expected_infos = theirs.reset(**kwargs)
        np.testing.assert_array_equal(observation[:, 1:], expected)
        assert_same_infos(infos, expected_infos)

    assert_same_reset(seed=0)
    for action in np.random.default_rng(0).choice(4, (40, 3), p=[0.6, 0.15, 0.15, 0.1]):
        observation, *scalars, infos = ours.step(action)
        expected, *expected_scalars, expected_infos = theirs.step(action)
        np.testing.assert_array_equal(observation[:, 1:], expected)
        assert_same(scalars, expected_scalars)
        assert_same_infos(infos, expected_infos)
        ended = scalars[1] | scalars[2]
        if mode == "disabled" and ended.any():
            assert_same_reset(options={"reset_mask": ended})
    theirs.close()


def test_under_disabled_a_finished_instance_keeps_its_state():
    envs = jaxenvs.make_gym(ScriptedEnv(), 3, autoreset_mode="disabled")
    envs.reset(seed=0)
    ended, reward, terminated, truncated, _ = envs.step(np.array([1, 0, 2]))
    assert reward.tolist() == [1, 0, 2]
    for _ in range(3):
        observation, reward, again, cut, _ = envs.step(np.array([3, 0, 3]))
        np.testing.assert_array_equal(observation[[0, 2]], ended[[0, 2]])
        assert reward.tolist() == [0, 0, 0]
        assert_same((again, cut), (terminated, truncated))
    observation, _ = envs.reset()
    assert observation[:, 1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("id", CLASSIC)
def test_spaces_are_gymnasium_s(id):
    ours = jaxenvs.make_gym(id, 3)
    theirs = gymnasium.make_vec(id, num_envs=3, vectorization_mode="sync")
    for name in (
        *("single_observation_space", "single_action_space"),
        *("observation_space", "action_space"),
    ):
        assert getattr(ours, name) == getattr(theirs, name), name
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
    assert isinstance(ours, gymnasium.vector.VectorEnv)
    theirs.close()


def test_gymnasium_s_autoreset_modes_are_accepted():
    for mode in (AutoresetMode.SAME_STEP, "SameStep", "same_step"):
        envs = jaxenvs.make_gym("CartPole-v1", 2, autoreset_mode=mode)
        assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    default = jaxenvs.make_gym("CartPole-v1", 2)
    assert default.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP


def test_infos_look_the_same_to_c_code_and_to_python():
    envs = jaxenvs.make_gym(ScriptedEnv(), 2, autoreset_mode="same_step", time_limit=2)
    for infos in (envs.reset(seed=0)[1], *(envs.step(np.array([0, 0]))[-1] for _ in range(2))):
        for each in (infos, infos.get("final_info", {})):
            assert type(each) is dict
        seen = json.loads(json.dumps(infos, default=lambda array: array.tolist()))
        assert seen.keys() == infos.keys() and seen["count"] == infos["count"].tolist()
    assert seen["_final_info"] == [True, True] and seen["final_info"]["count"] == [2, 2]


def test_action_without_batch_axis_is_a_type_and_value_error():
    envs = jaxenvs.make_gym("CartPole-v1", 2)
    envs.reset(seed=0)
    for kind in (TypeError, ValueError):  # of a scalar in Gymnasium, of a wrong length
        with pytest.raises(kind, match="Pass one action per instance"):
            envs.step(1)


# Asynchronous steps


def test_step_async_returns_before_the_step_ends():
    class Slow(CountingEnv):
        def step(self, state, action, key):
            state, timestep = super().step(state, action, key)
            slow = jax.lax.fori_loop(0, 3_000_000, lambda i, x: jnp.sin(x + i), jnp.float32(0))
            return state, timestep.replace(reward=timestep.reward + 0 * slow)

    envs = jaxenvs.make_gym(Slow(), 2)
    envs.reset(seed=0)
    envs.step_async(np.zeros(2, np.int32))  # which measures how long a step takes
    envs.step_wait()
    started = time.perf_counter()
    envs.step_async(np.zeros(2, np.int32))
    asked = time.perf_counter() - started
    envs.step_wait()
    waited = time.perf_counter() - started
    assert asked < waited / 2


def test_programs_run_in_the_calling_thread():
    threads = set()

    class Told(CountingEnv):
        def step(self, state, action, key):
            jax.debug.callback(lambda: threads.add(threading.get_ident()))
            return super().step(state, action, key)

    envs = jaxenvs.make_gym(Told(), 2)
    envs.reset(seed=0)
    envs.step(np.zeros(2, np.int32))
    assert threads == {threading.get_ident()}


def test_calls_out_of_order_raise_gymnasiums_errors():
    envs = jaxenvs.make_gym("CartPole-v1", 2)
    action = np.zeros(2, np.int32)
    for call in (lambda: envs.step(action), lambda: envs.step_async(action)):
        with pytest.raises(gymnasium.error.ResetNeeded, match="reset first"):
            call()
    with pytest.raises(gymnasium.error.NoAsyncCallError, match="step_async"):
        envs.step_wait()
    envs.reset(seed=0)
    with pytest.raises(gymnasium.error.NoAsyncCallError):
        envs.step_wait()
    envs.step_async(action)
    for call in (
        lambda: envs.step_async(action),
        lambda: envs.step(action),
        lambda: envs.reset(),
        lambda: envs.send(action),
        lambda: envs.set_attr("gravity", 1.0),
        lambda: envs.runner.render([0]),
    ):
        with pytest.raises(gymnasium.error.AlreadyPendingCallError, match="step_wait"):
            call()
    envs.step_wait()
    envs.step(action)
    envs.step_async(action)
    envs.close()
    envs.close()
    for call in (
        lambda: envs.step(action),
        lambda: envs.step_async(action),
        lambda: envs.step_wait(),
        lambda: envs.reset(),
        lambda: envs.set_attr("gravity", 1.0),
    ):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError, match="after close"):
            call()


def test_send_and_recv_behave_as_in_envpool():
    envs, twin = (jaxenvs.make_gym("CartPole-v1", 4) for _ in range(2))
    envs.async_reset(seed=0)
    observation, reward, terminated, truncated, info = envs.recv()
    assert_same(observation, twin.reset(seed=0)[0])
    assert reward.tolist() == [0] * 4 and not terminated.any() and not truncated.any()
    assert info["env_id"].tolist() == [0, 1, 2, 3] and info["env_id"].dtype == np.int32
    for action in actions_of(envs, 5):
        order = np.random.default_rng(0).permutation(4)
        envs.send(action[order], order)
        out = envs.recv()
        assert_same(out[:4], twin.step(action)[:4])
        assert out[4]["env_id"].tolist() == [0, 1, 2, 3]
    with pytest.raises(ActionError, match="all 4 instances step together"):
        envs.send(np.zeros(4, np.int32), np.array([0, 1, 2, 2]))
    with pytest.raises(ActionError, match=r"int32\[3\]"):
        envs.send(np.zeros(3, np.int32), np.array([0, 1, 3, 2]))
    with pytest.raises(gymnasium.error.NoAsyncCallError):
        envs.recv()


# Rendering


def test_render_returns_a_frame_of_every_instance():
    envs = jaxenvs.make_gym("CartPole-v1", 3, render_mode="rgb_array")
    envs.reset(seed=0)
    frames = envs.render()
    assert isinstance(frames, tuple) and len(frames) == 3
    state, _ = jax.jit(envs.env.reset)(keys_of(0, 3, 0))
    drawn = jax.jit(jax.vmap(envs.env.render, (None, 0)))(state, np.arange(3))
    for frame, expected in zip(frames, drawn, strict=True):
        assert frame.dtype == np.uint8
        np.testing.assert_array_equal(frame, expected)
    assert_same(envs.call("render"), frames)


class DrawnGym(MaskedGym):
    """Renders the number of steps taken."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012
    render_mode = "rgb_array"

    def render(self):
        return np.full((2, 2, 3), self.count, np.uint8)


class Drawn(ScriptedEnv):
    def render(self, state):
        return jnp.full((2, 2, 3), state.count).astype(jnp.uint8)


@pytest.mark.parametrize("mode", MODES)
def test_rgb_array_list_agrees_with_gymnasium(mode):
    gym_mode = gymnasium.vector.AutoresetMode[mode.upper()]
    one = lambda: gymnasium.wrappers.RenderCollection(DrawnGym())  # noqa: E731
    theirs = gymnasium.vector.SyncVectorEnv([one] * 3, autoreset_mode=gym_mode)
    ours = jaxenvs.make_gym(Drawn(), 3, autoreset_mode=mode, render_mode="rgb_array_list")

    def numbers(frames):
        assert isinstance(frames, tuple)
        return [[int(frame[0, 0, 0]) for frame in each] for each in frames]

    ours.reset(seed=0)
    theirs.reset(seed=0)
    for t, action in enumerate(np.random.default_rng(0).choice(4, (30, 3), p=[0.7, 0.1, 0.1, 0.1])):
        *_, terminated, truncated, _ = ours.step(action)
        theirs.step(action)
        ended = terminated | truncated
        if mode == "disabled" and ended.any():
            ours.reset(options={"reset_mask": ended})
            theirs.reset(options={"reset_mask": ended})
        if t % 4 == 0:
            frames = ours.render() if t % 8 else ours.call("render")
            assert numbers(frames) == numbers(theirs.render())
    assert numbers(ours.call("render")) == numbers(theirs.call("render"))
    assert ours.render() == theirs.render() == ([], [], [])
    assert jaxenvs.make_gym(Drawn(), 3).call("render") == (None, None, None)


def test_human_mode_shows_a_mosaic(monkeypatch):
    pygame = pytest.importorskip("pygame")
    envs = jaxenvs.make_gym("CartPole-v1", 5, render_mode="human")
    envs.reset(seed=0)
    envs.step(np.zeros(5, np.int32))
    assert envs.render() is None
    # Five frames of 600 x 400 in two columns and three rows
    assert pygame.display.get_surface().get_size() == (1200, 1200)
    envs.close()
    assert not pygame.display.get_init()


# Parameters


def test_parameters_are_read_and_set_by_name():
    envs = jaxenvs.make_gym("CartPole-v1", 3, gravity=5.0)
    assert envs.get_attr("gravity") == (5.0,) * 3
    assert envs.call("gravity") == (5.0,) * 3
    assert envs.call("time_limit") == (500,) * 3
    envs.reset(seed=0)
    twin = jaxenvs.make_gym("CartPole-v1", 3, gravity=5.0)
    twin.reset(seed=0)
    action = np.zeros(3, np.int32)
    assert_same(envs.step(action)[0], twin.step(action)[0])
    envs.set_attr("gravity", 20.0)
    assert envs.get_attr("gravity") == (20.0,) * 3
    changed, same = envs.step(action)[0], twin.step(action)[0]
    assert not np.array_equal(changed, same)
    np.testing.assert_array_equal(changed[:, 0], same[:, 0])  # positions: the state continued


def test_parameters_can_differ_between_instances():
    envs = jaxenvs.make_gym("CartPole-v1", 3)
    envs.reset(seed=[1, 1, 1])
    envs.set_attr("gravity", [1.0, 10.0, 1.0])
    assert np.allclose(envs.get_attr("gravity"), [1, 10, 1])
    for _ in range(3):
        observation = envs.step(np.zeros(3, np.int32))[0]
    np.testing.assert_array_equal(observation[0], observation[2])
    assert not np.array_equal(observation[0], observation[1])
    envs.set_attr("gravity", 10.0)
    assert np.allclose(envs.get_attr("gravity"), 10)
    batched = jaxenvs.make_gym(
        "CartPole-v1", 3, batched=["gravity"], gravity=jnp.array([1.0, 2.0, 3.0])
    )
    assert np.allclose(batched.get_attr("gravity"), [1, 2, 3])


class Weighted(CountingEnv):
    """Has a parameter that is a tree, from which it computes the reward."""

    weights: dict = dataclasses.field(kw_only=True)

    def step(self, state, action, key):
        state, timestep = super().step(state, action, key)
        return state, timestep.replace(reward=self.weights["a"] + self.weights["b"].sum())


def test_a_parameter_that_is_a_tree_can_differ():
    envs = jaxenvs.make_gym(Weighted(weights={"a": 1.0, "b": np.ones(2)}), 2)
    envs.reset(seed=0)
    present = envs.get_attr("weights")
    assert_same(present, ({"a": 1.0, "b": np.ones(2)},) * 2)
    envs.set_attr("weights", [{"a": 1.0, "b": np.ones(2)}, {"a": 5.0, "b": np.zeros(2)}])
    np.testing.assert_array_equal(envs.step(np.zeros(2, np.int32))[1], [3, 5])
    assert_same(envs.get_attr("weights")[1], {"a": 5.0, "b": np.zeros(2)})


def test_the_first_reset_ignores_the_mask():
    envs = jaxenvs.make_gym("Pendulum-v1", 2, wrappers=[wrappers.RecordEpisodeStatistics])
    _, infos = envs.reset(seed=0, options={"reset_mask": np.array([True, False])})
    assert all(infos[name].all() for name in infos if name.startswith("_")) and infos


def test_spaces_follow_a_parameter_that_bounds_them():
    envs = jaxenvs.make_gym("Pendulum-v1", 3)
    envs.reset(seed=0)
    observation_space = envs.observation_space
    envs.set_attr("max_torque", 5.0)
    assert envs.single_action_space.high == 5 and envs.action_space.high.max() == 5
    assert envs.observation_space is observation_space
    envs.step(np.full((3, 1), 4.0, np.float32))


def test_unknown_attributes_are_named():
    envs = jaxenvs.make_gym("CartPole-v1", 2)
    for call in (
        lambda: envs.get_attr("gravty"),
        lambda: envs.set_attr("gravty", 1.0),
        lambda: envs.call("gravty"),
    ):
        with pytest.raises(UnknownParameterError, match='"gravity"'):
            call()
    with pytest.raises(ParameterError, match="num_envs=2"):
        envs.set_attr("gravity", [1.0, 2.0, 3.0])
    for values in (np.array([1.0, 2.0]), jnp.ones(3), [np.ones(2), np.ones(2)]):
        with pytest.raises(ParameterError, match="Pass a list"):
            envs.set_attr("gravity", values)
    with pytest.raises(ParameterError, match="share this parameter"):
        envs.set_attr("kinematics_integrator", ["euler", "semi-implicit euler"])
    envs.set_attr("gravity", [np.float32(1.0), 2.0])
    envs.set_attr("masspole", [0.1, 0.2])
    envs.set_attr("length", (0.5, 0.6))
    assert envs.env.batched == ("gravity", "masspole", "length")
    envs.set_attr("gravity", np.float32(3.0))
    envs.reset(seed=0)
    envs.step(np.zeros(2, int))
    assert envs.get_attr("gravity") == (3.0, 3.0)


def test_a_parameter_that_changes_the_state_s_shape_is_refused():
    envs = jaxenvs.make_gym(
        "CartPole-v1", 2, wrappers=[functools.partial(wrappers.FrameStackObservation, stack_size=2)]
    )
    envs.reset(seed=0)
    with pytest.raises(ParameterError, match="Make a new environment"):
        envs.set_attr("stack_size", 3)
    assert envs.get_attr("stack_size") == (2, 2)
    assert envs.step(np.zeros(2, int))[0].shape == (2, 2, 4)


# Actions


@pytest.mark.parametrize(
    ("id", "action", "words"),
    [
        ("CartPole-v1", np.zeros(4, np.int32), ["int32[4]", "int32[3]", "num_envs=3"]),
        ("CartPole-v1", np.zeros((3, 1), np.int32), ["int32[3, 1]"]),
        ("CartPole-v1", np.int32(0), ["int32[]"]),
        ("CartPole-v1", np.zeros(3, np.float32), ["float32[3]"]),
        ("CartPole-v1", None, ["NoneType"]),
        ("CartPole-v1", {"a": 1}, ["dict"]),
        ("CartPole-v1", "left", ["str"]),
        ("CartPole-v1", [[0], [0, 1], [1]], ["not an array"]),
        ("CartPole-v1", [0, 2, 0], ["outside", "[1]", "2", "ClipAction"]),
        ("CartPole-v1", [0, 0, -1], ["outside", "[2]", "-1"]),
        ("CartPole-v1", np.array([0, 2**32, 0]), ["outside", "4294967296"]),
        ("Pendulum-v1", [[0], [np.nan], [0]], ["outside", "[1]", "nan"]),
        ("Pendulum-v1", [[0], [0], [2.5]], ["outside", "[2]", "2.5"]),
        ("Pendulum-v1", np.zeros(3, np.float32), ["float32[3]", "float32[3, 1]"]),
    ],
)
def test_invalid_actions_are_refused_without_a_step(id, action, words):
    envs = jaxenvs.make_gym(id, 3)
    envs.reset(seed=0)
    for step in (envs.step, envs.step_async):
        with pytest.raises(ActionError) as refused:
            step(action)
        assert all(word in str(refused.value) for word in words), refused.value
    good = envs.action_space.sample()
    twin = jaxenvs.make_gym(id, 3)
    twin.reset(seed=0)
    assert_same(envs.step(good)[:4], twin.step(good)[:4])


def test_validation_can_be_turned_off():
    envs = jaxenvs.make_gym("Pendulum-v1", 3, validate=False)
    envs.reset(seed=0)
    assert np.isfinite(envs.step(np.full((3, 1), 50.0))[0]).all()  # the environment clips
    with pytest.raises(ActionError):
        envs.step(np.zeros(3))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_actions_can_have_any_integer_dtype(dtype):
    envs = jaxenvs.make_gym("CartPole-v1", 2)
    envs.reset(seed=0)
    expected = jaxenvs.make_gym("CartPole-v1", 2)
    expected.reset(seed=0)
    action = np.array([0, 1], dtype)
    assert_same(envs.step(action)[0], expected.step([0, 1])[0])
    assert_same(envs.step(jnp.array([1, 0]))[0], expected.step(np.array([1, 0]))[0])


def test_every_leaf_of_nested_actions_is_checked():
    from tests.vector.test_vectorize import Composite

    envs = jaxenvs.make_gym(Composite(), 3)
    envs.reset(seed=0)
    good = envs.action_space.sample()
    observation = envs.step(good)[0]
    np.testing.assert_array_equal(observation, good["pair"][1][:, 0])
    with pytest.raises(ActionError, match="keys"):
        envs.step({"gear": good["gear"]})
    with pytest.raises(ActionError, match="tuple of 2"):
        envs.step({**good, "pair": good["pair"][0]})
    bad = (good["pair"][0], good["pair"][1] + 5)
    with pytest.raises(ActionError, match=r"action\['pair'\]\[1\]"):
        envs.step({**good, "pair": bad})


def test_an_environment_object_accepts_a_limit_and_parameters():
    envs = jaxenvs.make_gym(jaxenvs.make("CartPole-v1").unwrapped, 2, time_limit=3, gravity=1.0)
    assert envs.call("time_limit") == (3, 3) and envs.get_attr("gravity") == (1.0, 1.0)
    envs.reset(seed=0)
    ends = [envs.step(np.array([0, 1]))[3].tolist() for _ in range(3)]
    assert ends == [[False] * 2, [False] * 2, [True] * 2]
    with pytest.raises(ParameterError, match=r"time.limit"):
        jaxenvs.make_gym(CountingEnv(), 2, time_limit=0)


def test_equal_environments_share_programs():
    first, second = (jaxenvs.make_gym("MountainCar-v0", 7) for _ in range(2))
    first.reset(seed=0)
    second.reset(seed=0)
    first.step(np.zeros(7, np.int32))
    assert first.runner._programs is second.runner._programs
    other = jaxenvs.make_gym("MountainCar-v0", 7, gravity=0.003)
    other.reset(seed=0)
    assert other.runner._programs is not first.runner._programs
