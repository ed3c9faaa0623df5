import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxenvs.testing import PROBES, DiscountProbe, check_env

GAMMA = 0.9
VARIANTS = [(probe, continuous) for probe in PROBES for continuous in (False, True)]


def action_of(probe, push):
    """The action that pushes so."""
    return push[None] if probe.continuous else (push > 0).astype(jnp.int32)


def best_return(probe, key):
    """The discounted return from the start, pushing as `optimal_push` says, and the value.

    Cuts are passed over: what lies behind them counts, for 300 steps.
    """
    state, timestep = probe.reset(key)
    value = probe.optimal_value(timestep.observation, GAMMA)

    def step(carry, _):
        state, observation, total, discount = carry
        action = action_of(probe, probe.optimal_push(observation))
        state, timestep = probe.step(state, action, key)
        total += discount * timestep.reward
        discount *= GAMMA * timestep.discount
        return (state, timestep.observation, total, discount), None

    start = (state, timestep.observation, jnp.float32(0), jnp.float32(1))
    (_, _, total, _), _ = jax.lax.scan(step, start, length=300)
    return total, value


@pytest.mark.parametrize(("probe", "continuous"), VARIANTS)
def test_optimal_value_is_what_the_optimal_push_earns(probe, continuous):
    keys = jax.random.split(jax.random.key(0), 8)
    total, value = jax.jit(jax.vmap(lambda key: best_return(probe(continuous), key)))(keys)
    np.testing.assert_allclose(total, value, rtol=1e-5)


@pytest.mark.parametrize(
    ("probe", "continuous"), [v for v in VARIANTS if "Policy" in v[0].__name__]
)
def test_optimal_push_earns_more_than_the_other(probe, continuous):
    probe = probe(continuous)
    for seed in range(4):
        state, timestep = probe.reset(jax.random.key(seed))
        pushes = jnp.array([-1.0, 1.0])
        rewards = [
            probe.step(state, action_of(probe, push), jax.random.key(0))[1].reward
            for push in pushes
        ]
        assert pushes[np.argmax(rewards)] == probe.optimal_push(timestep.observation)


def test_values_are_given_for_batches():
    observation = jnp.array([[[0.0], [1.0]]], jnp.float32)
    values = DiscountProbe().optimal_value(observation, GAMMA)
    np.testing.assert_allclose(values, [[GAMMA, 1.0]])
    chex.assert_shape(DiscountProbe().push(jnp.zeros((2, 3), jnp.int32)), (2, 3))


@pytest.mark.parametrize("continuous", [False, True])
def test_probe_passes_check_env(continuous):
    check_env(PROBES[-1](continuous))
