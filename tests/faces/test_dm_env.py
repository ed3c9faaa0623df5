"""The dm_env interface, tested with dm_env's own fixtures and against its docstrings."""

import sys

import gymnasium
import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import (
    ActionError,
    MissingExtraError,
    ParameterError,
    SeedError,
    UnknownEnvironmentError,
    UnknownParameterError,
    VectorizeError,
)
from jaxenvs.testing import CountingEnv, ScriptedEnv
from tests.faces.native import keys_of
from tests.rounding import assert_close

dm_env = pytest.importorskip("dm_env")
pytest.importorskip("absl")

from absl.testing import absltest  # noqa: E402
from dm_env import StepType, specs, test_utils  # noqa: E402

from jaxenvs.faces.dm_env import DmEnv, DmVectorEnv  # noqa: E402

GO_ON, TERMINATE, TRUNCATE, BOTH = range(4)
FIRST, MID, LAST = StepType.FIRST, StepType.MID, StepType.LAST


class _Fixture(test_utils.EnvironmentTestMixin):
    """dm_env's own checks, with actions beyond the end of episodes."""

    def make_action_sequence(self):
        spec = self.environment.action_spec()
        random = np.random.default_rng(0)
        for _ in range(60):
            if isinstance(spec, specs.DiscreteArray):
                yield random.integers(spec.num_values, dtype=spec.dtype)
            else:
                yield random.uniform(spec.minimum, spec.maximum, spec.shape).astype(spec.dtype)


class TestCartPole(_Fixture, absltest.TestCase):
    def make_object_under_test(self):
        return jaxenvs.make_dm("CartPole-v1", seed=0)


class TestTruncatedPendulum(_Fixture, absltest.TestCase):
    def make_object_under_test(self):
        return jaxenvs.make_dm("Pendulum-v1", time_limit=7)


class TestDictObservations(_Fixture, absltest.TestCase):
    def make_object_under_test(self):
        return jaxenvs.make_dm(CountingEnv(layout="dict"), seed=1)


class TestTupleObservations(_Fixture, absltest.TestCase):
    def make_object_under_test(self):
        return jaxenvs.make_dm(CountingEnv(layout="tuple", truncates=True), seed=1)


@pytest.mark.parametrize(
    ("action", "discount", "reward"), [(TERMINATE, 0, 1), (TRUNCATE, 1, 2), (BOTH, 0, 3)]
)
def test_only_a_termination_has_discount_0(action, discount, reward):
    env = jaxenvs.make_dm(ScriptedEnv(), seed=0)
    assert isinstance(env, DmEnv) and isinstance(env, dm_env.Environment)
    first = env.reset()
    assert first.step_type is FIRST and first.reward is None and first.discount is None
    on = env.step(GO_ON)
    assert on.step_type is MID and (on.reward, on.discount) == (0, 1)
    last = env.step(action)
    assert last.step_type is LAST and (last.reward, last.discount) == (reward, discount)
    assert type(last.reward) is type(last.discount) is float
    np.testing.assert_array_equal(last.observation, first.observation + np.uint32([0, 2]))


def test_the_step_after_last_starts_an_episode():
    env = jaxenvs.make_dm(ScriptedEnv(), seed=0)
    begun = env.step("anything")  # before the first reset
    assert begun.step_type is FIRST
    env.step(BOTH)
    again = env.step(None)
    assert again.step_type is FIRST and again.reward is None
    assert again.observation[1] == 0 and again.observation[0] != begun.observation[0]
    assert env.step(GO_ON).step_type is MID
    env.step(TERMINATE)
    fresh = env.reset()  # resets in place of the step that would start an episode
    assert fresh.step_type is FIRST and env.step(GO_ON).step_type is MID


def test_writing_to_an_action_after_the_step_is_safe():
    env = jaxenvs.make_dm("Pendulum-v1", time_limit=1)
    env.reset()
    action = np.zeros(1, np.float32)
    assert env.step(action).last()
    action[:] = np.nan
    assert env.step(action).first()


def test_instances_have_their_own_episodes():
    env = jaxenvs.make_dm(ScriptedEnv(), 4, seed=0)
    assert isinstance(env, DmVectorEnv) and env.num_envs == 4
    first = env.step([GO_ON] * 4)  # before the first reset, so it resets
    assert first.first().all() and first.step_type.dtype == np.int32
    ends = env.step([GO_ON, TERMINATE, TRUNCATE, BOTH])
    assert ends.step_type.tolist() == [MID, LAST, LAST, LAST]
    assert ends.discount.tolist() == [1, 0, 1, 0] and ends.reward.tolist() == [0, 1, 2, 3]
    assert ends.reward.dtype == ends.discount.dtype == np.float32
    assert ends.last().tolist() == [False, True, True, True]
    mixed = env.step([TERMINATE] * 4)  # ignored where an episode starts
    assert mixed.step_type.tolist() == [LAST, FIRST, FIRST, FIRST]
    assert mixed.reward.tolist() == [1, 0, 0, 0] and mixed.discount.tolist() == [0, 1, 1, 1]
    assert mixed.observation[:, 1].tolist() == [2, 0, 0, 0]
    assert (mixed.observation[1:, 0] != ends.observation[1:, 0]).all()
    assert env.step([GO_ON] * 4).step_type.tolist() == [FIRST, MID, MID, MID]
    env.step([BOTH] * 4)
    assert env.reset().first().all()
    assert env.step([GO_ON] * 4).mid().all()


def test_a_batch_agrees_with_single_environments():
    seeds, actions = [5, 9, 2], np.random.default_rng(0).integers(2, size=(80, 3), dtype=np.int32)
    batch = jaxenvs.make_dm("CartPole-v1", 3, seed=seeds, time_limit=15)
    alone = [jaxenvs.make_dm("CartPole-v1", seed=seed, time_limit=15) for seed in seeds]
    batch.reset(), [env.reset() for env in alone]
    cut = fell = 0
    for action in actions:
        timestep = batch.step(action)
        for i, env in enumerate(alone):
            single = env.step(action[i])
            assert single.step_type == timestep.step_type[i]
            assert_close(single.observation, timestep.observation[i])
            if not single.first():
                assert single.reward == timestep.reward[i]
                assert single.discount == timestep.discount[i]
            cut += single.last() and single.discount == 1
            fell += single.last() and single.discount == 0
    assert cut and fell


def test_a_batch_agrees_with_the_native_environment():
    env = jaxenvs.make_dm("CartPole-v1", 2, seed=3)
    native = jaxenvs.make_vec("CartPole-v1", 2, autoreset_mode="next_step")
    state, expected = native.reset(keys_of(3, 2, 0))
    assert_close(env.reset().observation, expected.observation)
    step = jax.jit(native.step)
    for t in range(1, 30):
        action = np.full(2, t % 3 > 0, np.int32)
        state, expected = step(state, action, keys_of(3, 2, t))
        timestep = env.step(action)
        assert_close(timestep.observation, expected.observation)
        assert_close(timestep.reward, expected.reward)
        assert_close(timestep.last(), expected.terminated)


@pytest.mark.parametrize("layout", ["array", "dict", "tuple"])
def test_timesteps_of_a_batch_conform_to_its_specs(layout):
    env = jaxenvs.make_dm(CountingEnv(layout=layout), 3)
    action_spec = env.action_spec()
    assert action_spec.shape == (3,) and action_spec.maximum.tolist() == [1, 1, 1]

    def check(timestep):
        checked = jax.tree.map(
            lambda spec, part: spec.validate(part) is part,
            env.observation_spec(),
            timestep.observation,
        )
        assert all(jax.tree.leaves(checked))
        env.reward_spec().validate(timestep.reward)
        env.discount_spec().validate(timestep.discount)

    check(env.reset())
    for _ in range(10):
        check(env.step(action_spec.generate_value()))
    assert env.single_action_spec() == specs.DiscreteArray(2, np.int32, "action")
    assert jax.tree.structure(env.single_observation_spec()) == jax.tree.structure(
        env.observation_spec()
    )


def test_an_environment_object_accepts_a_limit_and_parameters():
    env = jaxenvs.make_dm(CountingEnv(lengths=(5,)), time_limit=2, truncates=True)
    env.reset()
    assert env.step(0).mid()
    last = env.step(0)
    assert last.last() and last.discount == 1
    assert "truncates=True" in repr(env)


def test_wrappers_and_parameters_are_compiled_in():
    env = jaxenvs.make_dm("CartPole-v1", 2, gravity=3.7, wrappers=[_negated])
    assert "gravity=3.7" in repr(env) and env.env.parameters["gravity"] == 3.7
    env.reset()
    assert (env.step([0, 1]).reward == -1).all()
    assert jaxenvs.make_dm("CartPole-v1", wrappers=[_negated]).env.num_envs == 1


def _negated(env):
    return env.wrap(jaxenvs.wrappers.TransformReward, lambda reward: -reward)


def test_invalid_arguments_raise_named_errors():
    with pytest.raises(UnknownEnvironmentError, match="CartPole-v1"):
        jaxenvs.make_dm("CartPol-v1")
    with pytest.raises(UnknownParameterError, match="gravity"):
        jaxenvs.make_dm("CartPole-v1", gravty=1.0)
    for id in ("CartPole-v1", ScriptedEnv()):
        for limit in (0, "none"):
            with pytest.raises(ParameterError, match=r"time.limit"):
                jaxenvs.make_dm(id, time_limit=limit)
    with pytest.raises(VectorizeError, match="num_envs"):
        jaxenvs.make_dm("CartPole-v1", 0)
    for num_envs, seed in [(None, -1), (None, "abc"), (None, 1.5), (2, [1]), (2, [1, -1])]:
        with pytest.raises(SeedError):
            jaxenvs.make_dm("CartPole-v1", num_envs, seed=seed)
    one, two = jaxenvs.make_dm("Pendulum-v1"), jaxenvs.make_dm("Pendulum-v1", 2)
    one.reset(), two.reset()
    for action in (3.0, [3.0], [np.nan], [0.0, 0.0], None):
        with pytest.raises(ActionError, match="expected a member of Box"):
            one.step(action)
    for actions in ([[0.0], [3.0]], [[np.nan], [0.0]], [0.0, 0.0]):
        with pytest.raises(ActionError):
            two.step(actions)
    assert one.step([0.0]).mid() and two.step([[0.0], [0.0]]).mid().all()
    loose = jaxenvs.make_dm("Pendulum-v1", validate=False)
    loose.reset()
    assert loose.step([3.0]).mid()


@pytest.mark.parametrize("num_envs", [None, 2])
def test_closed_environment_refuses_calls(num_envs):
    with jaxenvs.make_dm("CartPole-v1", num_envs) as env:
        env.reset()
    action = 0 if num_envs is None else [0, 0]
    for call in (env.reset, lambda: env.step(action)):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError):
            call()
    env.close()  # twice


def test_missing_dm_env_raises_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setattr(sys.modules["jaxenvs.faces.dm_env"], "dm_env", None)
    with pytest.raises(MissingExtraError, match=r"jaxenvs\[dm\]"):
        jaxenvs.make_dm("CartPole-v1")
