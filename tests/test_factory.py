import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.classic_control import MountainCar
from jaxenvs.envs.classic_control.cartpole import CartPole
from jaxenvs.errors import ParameterError, UnknownEnvironmentError, UnknownParameterError
from jaxenvs.testing import CountingEnv
from jaxenvs.wrappers import TimeLimit


@pytest.fixture
def counter(own_registry):
    return jaxenvs.register("Count-v0", CountingEnv, time_limit=7, kwargs={"lengths": (2, 3)})


def test_an_id_brings_its_time_limit():
    env = jaxenvs.make("CartPole-v1")
    assert isinstance(env, TimeLimit) and env.time_limit == 500
    assert type(env.unwrapped) is CartPole
    assert jaxenvs.make("CartPole-v0").time_limit == 200


def test_the_time_limit_can_be_changed_or_taken_away():
    assert jaxenvs.make("CartPole-v1", time_limit=9).time_limit == 9
    assert type(jaxenvs.make("CartPole-v1", time_limit=None)) is CartPole


LIMITS = [0, -1, True, 2.5, [3], np.int64(0), np.float32(3), np.nan, np.inf, 2**31, 1j]


@pytest.mark.parametrize("time_limit", [*LIMITS, jnp.int32(0), np.array([[3]])], ids=str)
def test_a_time_limit_is_at_least_one_step(time_limit):
    env = MountainCar()
    for make in (
        lambda: jaxenvs.make("CartPole-v1", time_limit=time_limit),
        lambda: jaxenvs.make("CartPole-v1").replace(time_limit=time_limit),
        lambda: jaxenvs.wrappers.TimeLimit(env, time_limit),
        lambda: jaxenvs.make_gym(env, 2, time_limit=time_limit),
        lambda: jaxenvs.make_vec("gymnasium/CartPole-v1", 2, time_limit=time_limit),
    ):
        with pytest.raises(ParameterError, match=r"at least 1.*None"):
            make()


def test_time_limit_accepts_numpy_integers_but_not_other_strings():
    assert jaxenvs.make_gym(MountainCar(), time_limit=np.int64(5)).env.env.time_limit == 5
    with pytest.raises(ParameterError, match="only string"):
        jaxenvs.make("CartPole-v1", time_limit="none")


@pytest.mark.parametrize("value", ["x", None, 1 + 2j, [9.8], {"a": 1}, np.complex64(1)], ids=str)
def test_a_parameter_that_is_not_a_number_is_named(value):
    for make in (
        lambda: jaxenvs.make("CartPole-v1", gravity=value),
        lambda: jaxenvs.make("CartPole-v1").replace(gravity=value),
        lambda: jaxenvs.make_gym("CartPole-v1", 2).set_attr("gravity", [value, value]),
    ):
        with pytest.raises(ParameterError, match="CartPole got gravity="):
            make()


def test_memory_length_of_zero_is_refused():
    with pytest.raises(ParameterError, match="memory_length=0"):
        jaxenvs.make("bsuite/memory_len-v0", memory_length=0)


def test_limits_and_parameters_can_differ_between_instances():
    limits, gravity = jnp.array([1, 2, 3], jnp.int32), jnp.array([1.0, 2.0, 3.0])
    env = jaxenvs.make_vec(
        *("CartPole-v1", 3),
        time_limit=limits,
        gravity=gravity,
        batched=["time_limit", "gravity"],
    )
    state, _ = env.reset(jax.random.key(0))
    _, timestep = env.step(state, jnp.zeros(3, jnp.int32), jax.random.key(1))
    assert timestep.truncated.tolist() == [True, False, False]
    assert timestep.observation.shape == (3, 4)


def test_parameters_go_to_the_environment():
    env = jaxenvs.make("CartPole-v1", gravity=3.7, sutton_barto_reward=True)
    assert env.unwrapped.gravity == 3.7 and env.unwrapped.sutton_barto_reward


def test_an_entry_sets_parameters_and_the_caller_overrides_them(counter):
    assert jaxenvs.make("Count-v0").unwrapped.lengths == (2, 3)
    assert jaxenvs.make("Count-v0", lengths=(5,)).unwrapped.lengths == (5,)


def test_entry_point_may_be_a_function(counter):
    jaxenvs.register("Count-v1", lambda longest: CountingEnv(lengths=(longest,)))
    assert jaxenvs.make("Count-v1", longest=4).lengths == (4,)


@pytest.mark.parametrize("make", [jaxenvs.make, jaxenvs.make_gym])
@pytest.mark.parametrize(
    ("misspelt", "closest"), [("gravty", "gravity"), ("time_limits", "time_limit")]
)
def test_a_misspelt_parameter_names_the_closest(make, misspelt, closest):
    words = f'CartPole-v1 has no parameter "{misspelt}".*Close: .*"{closest}"'
    with pytest.raises(UnknownParameterError, match=words):
        make("CartPole-v1", **{misspelt: 9})


@pytest.mark.parametrize("make", [jaxenvs.make, lambda id: jaxenvs.make_vec(id, 2)])
@pytest.mark.parametrize(
    ("id", "words"),
    [
        (["CartPole-v1"], r"got \['CartPole-v1'\].*make_pool"),
        (None, "got None"),
        (CartPole, "got <class .*CartPole"),
        (CartPole(), r"got CartPole\(\).*vectorize\(env, num_envs\)"),
    ],
    ids=["list", "none", "class", "environment"],
)
def test_id_that_is_not_a_string_is_refused(make, id, words):
    with pytest.raises(UnknownEnvironmentError, match=f"expected an id such as .*{words}"):
        make(id)


def test_parameter_of_another_function_names_it(counter):
    for id in ("CartPole-v1", "Count-v0"):
        with pytest.raises(UnknownParameterError, match=rf'make_vec\("{id}", num_envs, ...\)'):
            jaxenvs.make(id, num_envs=3)
        with pytest.raises(UnknownParameterError, match="Pass time_limit"):
            jaxenvs.make_vec(id, 3, max_episode_steps=9)
    jaxenvs.register("Count-v1", lambda num_envs: CountingEnv(lengths=(num_envs,)))
    assert jaxenvs.make("Count-v1", num_envs=4).lengths == (4,)
    with pytest.raises(UnknownParameterError, match="Pass time_limit"):
        jaxenvs.make("Count-v1", max_episode_steps=4)


def test_a_misspelt_id_names_the_closest():
    for make in (jaxenvs.make, lambda id: jaxenvs.make_vec(id, 2), jaxenvs.make_gym):
        with pytest.raises(UnknownEnvironmentError, match=r'Close: .*"CartPole-v1"'):
            make("CartPol-v1")


def test_make_vec_is_a_vectorized_make(counter):
    env = jaxenvs.make_vec(
        "Count-v0", 3, autoreset_mode="next_step", time_limit=4, lengths=(9,), reset_chunk=2
    )
    assert (env.num_envs, env.autoreset_mode, env.resets.chunk) == (3, "next_step", 2)
    assert env.env.time_limit == 4 and env.env.unwrapped.lengths == (9,)
    _, timestep = env.reset(jax.random.key(0))
    assert timestep.observation.shape == (3, 2)


def test_time_limit_below_the_environments_own_is_applied():
    env = jaxenvs.make("MiniGrid-Empty-5x5-v0", time_limit=7)  # its own limit is 100 steps
    assert env.time_limit == 7 and jaxenvs.make("MiniGrid-Empty-5x5-v0").time_limit == 100
    own = jaxenvs.make("MiniGrid-Empty-5x5-v0", max_steps=150)  # that of the id is 100, too
    assert own.time_limit == 150 and not isinstance(own, TimeLimit)
