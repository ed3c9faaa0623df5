import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.testing import CountingEnv


def episode(env, seed):
    """Rewards and the last timestep of one episode."""
    key = jax.random.key(seed)
    state, timestep = env.reset(key)
    rewards = []
    while not timestep.done:
        state, timestep = env.step(state, jnp.int32(0), key)
        rewards.append(float(timestep.reward))
    return rewards, timestep


@pytest.mark.parametrize("layout", ["array", "dict", "tuple"])
def test_an_episode_counts_up_to_one_of_the_lengths(layout):
    seen = set()
    for seed in range(8):
        rewards, last = episode(CountingEnv(lengths=(1, 3), layout=layout), seed)
        assert rewards == list(range(1, len(rewards) + 1))
        assert last.terminated and not last.truncated
        seen.add(len(rewards))
    assert seen == {1, 3}


def test_counting_env_truncates_on_request():
    _, last = episode(CountingEnv(truncates=True), 0)
    assert last.truncated and not last.terminated


@pytest.mark.parametrize("keyed", [False, True])
def test_draws_use_the_state_key_if_present_else_the_step_key(keyed):
    env = CountingEnv(has_key=keyed)
    state, _ = env.reset(jax.random.key(0))
    draws = [env.step(state, jnp.int32(0), jax.random.key(k))[1].observation[1] for k in (1, 2)]
    assert (draws[0] == draws[1]) == keyed
    again, _ = env.step(state, jnp.int32(0), jax.random.key(1))
    later = env.step(again, jnp.int32(0), jax.random.key(1))[1].observation[1]
    assert np.asarray(later != draws[0]) == keyed
