"""What holds for every environment, asserted over the registry."""

import pytest

import jaxenvs
from jaxenvs.testing import check_env

IDS = sorted(jaxenvs.registry)


@pytest.mark.parametrize("id", IDS)
def test_every_registered_environment_keeps_the_contract(id):
    check_env(jaxenvs.make(id))


@pytest.mark.parametrize("id", IDS)
def test_every_id_says_where_it_comes_from(id):
    spec = jaxenvs.registry[id]
    assert spec.source and spec.proven_against and spec.family != "user"
    assert jaxenvs.make(id).time_limit == spec.time_limit
