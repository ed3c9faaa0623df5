"""Twelve recorded steps of every id. If the dynamics change, the id needs a new version."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def test_golden_file_covers_every_id():
    family = {id for id, spec in jaxenvs.registry.items() if spec.family == "classic_control"}
    assert set(GOLDEN) == family


@pytest.mark.parametrize("id", GOLDEN)
def test_states_and_rewards_match_the_golden_file(id):
    record, env = GOLDEN[id], jaxenvs.make(id).unwrapped
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    names = [field.name for field in dataclasses.fields(state)]
    state = state.replace(**dict(zip(names, map(np.float32, record["start"]), strict=True)))

    def step(state, action):
        state, timestep = env.step(state, action, jax.random.key(0))
        return state, (jnp.stack([getattr(state, name) for name in names]), timestep.reward)

    actions = np.asarray(record["actions"], env.action_space.dtype)
    _, (states, rewards) = jax.jit(lambda *arguments: jax.lax.scan(step, *arguments))(
        state, actions
    )
    np.testing.assert_allclose(states, record["states"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rewards, record["rewards"], rtol=1e-6, atol=1e-6)
