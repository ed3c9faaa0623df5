"""Envelope: our environments in its interface, and its environments in ours."""

import chex
import jax
import jax.numpy as jnp
import pytest

import jaxenvs
from jaxenvs.errors import ParameterError, WrapperError
from jaxenvs.testing import CountingEnv, ScriptedEnv, check_env
from jaxenvs.testing.dummy import BOTH, CONTINUE, TERMINATE, TRUNCATE
from tests.suites.combinations import SCRIPT, check_endings

envelope = pytest.importorskip("envelope")

from jaxenvs.faces.envelope import EnvelopeEnv, make_envelope  # noqa: E402
from jaxenvs.suites.envelope import from_envelope  # noqa: E402

pytestmark = pytest.mark.interop


def ends(action):
    return action in (TERMINATE, BOTH), action in (TRUNCATE, BOTH)


def test_envelope_auto_reset_keeps_the_last_step():
    env = envelope.AutoResetWrapper(make_envelope(ScriptedEnv()))
    state, info = env.init(jax.random.key(0))
    step = jax.jit(lambda state, action: env.step(state, action))
    start, count = int(info.obs[0]), 0
    for action in SCRIPT:
        state, info = step(state, jnp.int32(action))
        count += 1
        assert (bool(info.terminated), bool(info.truncated)) == ends(action)
        assert float(info.reward) == action
        if action != CONTINUE:
            assert info.final.obs.tolist() == [start, count] and int(info.final.count) == count
            start, count = int(info.obs[0]), 0
        assert info.obs.tolist() == [start, count] and int(info.count) == count


def test_envelope_batches_with_parameters_and_statistics_run():
    env = make_envelope("CartPole-v1", time_limit=5)
    env = envelope.EpisodeStatisticsWrapper(env)
    env = envelope.VmapWrapper(envelope.AutoResetWrapper(env), batch_size=4)
    state, _ = env.init(jax.random.key(0))
    for _ in range(5):
        state, info = jax.jit(lambda *args: env.step(*args))(state, jnp.zeros(4, jnp.int32))
    assert info.truncated.all() and info.final.stats.length.tolist() == [5] * 4

    masses = jnp.linspace(1.0, 3.0, 4)
    many = jax.vmap(lambda mass: make_envelope("Pendulum-v1", mass=mass))(masses)
    many = envelope.VmapEnvsWrapper(many, batch_size=4)
    state, _ = many.init(jax.random.split(jax.random.key(0), 4))
    _, info = many.step(state, jnp.ones((4, 1)))
    assert info.obs.shape == (4, 3)


def test_create_makes_an_id_with_its_time_limit(monkeypatch):
    factory = f"{EnvelopeEnv.__module__}:EnvelopeEnv.from_name"
    monkeypatch.setitem(envelope.registry._builtin_factories, "jaxenvs", factory)
    env = envelope.create("jaxenvs::CartPole-v1", env_kwargs={"gravity": 3.0})
    assert isinstance(env, envelope.TruncationWrapper) and env.max_steps == 500
    assert env.unwrapped.native.parameters["gravity"] == 3.0
    assert env.unwrapped.native.time_limit is None
    assert "jaxenvs::CartPole-v1" in envelope.registered_environments("jaxenvs")
    unlimited = envelope.create("jaxenvs::CartPole-v1", max_episode_steps=None)
    assert isinstance(unlimited, EnvelopeEnv) and unlimited.default_max_steps == 500


def test_spaces_are_those_of_envelope():
    env = make_envelope("CartPole-v1")
    assert isinstance(env.action_space, envelope.Discrete) and int(env.action_space.n) == 2
    assert isinstance(env.observation_space, envelope.Continuous)
    assert env.observation_space.contains(env.init(jax.random.key(0))[1].obs)
    env = make_envelope("Blackjack-v1")
    assert env.observation_space.contains(env.init(jax.random.key(0))[1].obs)


@pytest.mark.parametrize(
    "env",
    [jaxenvs.make("CartPole-v1"), jaxenvs.make("Blackjack-v1"), CountingEnv(layout="dict")],
    ids=["box", "tuple", "dict"],
)
def test_from_envelope_round_trip_keeps_spaces_and_contract(env):
    native = from_envelope(make_envelope(env))
    assert native.observation_space == env.observation_space
    assert native.action_space == env.action_space
    check_env(native, num_steps=16, num_envs=4)


def test_a_round_trip_keeps_endings_and_the_last_observation():
    check_endings(from_envelope(make_envelope(ScriptedEnv())), both=(True, True))


def test_envelope_time_limit_truncates_and_parameters_are_leaves():
    env = envelope.TruncationWrapper(make_envelope("Pendulum-v1", time_limit=None), max_steps=2)
    native = from_envelope(env)
    check_env(native, num_steps=16, num_envs=4)
    state, _ = native.reset(jax.random.key(0))
    torque = jnp.ones(1, jnp.float32)
    for truncated in (False, True):
        state, timestep = native.step(state, torque, jax.random.key(1))
        assert bool(timestep.truncated) == truncated and not timestep.terminated

    def reward(mass):
        changed = from_envelope(make_envelope("Pendulum-v1", mass=mass))
        state, _ = changed.reset(jax.random.key(0))
        state, _ = changed.step(state, torque, jax.random.key(1))
        return changed.step(state, torque, jax.random.key(1))[1].reward

    chex.assert_tree_all_finite(gradient := jax.grad(reward)(1.0))
    assert float(gradient) != 0


def test_envelope_errors_say_what_is_expected():
    env = make_envelope("CartPole-v1")
    with pytest.raises(WrapperError, match="AutoResetWrapper"):
        from_envelope(envelope.EpisodeStatisticsWrapper(envelope.AutoResetWrapper(env)))
    with pytest.raises(WrapperError, match="VmapWrapper"):
        from_envelope(envelope.VmapWrapper(env, batch_size=2))
    with pytest.raises(WrapperError, match="expected an environment of envelope"):
        from_envelope(jaxenvs.make("CartPole-v1"))
    with pytest.raises(ParameterError, match="make_envelope got"):
        make_envelope("gymnasium/CartPole-v1")
