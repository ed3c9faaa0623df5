"""Recorded episodes. If the rules change, the id needs a new version.

Initial states are included, because their draws use raw bits only. The records of levels are in
their own folder. Physics depend on the release of MuJoCo, games on ROMs.
`python tests/envs/test_golden.py ID` records new ids.
"""

import json
import re
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from tests.ids import LEVELS, PHYSICS

FILE = Path(__file__).parent / "golden.json"
GOLDEN = json.loads(FILE.read_text())
SEED, STEPS = 3, 16


def play(id, seed, actions):
    """Returns the start, and the observations, rewards, and flags of the steps, as NumPy arrays."""
    env = jaxenvs.make(id)
    is_index = isinstance(env.observation_space, jaxenvs.spaces.Discrete)
    flatten = (lambda index: index) if is_index else env.observation_space.flatten

    @jax.jit
    def run(key, actions):
        def step(state, action):
            state, timestep = env.step(state, action, key)
            return state, (flatten(timestep.observation), timestep.reward, timestep.terminated)

        state, timestep = env.reset(key)
        return flatten(timestep.observation), jax.lax.scan(step, state, actions)[1]

    dtype = env.action_space.dtype
    start, (observations, rewards, terminated) = jax.device_get(
        run(jax.random.key(seed), jnp.array(actions, dtype))
    )
    return start, observations, rewards, terminated


def shorten(observations):
    """Returns observations of zeros and ones as hexadecimal digits, and others unchanged."""
    if observations.ndim == 0 or not np.isin(observations, (0, 1)).all():
        return observations
    rows = np.packbits(np.atleast_2d(observations) == 1, axis=-1)
    return [row.tobytes().hex() for row in rows]


def test_golden_file_covers_every_id():
    others = ("atari", "user", *LEVELS, *PHYSICS)
    ids = {id for id, spec in jaxenvs.registry.items() if spec.family not in others}
    assert set(GOLDEN) == ids


@pytest.mark.parametrize("id", GOLDEN)
def test_episodes_match_the_golden_file(id):
    record = GOLDEN[id]
    start, observations, rewards, terminated = play(id, record["seed"], record["actions"])
    for found, name in ((start, "start"), (observations, "observations")):
        if isinstance(record[name], list) and isinstance(record[name][0], str):
            assert shorten(found) == record[name]
        else:
            np.testing.assert_allclose(found, record[name], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rewards, record["rewards"], rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(terminated, record["terminated"])


def record_episode(id):
    """Returns a new entry of the golden file, up to the end of the first episode."""
    space = jaxenvs.make(id).action_space
    actions = jax.vmap(space.sample)(jax.random.split(jax.random.key(SEED), STEPS))
    start, observations, rewards, terminated = play(id, SEED, actions)
    length = int(np.argmax(terminated)) + 1 if terminated.any() else STEPS
    columns = {
        "start": shorten(start),
        "actions": np.asarray(actions)[:length],
        "observations": shorten(observations[:length]),
        "rewards": rewards[:length],
        "terminated": terminated[:length],
    }

    def plain(values):
        values = np.asarray(values)
        if values.dtype.kind != "f":
            return values.tolist()
        return np.vectorize(lambda x: float(f"{x:.8g}"), otypes=[object])(values).tolist()

    return {"seed": SEED} | {name: plain(values) for name, values in columns.items()}


if __name__ == "__main__":
    GOLDEN |= {id: record_episode(id) for id in sys.argv[1:]}
    text = json.dumps(dict(sorted(GOLDEN.items())), indent=2)
    # One line per observation.
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda row: f"[{' '.join(row[1].split())}]", text)
    FILE.write_text(text + "\n")
