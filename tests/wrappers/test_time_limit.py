import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.errors import WrapperError
from jaxenvs.testing import CountingEnv, ScriptedEnv
from jaxenvs.testing.dummy import CONTINUE, TERMINATE, TRUNCATE
from jaxenvs.wrappers import TimeLimit


def flags(env, actions):
    """Returns the flags of each step, [T, 2]."""
    key = jax.random.key(0)
    state, _ = env.reset(key)

    def advance(state, action):
        state, timestep = env.step(state, action, key)
        return state, jnp.stack([timestep.terminated, timestep.truncated])

    return np.asarray(jax.lax.scan(advance, state, jnp.array(actions, jnp.int32))[1]).tolist()


def test_only_the_last_allowed_step_truncates():
    assert flags(TimeLimit(ScriptedEnv(), time_limit=3), [CONTINUE] * 3) == [
        [False, False],
        [False, False],
        [False, True],
    ]


def test_termination_on_the_last_step_sets_both_flags():
    assert flags(TimeLimit(ScriptedEnv(), time_limit=2), [CONTINUE, TERMINATE])[-1] == [True, True]


def test_earlier_termination_is_unchanged():
    assert flags(TimeLimit(ScriptedEnv(), time_limit=9), [TERMINATE]) == [[True, False]]
    assert flags(TimeLimit(ScriptedEnv(), time_limit=9), [TRUNCATE]) == [[False, True]]


def test_shorter_of_nested_limits_applies():
    env = TimeLimit(TimeLimit(ScriptedEnv(), time_limit=5), time_limit=2)
    assert flags(env, [CONTINUE] * 2)[-1] == [False, True] and env.time_limit == 2


@pytest.mark.parametrize("inner", [2, np.int32(2), jnp.array([2, 9])])
def test_limit_that_would_have_no_effect_is_refused(inner):
    env = TimeLimit(ScriptedEnv(), time_limit=inner)
    for wrap in (
        lambda: TimeLimit(env, time_limit=5),
        lambda: TimeLimit(env, time_limit=2).replace(time_limit=5),
        lambda: jaxenvs.vectorize(TimeLimit(ScriptedEnv(), 2), 2).wrap(TimeLimit, 5),
        lambda: TimeLimit(jaxenvs.make("MiniGrid-Empty-5x5-v0"), 101),  # has no wrapper
    ):
        with pytest.raises(WrapperError, match=r"truncates its episodes after .* steps"):
            wrap()


def test_reset_restarts_the_count():
    env = TimeLimit(ScriptedEnv(), time_limit=2)
    state, _ = env.reset(jax.random.key(0))
    state, _ = env.step(state, jnp.int32(CONTINUE), jax.random.key(0))
    state, timestep = env.reset(jax.random.key(1))
    assert state.elapsed == 0 and not timestep.done


def test_limits_can_differ_between_instances():
    def truncated(env):
        key = jax.random.key(0)
        state, _ = env.reset(key)
        return env.step(state, jnp.int32(CONTINUE), key)[1].truncated

    envs = jax.vmap(lambda limit: TimeLimit(ScriptedEnv(), time_limit=limit))(jnp.arange(1, 4))
    np.testing.assert_array_equal(jax.vmap(truncated)(envs), [True, False, False])


def test_wrapped_environment_is_accessible():
    inner = CountingEnv(layout="dict")
    env = TimeLimit(inner, time_limit=2)
    assert env.unwrapped is inner and env.time_limit == 2
    assert env.observation_space == inner.observation_space
    state, timestep = env.reset(jax.random.key(0))
    chex.assert_trees_all_equal((env.inner(state), timestep), inner.reset(jax.random.key(0)))


def test_limit_is_required():
    with pytest.raises(TypeError, match="time_limit"):
        TimeLimit(CountingEnv())
