import dataclasses

import pytest

from jaxenvs.errors import ParameterError, RegistrationError, UnknownEnvironmentError
from jaxenvs.registry import EnvSpec, find, register, registry
from jaxenvs.testing import CountingEnv

pytestmark = pytest.mark.usefixtures("own_registry")


def test_an_entry_holds_what_it_was_given():
    spec = register(
        "Count-v0",
        CountingEnv,
        family="dummy",
        time_limit=7,
        reward_threshold=3.0,
        source="here",
        compared_with="fingers",
        kwargs={"has_key": True},
    )
    assert find("Count-v0") is spec is registry["Count-v0"]
    assert spec == EnvSpec(
        "Count-v0", CountingEnv, "dummy", 7, 3.0, "here", "fingers", {"has_key": True}
    )


def test_defaults_are_a_user_entry_without_limit():
    spec = register("Count-v0", "somewhere:CountingEnv")
    assert (spec.family, spec.time_limit, spec.reward_threshold) == ("user", None, None)
    assert spec.kwargs == {}


def test_entries_are_frozen_and_do_not_share_the_callers_dict():
    kwargs = {"has_key": True}
    spec = register("Count-v0", CountingEnv, kwargs=kwargs)
    kwargs["keyed"] = False
    assert spec.kwargs == {"has_key": True}
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.time_limit = 3


def test_a_taken_id_is_replaced_only_on_request():
    register("Count-v0", CountingEnv)
    with pytest.raises(
        RegistrationError, match=r'"Count-v0" is already registered.*overwrite=True'
    ):
        register("Count-v0", CountingEnv)
    assert register("Count-v0", CountingEnv, time_limit=3, overwrite=True).time_limit == 3
    assert find("Count-v0").time_limit == 3


@pytest.mark.parametrize("id", ["", "  ", 3, None])
def test_an_id_is_a_non_empty_string(id):
    with pytest.raises(RegistrationError, match="non-empty string"):
        register(id, CountingEnv)


@pytest.mark.parametrize("entry_point", ["nowhere", "a:b:c", ":CountingEnv", "module:"])
def test_an_entry_point_names_module_and_class(entry_point):
    with pytest.raises(RegistrationError, match='must be "module:Class"'):
        register("Count-v0", entry_point)
    assert "Count-v0" not in registry


def test_entry_point_that_is_not_callable_is_refused():
    with pytest.raises(RegistrationError, match=r"pass .* or a class"):
        register("Count-v0", 3)


@pytest.mark.parametrize("limit", [0, -5, 2.5, True, 2**31, "5"])
def test_a_time_limit_is_at_least_one_step(limit):
    with pytest.raises(ParameterError, match=f"time limit {limit!r}"):
        register("Count-v0", CountingEnv, time_limit=limit)


@pytest.mark.parametrize(
    ("asked", "close"), [("CartPol-v1", "CartPole-v1"), ("cartpole-v1", "CartPole-v1")]
)
def test_an_unknown_id_names_the_closest(asked, close):
    with pytest.raises(UnknownEnvironmentError, match=f'"{asked}".*Close: "{close}"'):
        find(asked)
    with pytest.raises(LookupError):  # the built-in that one would catch
        find(asked)


def test_unknown_id_without_a_close_match_names_the_list():
    with pytest.raises(UnknownEnvironmentError, match="jaxenvs list") as caught:
        find("qqqqqq")
    assert "Close" not in str(caught.value)
