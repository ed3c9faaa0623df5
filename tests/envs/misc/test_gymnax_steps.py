"""Steps recorded from gymnax 1.0.1, from unusual states and from play, for several parameters.

python -m benchmarks.oracles.gymnax tests/envs/misc/gymnax_steps.json
"""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxenvs

RECORDS = json.loads((Path(__file__).parent / "gymnax_steps.json").read_text())


def test_the_record_covers_every_id():
    family = {id for id, spec in jaxenvs.registry.items() if spec.family == "misc"}
    assert {record["id"] for record in RECORDS} == family


@pytest.mark.parametrize(
    "record", [pytest.param(record, id=f"{record['id']}-{i}") for i, record in enumerate(RECORDS)]
)
def test_steps_equal_those_of_gymnax(record):
    env, steps = (
        jaxenvs.make(record["id"], time_limit=None, **record["parameters"]),
        record["steps"],
    )
    template, first = jax.eval_shape(env.reset, jax.random.key(0))

    def column(name):
        def stack(leaf, *rows):
            return np.array(rows, leaf.dtype)

        return jax.tree.map(stack, template, *[type(template)(**step[name]) for step in steps])

    @jax.jit
    @jax.vmap
    def run(state, action, draws):
        if draws is None:
            return env.step(state, action, jax.random.key(0))
        return env.apply(state, action, draws)

    draws = None
    if steps[0]["draws"] is not None:
        kind = jax.eval_shape(env.draw, template, jax.random.key(0))
        draws = np.array([step["draws"] for step in steps], kind.dtype)
    actions = np.array([step["action"] for step in steps], env.action_space.dtype)
    state, timestep = run(column("state"), actions, draws)

    expected = np.zeros((len(steps), first.observation.size), np.float32)
    for row, step in zip(expected, steps, strict=True):
        row[step["seen"]] = step["values"]
    observed = np.asarray(timestep.observation).reshape(expected.shape)
    close = {"rtol": 1e-5, "atol": 1e-5}
    np.testing.assert_allclose(observed, expected, **close)
    np.testing.assert_allclose(timestep.reward, [step["reward"] for step in steps], **close)
    np.testing.assert_array_equal(timestep.terminated, [step["terminated"] for step in steps])
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, **close), state, column("next_state")
    )
