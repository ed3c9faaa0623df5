"""Checks that apply to every registered environment."""

import pytest

import jaxenvs
from jaxenvs.testing import check_env
from tests.ids import IDS, one_id_per_class


def ids():
    """Returns all ids; those whose class has another one are slow, for they differ by numbers."""
    quick = one_id_per_class()
    return [pytest.param(id, marks=[] if id in quick else [pytest.mark.slow]) for id in IDS]


@pytest.mark.parametrize("id", ids())
def test_registered_environments_pass_check_env(id):
    check_env(jaxenvs.make(id))


@pytest.mark.parametrize("id", IDS)
def test_registry_entries_are_complete(id):
    spec = jaxenvs.registry[id]
    assert spec.source and spec.compared_with and spec.family != "user"
    assert jaxenvs.make(id).time_limit == spec.time_limit
