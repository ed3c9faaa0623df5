import importlib
import sys

import pytest

import jaxenvs
from jaxenvs.errors import MissingExtraError


def test_missing_torch_raises_an_error_that_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r"jaxenvs\[torch\]"):
        jaxenvs.make_gym("CartPole-v1", 2, output="torch")


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("faces.minari", "minari", "minari"),
        ("faces.stable_baselines3", "stable_baselines3", "sb3"),
        ("faces.tianshou", "tianshou", "tianshou"),
        ("faces.stoa", "stoa", "stoa"),
        ("suites.stoa", "stoa", "stoa"),
        ("faces.envelope", "envelope", "envelope"),
        ("suites.envelope", "envelope", "envelope"),
    ],
)
def test_a_missing_library_raises_an_error_that_names_the_extra(
    monkeypatch, module, package, extra
):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"jaxenvs.{module}", raising=False)
    with pytest.raises(MissingExtraError, match=rf"jaxenvs\[{extra}\]"):
        importlib.import_module(f"jaxenvs.{module}")
