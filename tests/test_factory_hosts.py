"""Ids of environments that are not JAX, where ids of native ones are taken too."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import (
    ClosedError,
    EnvironmentCheckError,
    ParameterError,
    PoolError,
    ShardingError,
    UnknownEnvironmentError,
    WrapperError,
)
from jaxenvs.testing import check_env
from jaxenvs.vector.vectorized_env import VectorizedEnv
from jaxenvs.wrappers import NormalizeObservation, NormalizeReward, TimeLimit
from tests.opaque import OpaqueVectorEnv
from tests.wrappers.test_all import WRAPPERS

KEY = jax.random.key(0)
ID = "gymnasium/CartPole-v1"


@pytest.fixture(scope="module", autouse=True)
def counting():
    gymnasium.register("HostCounter-v0", "tests.bridge.envs:Counter", kwargs={"length": 3})
    yield
    del gymnasium.registry["HostCounter-v0"]


def stepped(env, steps):
    state, timestep = env.reset(KEY)
    for _ in range(steps):
        state, timestep = env.step(state, jnp.zeros(env.num_envs, jnp.int32), KEY)
    return timestep


def test_host_ids_make_process_pools():
    assert isinstance(jaxenvs.make_vec("CartPole-v1", 2), VectorizedEnv)
    env = jaxenvs.make_vec(ID, 2, time_limit=3, num_workers=1)
    assert isinstance(env, jaxenvs.HostEnv) and env.autoreset_mode == "same_step"
    assert env.pools[0].backend == "process" and env.pools[0].num_workers == 1
    timestep = stepped(env, 3)
    assert timestep.truncated.tolist() == [True, True]
    assert timestep.observation.shape == (2, 4)
    env.close()


def test_pool_options_and_environment_parameters_are_passed_on():
    env = jaxenvs.make_vec(
        "gymnasium/HostCounter-v0",
        3,
        autoreset_mode="next_step",
        backend="thread",
        batch_size=2,
        timeout=9.0,
        on_failure="restart",
        info_fields=["count"],
        path="callback",
        final_observation=False,
        number=7,
    )
    pool = env.pools[0]
    assert (pool.backend, pool.batch_size, pool.autoreset_mode) == ("thread", 2, "next_step")
    assert (
        pool._state.timeout == 9.0
        and pool._state.on_failure == "restart"
        and env.path == "callback"
    )
    timestep = stepped(env, 2)
    assert timestep.final_observation is None
    np.testing.assert_array_equal(timestep.info["count"], 2)
    np.testing.assert_array_equal(timestep.observation[:, 0], 7)
    env.close()


def test_mesh_gives_each_device_a_pool_and_divides_the_cores():
    mesh = jax.make_mesh((2,), ("env",), devices=jax.devices()[:2])
    env = jaxenvs.make_vec("gymnasium/HostCounter-v0", 4, mesh=mesh)
    assert [pool.num_envs for pool in env.pools] == [2, 2]
    assert env.mesh_axis == "env" and all(pool.num_workers <= 2 for pool in env.pools)
    np.testing.assert_array_equal(stepped(env, 2).observation[:, 2], 2)
    env.close()
    with pytest.raises(ShardingError, match="divisible by the 2 devices"):
        jaxenvs.make_vec(ID, 3, mesh=mesh)
    with pytest.raises(PoolError, match="step independently"):
        jaxenvs.make_vec(ID, 4, mesh=mesh, batch_size=1)


@pytest.mark.interop
def test_envpool_environment_is_used_as_a_native_pool():
    pytest.importorskip("envpool")
    with pytest.raises(PoolError, match='Pass autoreset_mode="next_step"'):
        jaxenvs.make_vec("envpool/CartPole-v1", 2)
    env = jaxenvs.make_vec("envpool/CartPole-v1", 2, autoreset_mode="next_step", seed=3)
    assert env.pools[0].backend == "native"
    assert stepped(env, 2).reward.tolist() == [1, 1]
    env.close()


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"batched": ["gravity"]}, "batched=.* for gymnasium.*not written in JAX"),
        ({"stagger": True, "reset_chunk": 2}, "reset_chunk=2, stagger=True for"),
        ({"max_episode_steps": 3}, "calls it time_limit"),
        ({"copy": True}, "Omit copy"),
        ({"seed": 1}, "seeded by the key of reset"),
        ({"num_envs": 0}, "at least 1"),
    ],
)
def test_unsupported_host_options_are_refused(options, expected):
    with pytest.raises(PoolError, match=expected):
        jaxenvs.make_vec(ID, **{"num_envs": 2, **options})


def test_a_time_limit_of_a_host_is_at_least_one_step():
    with pytest.raises(ParameterError, match="at least 1"):
        jaxenvs.make_vec(ID, 2, time_limit=0)


def test_pool_is_closed_if_making_the_environment_fails(monkeypatch):
    made = []
    make_pool = jaxenvs.make_pool

    def kept(*args, **kwargs):
        made.append(make_pool(*args, **kwargs))
        return made[-1]

    monkeypatch.setattr("jaxenvs.bridge.making.batches.make_pool", kept)
    with pytest.raises(PoolError, match='expected "auto"'):
        jaxenvs.make_vec(ID, 2, backend="serial", path="nonsense")
    assert made[0].closed


def test_unknown_ids_name_the_closest_native_and_host_ids():
    with pytest.raises(
        UnknownEnvironmentError, match=r'Close: "CartPole-v1".*make_vec.*"gymnasium/CartPole-v1"'
    ):
        jaxenvs.make_vec("CartPol-v1", 2)
    with pytest.raises(UnknownEnvironmentError, match=r'Close: "gymnasium/CartPole-v1"'):
        jaxenvs.make_vec("gymnasium/CartPol-v1", 2)
    with pytest.raises(UnknownEnvironmentError, match=r'"gymnasium/CarRacing-v3"'):
        jaxenvs.make("CarRacing-v3")


def test_make_refuses_host_ids():
    with pytest.raises(UnknownEnvironmentError, match=r"not a JAX environment.*make_vec"):
        jaxenvs.make(ID)


def test_a_native_registration_comes_first(own_registry):
    jaxenvs.register("gymnasium/Mine-v0", "jaxenvs.testing:CountingEnv")
    assert isinstance(jaxenvs.make_vec("gymnasium/Mine-v0", 2), VectorizedEnv)


def test_wrappers_on_a_host_env_behave_as_on_a_native_batch():
    host = jaxenvs.make_vec("gymnasium/Pendulum-v1", 3, backend="serial")
    native = OpaqueVectorEnv(jaxenvs.make_vec("Pendulum-v1", 3))
    assert len(WRAPPERS) > 20

    def outcome(batch, name):
        try:
            env = WRAPPERS[name](batch)
        except WrapperError:
            return "refused"

        def play(key):
            state, first = env.reset(key)
            _, second = env.step(state, env.action_space.sample(key), key)
            return [(each.observation, each.reward, each.done) for each in (first, second)]

        return str(jax.eval_shape(play, KEY))

    for name in {*WRAPPERS} - {"TransformAction"}:  # whose space is of another environment
        assert outcome(host, name) == outcome(native, name), name
    with pytest.raises(WrapperError, match="apply Gymnasium's wrappers"):
        host.wrap(TimeLimit, 3)
    host.close()


def test_check_env_of_a_host_env_points_to_validate():
    env = jaxenvs.make_vec(ID, 2, backend="serial")
    with pytest.raises(EnvironmentCheckError, match="validate=True"):
        check_env(env)
    env.close()


def test_wrapped_batch_has_its_host_env_and_closes_its_pool():
    host = jaxenvs.make_vec(ID, 2, backend="serial")
    wrapped = host.wrap(NormalizeObservation).wrap(NormalizeReward)
    assert wrapped.unwrapped is host.unwrapped is host
    wrapped.close()
    with pytest.raises(ClosedError, match="close"):
        host.pools[0].reset()


def test_close_of_native_batch_does_nothing():
    env = jaxenvs.make_vec("CartPole-v1", 2).wrap(TimeLimit, 3)
    env.close()
    assert env.reset(KEY)[1].reward.shape == (2,)
