"""Checks that apply to every registered environment."""

import pytest

import jaxenvs
from jaxenvs.cli.info import describe_parameters
from jaxenvs.testing import _run_checks, check_env
from tests.ids import (
    EXAMPLES_OF_GAMES,
    IDS,
    SLOW_TO_COMPILE,
    case,
    game_ids,
    level_ids,
    one_id_per_class,
    one_level_per_class,
    physics_ids,
)

# Some of each family. Seaquest takes by far the longest to compile.
QUICK = {*one_id_per_class()[::4]} - {"MinAtar/Seaquest-v0", *EXAMPLES_OF_GAMES}


def ids():
    """Returns all ids, of levels, physics, and games only some; those not in `QUICK` are slow."""
    many = {*level_ids(), *physics_ids(), *game_ids()}
    some = {*one_id_per_class(), *one_level_per_class()[::4]}
    return [case(id, is_quick=id in QUICK) for id in sorted({*IDS} - many | some)]


@pytest.mark.parametrize("id", ids())
def test_registered_environments_pass_check_env(id):
    check_env(jaxenvs.make(id))


@pytest.mark.parametrize("id", sorted({*one_id_per_class()} - QUICK - {*SLOW_TO_COMPILE}))
def test_the_checks_without_a_run_pass_for_other_classes(id, monkeypatch):
    monkeypatch.setattr(_run_checks, "check_runs", lambda *args: None)
    check_env(jaxenvs.make(id))


@pytest.mark.parametrize("id", IDS)
def test_registry_entries_are_complete(id):
    spec, env = jaxenvs.registry[id], jaxenvs.make(id)
    assert spec.source and spec.compared_with and spec.family != "user"
    assert env.time_limit == spec.time_limit
    parameters = describe_parameters(env.unwrapped)
    assert parameters and [name for name, _, comment, _ in parameters if not comment] == []
