"""Checks that apply to every registered environment."""

import pytest

import jaxenvs
from jaxenvs.testing import check_env
from tests.ids import IDS, case, level_ids, one_id_per_class, one_level_per_class, physics_ids


def ids():
    """Returns all ids, of levels and physics only some; all but one for each class are slow."""
    quick, many = one_id_per_class(), {*level_ids(), *physics_ids()}
    chosen = {*quick, *one_level_per_class()[::4], *(id for id in IDS if id not in many)}
    return [case(id, is_quick=id in quick) for id in sorted(chosen)]


@pytest.mark.parametrize("id", ids())
def test_registered_environments_pass_check_env(id):
    check_env(jaxenvs.make(id))


@pytest.mark.parametrize("id", IDS)
def test_registry_entries_are_complete(id):
    spec = jaxenvs.registry[id]
    assert spec.source and spec.compared_with and spec.family != "user"
    assert jaxenvs.make(id).time_limit == spec.time_limit
