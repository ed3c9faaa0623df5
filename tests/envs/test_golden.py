"""Recorded episodes. If the rules change, the id needs a new version.

Initial states are included, because their draws use raw bits only. The records of the classic
control ids are in their own folder.
"""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs

GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())


def test_golden_file_covers_every_id():
    ids = {id for id, spec in jaxenvs.registry.items() if spec.family != "classic_control"}
    assert set(GOLDEN) == {id for id in ids if jaxenvs.registry[id].family != "user"}


@pytest.mark.parametrize("id", GOLDEN)
def test_episodes_match_the_golden_file(id):
    record, env = GOLDEN[id], jaxenvs.make(id)
    is_index = isinstance(env.observation_space, jaxenvs.spaces.Discrete)
    flatten = (lambda index: index) if is_index else env.observation_space.flatten

    @jax.jit
    def play(key, actions):
        def step(state, action):
            state, timestep = env.step(state, action, key)
            return state, (flatten(timestep.observation), timestep.reward, timestep.terminated)

        state, timestep = env.reset(key)
        return flatten(timestep.observation), jax.lax.scan(step, state, actions)[1]

    actions = jnp.array(record["actions"], jnp.int32)
    start, (observations, rewards, terminated) = play(jax.random.key(record["seed"]), actions)
    np.testing.assert_allclose(start, record["start"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(observations, record["observations"], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rewards, record["rewards"], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(terminated, record["terminated"])
