"""Parity with bsuite over whole episodes from the same initial states."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from jaxenvs.envs.bsuite import CatchState, MemoryChainState

pytest.importorskip("bsuite")
catch = pytest.importorskip("bsuite.environments.catch")
memory_chain = pytest.importorskip("bsuite.environments.memory_chain")

EPISODES = 100
BOARDS = [(10, 5), (3, 8)]
CHAINS = [(1, 1), (3, 4), (10, 1), (100, 2)]  # memory_length, num_bits


def play(reference, random, snapshot):
    """Returns initial states, first observations, actions [E, T] and the results of all steps."""
    starts, firsts, actions, steps = [], [], [], []
    for _ in range(EPISODES):
        timestep = reference.reset()
        starts.append(snapshot(reference))
        firsts.append(timestep.observation)
        taken, seen = [], []
        while not timestep.last():
            taken.append(random.integers(reference.action_spec().num_values))
            timestep = reference.step(taken[-1])
            seen.append((timestep.observation, timestep.reward, timestep.last()))
            assert timestep.discount == (0 if timestep.last() else 1)
        actions.append(taken)
        steps.append([np.array(column) for column in zip(*seen, strict=True)])
    observations, rewards, lasts = (np.stack(column) for column in zip(*steps, strict=True))
    return starts, np.stack(firsts), np.array(actions), observations, rewards, lasts


def assert_same(env, state_of, played):
    starts, firsts, actions, observations, rewards, lasts = played
    states = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(state_of, starts))

    @jax.jit
    def replay(states, actions):
        def step(state, action):
            return env.step(state, action, jax.random.key(0))

        return jax.vmap(lambda state, row: jax.lax.scan(step, state, row)[1])(states, actions)

    timesteps = replay(states, jnp.asarray(actions, jnp.int32))
    # Equal except for one unit in the last place of the time left.
    np.testing.assert_allclose(jax.vmap(env._observe)(states), firsts, rtol=1.2e-7, atol=0)
    np.testing.assert_allclose(timesteps.observation, observations, rtol=1.2e-7, atol=0)
    np.testing.assert_array_equal(timesteps.reward, rewards)
    np.testing.assert_array_equal(timesteps.terminated, lasts)
    assert firsts.dtype == observations.dtype == timesteps.observation.dtype
    assert not timesteps.truncated.any()


@pytest.mark.parametrize(("rows", "columns"), BOARDS)
def test_catch_matches_bsuite(rows, columns):
    reference = catch.Catch(rows=rows, columns=columns, seed=0)
    played = play(reference, np.random.default_rng(1), lambda env: env._ball_x)
    env = jaxenvs.make("bsuite/catch-v0", rows=rows, columns=columns)
    middle = jnp.int32(columns // 2)

    def state_of(column):
        return CatchState(
            ball_row=jnp.int32(0), ball_column=jnp.int32(column), paddle_column=middle
        )

    assert_same(env, state_of, played)
    assert set(np.unique(played[4])) == {-1, 0, 1}


@pytest.mark.parametrize(("memory_length", "num_bits"), CHAINS)
def test_memory_chain_matches_bsuite(memory_length, num_bits):
    reference = memory_chain.MemoryChain(memory_length, num_bits=num_bits, seed=0)
    played = play(reference, np.random.default_rng(1), lambda env: (env._context, env._query))
    env = jaxenvs.make("bsuite/memory_len-v0", memory_length=memory_length, num_bits=num_bits)

    def state_of(start):
        context, query = jnp.array(start[0], jnp.int8), jnp.int32(start[1])
        return MemoryChainState(elapsed=jnp.int32(0), context=context, query=query)

    assert_same(env, state_of, played)
    assert set(np.unique(played[4])) == {-1, 0, 1}


def test_spaces_match_bsuite():
    env, reference = jaxenvs.make("bsuite/catch-v0"), catch.Catch()
    assert jaxenvs.spaces.from_dm_env(reference.observation_spec()) == env.observation_space
    assert env.action_space.n == reference.action_spec().num_values
    env, reference = jaxenvs.make("bsuite/memory_len-v0"), memory_chain.MemoryChain(10)
    spec = reference.observation_spec()
    assert (spec.shape, spec.dtype) == (env.observation_space.shape, env.observation_space.dtype)
    assert env.action_space.n == reference.action_spec().num_values
