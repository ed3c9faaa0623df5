"""A given time limit replaces the limit of the id, in every interface, or is refused."""

import functools

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import ParameterError, PoolError
from jaxenvs.faces.gymnax import make_gymnax
from jaxenvs.parameters import NO_LIMIT
from tests.ids import one_level_per_class

OWN = {"Pendulum-v1": 200, "dm_control/point_mass-easy": 1_000, "Acrobot-v1": 500}


def flags_of_gymnasium(env):
    """Yields whether an episode ended, for each step."""
    env.reset(seed=0)
    action = np.zeros_like(env.action_space.sample())
    while True:
        _, _, terminated, truncated, _ = env.step(action)
        yield np.any(terminated | truncated)


def flags_of_classic(env):
    env.reset()
    action = np.zeros_like(env.action_space.sample())
    while True:
        yield np.any(env.step(action)[2])


def flags_of_dm(env):
    env.reset()
    action = np.zeros(env.action_spec().shape, env.action_spec().dtype)
    while True:
        yield np.any(env.step(action).last())


def flags_of_gymnax(made):
    env, params = made
    key = jax.random.key(0)
    action = jnp.zeros_like(env.action_space(params).sample(key))
    _, state = env.reset(key, params)
    while True:
        _, state, _, terminated, truncated, _ = env.step(key, state, action, params)
        yield bool(terminated | truncated)


def native(limit):
    return {"time_limit": limit}


def of_gymnasium(limit):
    return {"max_episode_steps": -1 if limit is None else limit}


make_gym, make_dm, make_pool = jaxenvs.make_gym, jaxenvs.make_dm, jaxenvs.make_pool
serial = functools.partial(make_pool, num_envs=2, backend="serial")
vector = functools.partial(gymnasium.make_vec, num_envs=2)
# The library of the id, how to make it, the name of the limit, how to play.
INTERFACES = {
    "make_gym": ("", make_gym, native, flags_of_gymnasium),
    "make_gym, batch": ("", functools.partial(make_gym, num_envs=2), native, flags_of_gymnasium),
    "make_gym, gym": ("", functools.partial(make_gym, api="gym"), native, flags_of_classic),
    "make_dm": ("", make_dm, native, flags_of_dm),
    "make_dm, batch": ("", functools.partial(make_dm, num_envs=2), native, flags_of_dm),
    "gymnax": ("", functools.partial(make_gymnax, api="1.x"), native, flags_of_gymnax),
    "make": ("jaxenvs/", gymnasium.make, of_gymnasium, flags_of_gymnasium),
    "make_vec": ("jaxenvs/", vector, of_gymnasium, flags_of_gymnasium),
    "sync": (
        "jaxenvs/",
        functools.partial(vector, vectorization_mode="sync"),
        of_gymnasium,
        flags_of_gymnasium,
    ),
    "hosted": ("gymnasium/", make_gym, native, flags_of_gymnasium),
    "hosted, batch": (
        "gymnasium/",
        functools.partial(make_gym, num_envs=2, backend="serial"),
        native,
        flags_of_gymnasium,
    ),
    "hosted, gym": (
        "gymnasium/",
        functools.partial(make_gym, api="gym"),
        native,
        flags_of_classic,
    ),
    "hosted, dm": ("gymnasium/", make_dm, native, flags_of_dm),
    "pool": ("gymnasium/", serial, native, flags_of_gymnasium),
    "pool of gym": ("gym/", serial, native, flags_of_gymnasium),
}


def assert_length(flags, limit, own):
    most = own + 3
    length = next((i for i, ended in zip(range(1, most), flags, strict=False) if ended), None)
    assert length == (limit if limit is None or limit < most else None)


@pytest.mark.parametrize("limit", [3, 202, None])
@pytest.mark.parametrize("interface", INTERFACES)
def test_given_limit_replaces_that_of_the_id(interface, limit):
    library, make, name_of, play = INTERFACES[interface]
    if library == "gym/":
        pytest.importorskip("gym")
    env = make(f"{library}Pendulum-v1", **name_of(limit))
    assert_length(play(env), limit, OWN["Pendulum-v1"])
    spec = getattr(env, "spec", None)
    if spec is not None and interface != "sync":  # Gymnasium's own class sets that of the id
        assert spec.max_episode_steps == limit


@pytest.mark.parametrize("limit", [3, 1_002, None])
def test_given_limit_replaces_that_of_dm_control(limit):
    pytest.importorskip("dm_control")
    id = "dm_control/point_mass-easy"
    assert_length(flags_of_gymnasium(serial(id, time_limit=limit)), limit, OWN[id])


@pytest.mark.parametrize("limit", [3, 202])
def test_given_limit_replaces_that_of_envpool(limit):
    pytest.importorskip("envpool")
    with make_pool("envpool/Pendulum-v1", 2, num_workers=1, time_limit=limit) as pool:
        assert_length(flags_of_gymnasium(pool), limit, OWN["Pendulum-v1"])


@pytest.mark.parametrize("limit", [3, 202, None])
@pytest.mark.parametrize("id", ["Pendulum-v1", "gymnasium/Pendulum-v1"])
def test_given_limit_replaces_that_of_the_id_in_programs(id, limit):
    options = {"backend": "serial"} if "/" in id else {}
    env = jaxenvs.make_vec(id, 2, time_limit=limit, **options)
    truncated = jaxenvs.rollout(env, None, 203, jax.random.key(0)).trajectory.truncated
    assert_length(iter(np.asarray(truncated).any(axis=1)), limit, OWN["Pendulum-v1"])


def test_library_without_limit_to_replace_refuses_one():
    for make, id, limit, expected in (
        (gymnasium.make, "jaxenvs/Pendulum-v1", 300, "Pass max_episode_steps=300"),
        (gymnasium.make_vec, "jaxenvs/Pendulum-v1", None, "Pass max_episode_steps=-1"),
        (gymnasium.make, "jaxenvs/HalfCheetah-v5", 1_200, "Pass max_episode_steps=1200"),
        (gymnasium.make, "jaxenvs/MiniGrid-Empty-5x5-v0", 300, "Pass max_steps=300"),
    ):
        with pytest.raises(ParameterError, match=expected):
            make(id, time_limit=limit)
    with pytest.raises(PoolError, match="cannot replace its own limit"):
        make_pool("gymnasium/CartPole-v1", 2, backend="native", time_limit=None)
    with pytest.raises(PoolError, match="Pass time_limit=300, which replaces"):
        make_pool("gymnasium/Pendulum-v1", 2, max_episode_steps=300)
    limited = lambda: gymnasium.make("Pendulum-v1")  # noqa: E731
    for make in (serial, make_gym):
        for limit in (300, None):
            with pytest.raises(PoolError, match="has a limit of 200 steps itself"):
                make(limited, time_limit=limit)
        env = make(limited, time_limit=3)
        assert_length(flags_of_gymnasium(env), 3, 200)


@pytest.mark.parametrize("limit", [3, 550])
def test_native_pool_has_the_given_limit(limit):
    with make_pool("gymnasium/CartPole-v1", 2, backend="native", time_limit=limit) as pool:
        assert pool.spec.max_episode_steps == limit
        length = next(i for i, ended in enumerate(flags_of_gymnasium(pool), start=1) if ended)
        assert length == min(limit, 8)  # then the pole falls


# Environments that truncate their episodes themselves


@pytest.mark.parametrize("id", one_level_per_class())
def test_limit_of_a_level_is_the_given_one(id):
    own = jaxenvs.make(id).time_limit
    for limit in (3, 2_000_000):
        assert jaxenvs.make(id, time_limit=limit).time_limit == limit
    assert jaxenvs.make(id, time_limit=None).time_limit == NO_LIMIT
    assert jaxenvs.make(id, time_limit=own or "default").time_limit == own


@pytest.mark.parametrize("limit", [3, 101, 130])
def test_level_is_truncated_at_the_given_limit(limit):
    id = "MiniGrid-Empty-5x5-v0"
    for env in (
        make_gym(id, time_limit=limit),
        make_gym(id, 2, time_limit=limit),
        make_gym(jaxenvs.make(id), time_limit=limit),
        gymnasium.make(make_gym(id, time_limit=limit).spec),
    ):
        assert_length(flags_of_gymnasium(env), limit, 130)
        assert env.spec is None or env.spec.max_episode_steps == limit
    made = make_gymnax(id, api="1.x")
    params = made[1].replace(max_steps_in_episode=limit)
    assert_length(flags_of_gymnax((made[0], params)), limit, 130)


def rewards_at_the_goal(env):
    """Yields the rewards of the shortest episode of MiniGrid-Empty-5x5."""
    env.reset(seed=0)
    for action in (2, 2, 1, 2, 2):
        yield float(np.max(env.step(np.broadcast_to(action, env.action_space.shape))[1]))


@pytest.mark.parametrize(
    ("options", "limit", "own"),
    [
        ({}, 100, 100),
        ({"max_steps": 6}, 6, 6),
        ({"max_steps": 130}, 130, 130),
        ({"max_episode_steps": 6}, 6, 100),  # as in minigrid, rewards do not know this limit
    ],
)
@pytest.mark.parametrize("make", [gymnasium.make, vector])
def test_rewards_of_a_level_are_those_of_its_own_limit(make, options, limit, own):
    env = make("jaxenvs/MiniGrid-Empty-5x5-v0", **options)
    *before, last = rewards_at_the_goal(env)
    assert not any(before) and last == pytest.approx(1 - 0.9 * 5 / own, rel=1e-6)
    assert_length(flags_of_gymnasium(env), limit, 130)


def test_rewards_of_a_level_without_a_limit_are_near_1():
    *_, last = rewards_at_the_goal(make_gym("MiniGrid-Empty-5x5-v0", time_limit=None))
    assert last == pytest.approx(1.0)


def test_limit_inside_of_another_wrapper_is_not_hidden():
    env = jaxenvs.wrappers.ScaleReward(jaxenvs.make("Pendulum-v1"), 2.0)
    assert make_gym(env, time_limit=9).env.env.time_limit == 9
    for limit in (300, None):
        with pytest.raises(ParameterError, match="itself after 200 steps"):
            make_gym(env, time_limit=limit)


def test_limits_of_a_level_can_differ_between_instances():
    limits = np.array([3, 5])
    envs = make_gym("MiniGrid-Empty-5x5-v0", 2, time_limit=limits, batched=["time_limit"])
    assert envs.spec.max_episode_steps == 5
    envs.reset(seed=0)
    cut = np.stack([envs.step(np.zeros(2, np.int64))[3] for _ in range(5)])
    assert cut[:, 0].tolist() == [0, 0, 1, 0, 0] and cut[:, 1].tolist() == [0, 0, 0, 0, 1]
