"""Every id of gymnax has one here, in the program and in the documentation."""

import math
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxenvs
from jaxenvs.catalog.gymnax_ids import GYMNAX_DEFAULTS, GYMNAX_IDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "usage" / "coming_from_gymnax.md"


def new_gymnax():
    """Returns gymnax, or skips the test if it is not installed or older than 1.0."""
    gymnax = pytest.importorskip("gymnax")
    if not hasattr(gymnax.environments.environment.Environment, "is_truncated"):
        pytest.skip("needs gymnax 1.0")
    return gymnax


@pytest.mark.parametrize("id", GYMNAX_IDS)
def test_every_id_of_gymnax_can_be_made_here(id):
    env = jaxenvs.make(GYMNAX_IDS[id], **GYMNAX_DEFAULTS.get(id, {}))
    state, timestep = jax.eval_shape(env.reset, jax.random.key(0))
    action = jax.eval_shape(env.action_space.sample, jax.random.key(0))
    jax.eval_shape(env.step, state, action, jax.random.key(0))
    assert timestep.observation is not None


def test_gymnax_ids_map_to_distinct_ids():
    assert len(set(GYMNAX_IDS.values())) == len(GYMNAX_IDS) == 26
    assert GYMNAX_DEFAULTS.keys() <= GYMNAX_IDS.keys()


def test_gymnax_table_in_the_documentation_is_the_same():
    rows = re.findall(r"^\| `([\w-]+)` \| `([\w/-]+)` \| (.*)\|$", PAGE.read_text(), re.MULTILINE)
    assert [(theirs, ours) for theirs, ours, _ in rows] == list(GYMNAX_IDS.items())
    notes = {theirs: note for theirs, _, note in rows}
    for id, parameters in GYMNAX_DEFAULTS.items():
        for name, value in parameters.items():
            assert f"`{name}={value}`" in notes[id]


@pytest.mark.interop
def test_the_table_has_all_ids_of_gymnax():
    gymnax = new_gymnax()
    assert list(GYMNAX_IDS) == gymnax.registered_envs


# gymnax downloads MNIST.
@pytest.mark.interop
@pytest.mark.parametrize("id", [id for id in GYMNAX_IDS if not id.startswith("MNIST")])
def test_observation_and_action_sizes_match_gymnax(id):
    gymnax = new_gymnax()
    env = jaxenvs.make(GYMNAX_IDS[id], **GYMNAX_DEFAULTS.get(id, {}))
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        theirs, params = gymnax.make(id)
        space, actions = theirs.observation_space(params), theirs.action_space(params)
    assert math.prod(env.observation_space.shape) == math.prod(space.shape)
    assert getattr(env.action_space, "n", None) == getattr(actions, "n", None)
    assert env.action_space.shape == actions.shape
    if id.endswith("-misc"):
        assert env.time_limit == np.asarray(params.max_steps_in_episode)
