import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.envs.bsuite import MemoryChain, MemoryChainState
from jaxenvs.errors import ParameterError


def start(context, query=0):
    return MemoryChainState(
        elapsed=np.int32(0), context=np.array(context, np.int8), query=np.int32(query)
    )


@jax.jit
def compiled(env, state, actions):
    return jax.lax.scan(
        lambda state, action: env.step(state, action, jax.random.key(0)), state, actions
    )[1]


def play(env, state, actions):
    """Returns the timesteps of a sequence of actions."""
    return jax.device_get(compiled(env, state, np.array(actions, np.int32)))


@pytest.mark.parametrize("num_bits", [1, 3])
def test_policy_with_memory_always_returns_1(num_bits):
    env = MemoryChain(num_bits=num_bits)

    def episode(key):
        state, timestep = env.reset(key)

        def step(carry, _):
            state, observation, memory = carry
            shown, asked = observation[0, 2:], observation[0, 1].astype(jnp.int32)
            memory = jnp.where(shown == 0, memory, shown)
            action = (memory[asked] > 0).astype(jnp.int32)
            state, timestep = env.step(state, action, key)
            return (state, timestep.observation, memory), (timestep.reward, timestep.terminated)

        carry = (state, timestep.observation, jnp.zeros(num_bits))
        return state, jax.lax.scan(step, carry, None, length=11)[1]

    keys = jax.random.split(jax.random.key(0), 256)
    states, (rewards, terminated) = jax.device_get(jax.jit(jax.vmap(episode))(keys))
    assert (rewards[:, :-1] == 0).all() and (rewards[:, -1] == 1).all()
    assert (terminated == (np.arange(11) == 10)[None]).all()
    episodes = np.unique(np.c_[states.context, states.query], axis=0)
    assert len(episodes) == 2**num_bits * num_bits  # all contexts


@pytest.mark.parametrize("length", [2, 10])
def test_policy_without_memory_returns_0_on_average(length):
    """The observation at the last decision is the same for both bits, which are equally likely."""
    env = MemoryChain(memory_length=length)
    for action in (0, 1):
        zero, one = (play(env, start([bit]), [action] * (length + 1)) for bit in (0, 1))
        np.testing.assert_array_equal(zero.observation[1:], one.observation[1:])
        assert zero.terminated[-1] and not zero.terminated[:-1].any()
        assert zero.reward.sum() + one.reward.sum() == 0
        assert abs(zero.reward[-1]) == 1


def test_bits_and_query_are_uniform():
    keys = jax.random.split(jax.random.key(1), 6_000)
    state, _ = jax.jit(jax.vmap(MemoryChain(num_bits=3).reset))(keys)
    cases = np.asarray(state.context) @ [4, 2, 1] * 3 + np.asarray(state.query)
    counts = np.bincount(cases, minlength=24)
    assert len(counts) == 24 and (abs(counts - 250) < 80).all()  # 5 standard deviations


def test_memory_length_can_differ_within_a_batch():
    @jax.jit
    @jax.vmap
    def episode(length):
        return compiled(MemoryChain(memory_length=length), start([1]), np.ones(5, np.int32))

    timesteps = jax.device_get(episode(np.arange(1, 5, dtype=np.int32)))
    assert timesteps.terminated.argmax(axis=1).tolist() == [1, 2, 3, 4]


def test_render_shows_only_the_observation():
    env, ended = MemoryChain(memory_length=3), []
    pictures, render = {}, jax.jit(env.render)
    for elapsed in range(5):
        for bit in (0, 1):
            state = start([bit]).replace(elapsed=np.int32(elapsed))
            pictures[elapsed, bit] = np.asarray(render(state))
        ended.append((pictures[elapsed, 0] == pictures[elapsed, 1]).all())
    assert ended == [False, False, True, True, True]
    assert (pictures[2, 0][48:] != pictures[3, 0][48:]).any()  # the frame around the queried bit
    assert pictures[0, 0].shape == (96, 96, 3) and pictures[0, 0][:48].any()
    assert not pictures[4, 0][:48].any()  # no time left


def test_zero_bits_are_rejected():
    with pytest.raises(ParameterError, match="num_bits"):
        MemoryChain(num_bits=0)
