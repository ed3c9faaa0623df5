"""Checks that apply to every registered environment."""

import pytest

import jaxenvs
from jaxenvs.testing import check_env

IDS = sorted(jaxenvs.registry)


@pytest.mark.parametrize("id", IDS)
def test_registered_environments_pass_check_env(id):
    check_env(jaxenvs.make(id))


@pytest.mark.parametrize("id", IDS)
def test_registry_entries_are_complete(id):
    spec = jaxenvs.registry[id]
    assert spec.source and spec.compared_with and spec.family != "user"
    assert jaxenvs.make(id).time_limit == spec.time_limit
