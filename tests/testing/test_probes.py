import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.testing import PROBES, DiscountProbe

GAMMA = 0.9


def best_return(probe, key):
    """The discounted return from the start, acting as `optimal_action` says, and the value."""
    state, timestep = probe.reset(key)
    value = probe.optimal_value(timestep.observation, GAMMA)
    total, discount = 0.0, 1.0
    while not timestep.done:
        action = jnp.maximum(probe.optimal_action(timestep.observation), 0)
        state, timestep = probe.step(state, action, key)
        total, discount = total + discount * timestep.reward, discount * GAMMA
    return total, value


@pytest.mark.parametrize("probe", PROBES)
def test_the_stated_value_is_what_the_stated_action_earns(probe):
    for seed in range(4):
        total, value = best_return(probe(), jax.random.key(seed))
        np.testing.assert_allclose(total, value, rtol=1e-6)


@pytest.mark.parametrize(
    "probe", [probe for probe in PROBES if probe.__name__.startswith("Policy")]
)
def test_the_other_action_earns_less(probe):
    for seed in range(4):
        state, timestep = probe().reset(jax.random.key(seed))
        best = probe().optimal_action(timestep.observation)
        rewards = [probe().step(state, jnp.int32(a), jax.random.key(0))[1].reward for a in (0, 1)]
        assert np.argmax(rewards) == best


def test_values_are_given_for_batches():
    observation = jnp.array([[[0.0], [1.0]]], jnp.float32)
    values = DiscountProbe().optimal_value(observation, GAMMA)
    np.testing.assert_allclose(values, [[GAMMA, 1.0]])
