"""Stoa: our environments in its interface, and its environments in ours."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ParameterError, WrapperError
from jaxenvs.testing import CountingEnv, ScriptedEnv, check_env
from jaxenvs.testing.dummy import BOTH, CONTINUE, TERMINATE, TRUNCATE
from tests.suites.combinations import SCRIPT, check_endings

stoa = pytest.importorskip("stoa")

from stoa.core_wrappers.optimistic_auto_reset import OptimisticResetVmapWrapper  # noqa: E402
from stoa.core_wrappers.vmap import VmapWrapper  # noqa: E402

from jaxenvs.faces.stoa import make_stoa  # noqa: E402
from jaxenvs.suites.stoa import from_stoa  # noqa: E402

pytestmark = pytest.mark.interop


def test_make_stoa_keeps_episode_endings_and_discounts():
    env = make_stoa(ScriptedEnv())
    step = jax.jit(env.step)
    for action, kind, discount in (
        (CONTINUE, stoa.StepType.MID, 1),
        (TERMINATE, stoa.StepType.TERMINATED, 0),
        (TRUNCATE, stoa.StepType.TRUNCATED, 1),
    ):
        state, first = env.reset(jax.random.key(0))
        assert first.first() and float(first.discount) == 1
        _, timestep = step(state, jnp.int32(action))
        assert int(timestep.step_type) == int(kind) and float(timestep.discount) == discount
        assert float(timestep.reward) == action and int(timestep.extras["count"]) == 1
        chex.assert_trees_all_equal(timestep.observation[0], first.observation[0])


def test_stoa_auto_reset_keeps_the_last_observation():
    env = stoa.AutoResetWrapper(make_stoa(ScriptedEnv()), next_obs_in_extras=True)
    state, timestep = env.reset(jax.random.key(0))
    step = jax.jit(env.step)
    start, count = int(timestep.observation[0]), 0
    for action in SCRIPT:
        state, timestep = step(state, jnp.int32(action))
        count += 1
        assert timestep.extras["next_obs"].tolist() == [start, count]
        assert bool(timestep.terminated()) == (action in (TERMINATE, BOTH))
        assert bool(timestep.truncated()) == (action == TRUNCATE)
        if action != CONTINUE:
            assert int(timestep.observation[0]) != start
            start, count = int(timestep.observation[0]), 0
        assert timestep.observation.tolist() == [start, count]


def test_stoa_batches_and_metrics_run():
    env = stoa.RecordEpisodeMetrics(make_stoa("CartPole-v1", time_limit=5))
    env = VmapWrapper(stoa.AutoResetWrapper(env), num_envs=4)
    state, _ = env.reset(jax.random.key(0))
    for _ in range(5):
        state, timestep = jax.jit(env.step)(state, jnp.zeros(4, jnp.int32))
    assert timestep.truncated().all()
    assert timestep.extras["episode_metrics"]["episode_length"].tolist() == [5] * 4


def test_step_takes_parameters_as_a_native_environment():
    env = make_stoa("Pendulum-v1")
    heavy = env.native.replace(mass=3.0)
    state, _ = env.reset(jax.random.key(0))
    torque = jnp.ones(1, jnp.float32)
    mine, usual = env.step(state, torque, heavy)[1], env.step(state, torque)[1]
    same = make_stoa("Pendulum-v1", mass=3.0).step(state, torque)[1]
    chex.assert_trees_all_close(mine, same)
    assert not np.allclose(mine.observation, usual.observation)


@pytest.mark.parametrize(
    "env",
    [jaxenvs.make("CartPole-v1"), jaxenvs.make("Blackjack-v1"), CountingEnv(layout="dict")],
    ids=["box", "tuple", "dict"],
)
def test_from_stoa_round_trip_keeps_spaces_and_contract(env):
    native = from_stoa(make_stoa(env))
    assert native.observation_space == env.observation_space
    assert native.action_space == env.action_space
    check_env(native, num_steps=16, num_envs=4)


def test_a_round_trip_keeps_endings_and_the_last_observation():
    check_endings(from_stoa(make_stoa(ScriptedEnv())))


def test_stoa_step_limit_truncates_the_native_environment():
    native = from_stoa(stoa.EpisodeStepLimitWrapper(make_stoa("CartPole-v1"), max_episode_steps=2))
    state, _ = native.reset(jax.random.key(0))
    for truncated in (False, True):
        state, timestep = native.step(state, jnp.int32(0), jax.random.key(1))
        assert bool(timestep.truncated) == truncated and not timestep.terminated


class BareEnv(stoa.Environment):
    """Counts from a Python number, and has extras in steps only, as Stoa's adapters do."""

    def reset(self, rng_key, env_params=None):
        state = {"count": 0, "rng_key": rng_key}
        first = stoa.TimeStep(stoa.StepType.FIRST, 0.0, 1.0, jnp.zeros(2))
        return state, first

    def step(self, state, action, env_params=None):
        state = {**state, "count": state["count"] + 1}
        kind = jnp.where(state["count"] >= 3, stoa.StepType.TERMINATED, stoa.StepType.MID)
        obs = jnp.full(2, state["count"], jnp.float32)
        return state, stoa.TimeStep(kind, 1.0, 1.0, obs, {"half": obs[0] / 2})

    def observation_space(self, env_params=None):
        return stoa.ArraySpace((2,), jnp.float32)

    def action_space(self, env_params=None):
        return stoa.MultiDiscreteSpace([2, 3], jnp.int32)

    def state_space(self, env_params=None):
        raise NotImplementedError


def test_from_stoa_accepts_python_numbers_and_changing_extras():
    native = from_stoa(BareEnv())
    assert native.action_space == jaxenvs.spaces.MultiDiscrete([2, 3])
    _, timestep = native.reset(jax.random.key(0))
    assert float(timestep.info["half"]) == 0
    check_env(native, num_steps=16, num_envs=4)


def test_stoa_errors_say_what_is_expected():
    with pytest.raises(WrapperError, match="AutoResetWrapper"):
        from_stoa(stoa.RecordEpisodeMetrics(stoa.AutoResetWrapper(make_stoa("CartPole-v1"))))
    with pytest.raises(WrapperError, match="OptimisticResetVmapWrapper"):
        from_stoa(OptimisticResetVmapWrapper(make_stoa("CartPole-v1"), 4, 2))
    with pytest.raises(WrapperError, match="expected an environment of stoa"):
        from_stoa(jaxenvs.make("CartPole-v1"))
    with pytest.raises(ParameterError, match="make_stoa got"):
        make_stoa("gymnasium/CartPole-v1")
