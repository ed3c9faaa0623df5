import json
import re
import tomllib
from pathlib import Path

import jax
import pytest

from jaxenvs._machine import cpu_limit
from jaxenvs.bridge.native import libraries as _native
from jaxenvs.cli import doctor, main
from jaxenvs.errors import missing_extra

METADATA = """\
Metadata-Version: 2.4
Name: {name}
Version: {version}
"""


@pytest.fixture(autouse=True)
def _nothing_is_remembered():
    _native.forget()
    yield
    _native.forget()


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs metadata alone: `installed("name", "1.0", "a; extra == 'b'", ...)`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, version, *requirements):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        lines = [METADATA.format(name=name, version=version)]
        lines += [f"Provides-Extra: {extra}\n" for extra in extras_of(requirements)]
        lines += [f"Requires-Dist: {requirement}\n" for requirement in requirements]
        (folder / "METADATA").write_text("".join(lines))

    def extras_of(requirements):
        return sorted({found for line in requirements for found in re.findall("'(.*)'", line)})

    return install


@pytest.fixture
def package(installed):
    installed(
        "jaxenvs",
        "0.1.0",
        "jax>=0.9.0",
        "wheelhouse>=2; extra == 'carts'",
        "jaxenvs[carts,poles]; extra == 'all'",
        "polemaker[long]>=1.5,<2; extra == 'poles'",
        "cuckoo>=3; extra == 'birds'",
        "linter>=1; extra == 'dev'",
    )
    installed("wheelhouse", "2.0.1")
    installed("polemaker", "1.10", "lengthener>=0.5; extra == 'long'", "shortener; extra == 'cut'")
    installed("lengthener", "0.4")


def run(capsys, *arguments):
    status = main(["doctor", *arguments])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_doctor_shows_versions_devices_limits_and_native_parts(capsys):
    status, out, _ = run(capsys)
    assert status == 0
    assert re.search(rf"jax +{re.escape(jax.__version__)}", out)
    assert f"{len(jax.devices())} x cpu" in out and "GiB available" in out
    assert re.search(r"pool +in use", out)


def test_doctor_begins_with_what_works(capsys, package):
    out = run(capsys)[1]
    assert out.startswith("What works")
    works = out.partition("Versions")[0]
    assert re.search(rf"environments +jax {re.escape(jax.__version__)} on \d+ x cpu", works)
    assert re.search(r"host bridge +the compiled parts pool and xla", works)
    assert re.search(r"extras +carts *\n", works)
    assert "birds" not in works and "poles" not in works


def test_doctor_json_reports_machine_native_parts_and_extras(capsys, package):
    status, out, _ = run(capsys, "--json")
    report = json.loads(out)
    assert set(report) == {
        *("versions", "devices", "cores", "memory", "native", "extras", "environment")
    }
    assert status == 0 and report["versions"]["jax"] == jax.__version__
    assert sum(report["devices"]["found"].values()) == len(jax.devices())
    assert report["cores"]["machine"] >= 1 and report["memory"]["available"] > 0
    assert set(report["native"]) == {"pool", "xla"}
    assert report["extras"]["carts"] == [
        {"package": "wheelhouse", "needed": ">=2", "version": "2.0.1", "state": "present"}
    ]


def test_extras_for_developers_are_shown_only_if_named(capsys, package):
    assert '"dev"' not in run(capsys, "--json")[1]
    status, out, _ = run(capsys, "dev", "--json")
    assert status == 2 and json.loads(out)["extras"]["dev"][0]["package"] == "linter"
    with (Path(__file__).parents[2] / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    assert set(doctor._DEVELOPERS) <= set(extras)


def test_a_native_part_that_is_missing_says_why_and_what_is_lost(capsys, monkeypatch):
    monkeypatch.setenv(_native.DISABLE, "1")
    status, out, _ = run(capsys)
    assert status == 0 and f"{_native.DISABLE} is set" in out and "Python callback" in out
    status, _, err = run(capsys, "native")
    assert status == 2 and f"the native part pool is missing: {_native.DISABLE} is set" in err


def test_extras_are_shown_with_packages_of_the_extras_they_name(capsys, package):
    status, out, _ = run(capsys)
    assert status == 0
    assert re.search(r"carts +installed +wheelhouse 2\.0\.1", out)
    assert re.search(r"poles +1 of 2 +lengthener>=0\.5 too old, polemaker 1\.10", out)
    assert re.search(r"all +2 of 3 +lengthener\S+ too old, polemaker 1\.10, wheelhouse", out)
    assert re.search(r"birds +0 of 1 +cuckoo>=3 missing", out) and "shortener" not in out


@pytest.mark.parametrize(
    ("version", "needed", "state"),
    [
        (None, ">=1", "missing"),
        ("1.9", ">=1.10", "too old"),
        ("1.10", ">=1.9", "present"),
        ("2.0.0", "<2", "too new"),
        ("2", ">=2.0", "present"),
        ("1.2.3", "<=1.2", "too new"),
        ("1.2", "<=1.2.0", "present"),
        ("3.0rc1", ">=2.5,<4", "present"),
        ("2025.1", "", "present"),
    ],
)
def test_versions_are_compared_number_by_number(version, needed, state):
    assert doctor._version_state(version, needed) == state


@pytest.mark.parametrize(
    ("needed", "word"),
    [
        ("birds", "the extra birds needs cuckoo>=3, which is missing.  Install it with `pip inst"),
        ("all", "lengthener>=0.5, which is too old"),
        ("brids", 'Close: "birds"'),
    ],
)
def test_named_extra_that_is_missing_exits_with_2(capsys, package, needed, word):
    status, _, err = run(capsys, needed)
    assert status == 2 and word in err
    assert run(capsys, "carts")[0] == 0


def test_a_jax_that_does_not_start_is_told_below_the_rest(capsys, monkeypatch):
    def fails():
        raise RuntimeError("Unable to initialize backend 'cuda'")

    monkeypatch.setattr("jax.devices", fails)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    status, out, err = run(capsys)
    assert status == 2 and "JAX_PLATFORMS" in out and "Unable to initialize" in out
    assert "JAX does not start with JAX_PLATFORMS=cuda: RuntimeError: Unable" in err


@pytest.mark.parametrize(("there", "extra"), [("gpu", "cuda"), ("tpu", "tpu")])
def test_an_accelerator_that_jax_does_not_see_is_an_error(capsys, monkeypatch, there, extra):
    monkeypatch.setattr(doctor, "accelerator", lambda: there)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    status, _, err = run(capsys)
    assert status == 2 and f"has a {there.upper()}" in err and f"jaxenvs[{extra}]" in err
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # which the user asked for
    assert run(capsys)[0] == 0


def test_doctor_works_without_rich(capsys, monkeypatch):
    def console():
        raise missing_extra("The command line", "rich", "cli")

    monkeypatch.setattr(doctor, "console", console)
    status, out, _ = run(capsys)
    assert status == 0 and re.search(rf"^  jax +{re.escape(jax.__version__)}$", out, re.MULTILINE)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"cpu.max": "max 100000", "a/cpu.max": "max 100000"}, None),
        ({"a/cpu.max": "150000 100000", "a/b/cpu.max": "max 100000"}, 1.5),
        ({"cpu.max": "50000 100000", "a/b/cpu.max": "200000 100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3.0),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
    ],
)
def test_cpu_limit_is_the_tightest_of_a_group_and_its_parents(tmp_path, files, limit):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own").write_text("1:name=systemd:/x\n0::/a/b\n")
    assert cpu_limit(str(tmp_path), str(tmp_path / "own")) == limit
