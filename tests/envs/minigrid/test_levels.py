"""Every class of levels: its programs, and recorded episodes of one id each.

If an episode changes, the id needs a new version. `python -m tests.envs.minigrid.test_levels`
records the ids that are new.
"""

import hashlib
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxenvs
from tests.ids import EXAMPLES_OF_LEVELS, every_nth, one_level_per_class

FILE = Path(__file__).parent / "golden.json"
GOLDEN = json.loads(FILE.read_text()) if FILE.exists() else {}
LEVELS = sorted({*one_level_per_class(), *EXAMPLES_OF_LEVELS})
STEPS = 64


def play(id):
    """Returns a hash of what an episode of random actions shows, with its rewards and flags."""
    env = jaxenvs.make(id)

    @jax.jit
    def run(key):
        def step(state, key):
            state, timestep = env.step(state, env.action_space.sample(key), key)
            return state, timestep

        state, first = env.reset(key)
        return first, jax.lax.scan(step, state, jax.random.split(key, STEPS))[1]

    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(run(jax.random.key(3)))):
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("id", every_nth(8, LEVELS))
def test_reset_and_step_return_the_same_structure(id):
    env = jaxenvs.make(id)
    first = jax.eval_shape(env.reset, jax.random.key(0))
    state, _ = first
    later = jax.eval_shape(env.step, state, jnp.int32(0), jax.random.key(0))
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), first) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), later
    )


def test_golden_file_covers_every_class():
    assert sorted(GOLDEN) == LEVELS


@pytest.mark.parametrize(
    "id",
    [
        pytest.param(id, marks=[] if id in EXAMPLES_OF_LEVELS else [pytest.mark.slow])
        for id in LEVELS
    ],
)
def test_episodes_match_the_golden_file(id):
    assert play(id) == GOLDEN[id]


if __name__ == "__main__":
    GOLDEN |= {id: play(id) for id in LEVELS if id not in GOLDEN}
    FILE.write_text(json.dumps(dict(sorted(GOLDEN.items())), indent=2) + "\n")
