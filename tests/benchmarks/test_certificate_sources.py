"""Certificates are made again when the rules that they certify change."""

import functools
import json

import pytest

import jaxenvs
from benchmarks import _certificates, _sources, certify, same


@pytest.mark.parametrize("engine", ["c", "mjx"])
def test_certificates_have_the_digest_of_the_current_sources(engine):
    ids = [id for id in certify.certified_ids() if _certificates.read(id, engine)]
    stale = [id for id in ids if certify.is_stale(id, engine)]
    assert not stale, "Run `python -m benchmarks.certify --stale`."


def test_every_native_id_has_a_certificate_or_a_reason():
    specs = jaxenvs.registry.values()
    native = [spec for spec in specs if str(spec.entry_point).startswith("jaxenvs.envs.")]
    without = [spec for spec in native if _certificates.read(spec.id) is None]
    assert [spec.id for spec in without if spec.family not in _certificates.WITHOUT] == []
    assert {spec.family for spec in without} == {*_certificates.WITHOUT}


def test_written_certificate_leaves_the_text_of_others(tmp_path):
    errors = {"FrozenLake-v1": 1e-07, "Taxi-v4": 0.0, "Blackjack-v1": 2.9802322387695312e-08}
    for id, error in errors.items():
        path = _certificates.write(id, {"largest_error": error}, folder=tmp_path)
    before = path.read_text()
    assert list(json.loads(before)) == sorted(errors)
    _certificates.write("FrozenLake-v1", {"largest_error": 0.5}, folder=tmp_path)
    assert path.read_text() == before.replace("1e-07", "0.5")
    assert _certificates.read("Taxi-v4", folder=tmp_path) == {"largest_error": 0.0}
    assert _certificates.read("Taxi-v4", "transfer", folder=tmp_path) is None
    assert [*tmp_path.iterdir()] == [path]


MODULES = {
    "jaxenvs/envs/a.py": 'from jaxenvs.envs import b\nimport c\n"""Text."""\nX = b.Y + 1  # old\n',
    "jaxenvs/envs/b.py": "Y = 1\n",
    "jaxenvs/envs/c.py": "Z = 1\n",
    "jaxenvs/physics/mjx.py": "from jaxenvs.physics.mjx_d import W\n",
    "jaxenvs/physics/mjx_d.py": "W = 1\n",
}


@pytest.mark.parametrize(
    ("path", "old", "new", "is_same"),
    [
        ("a", "# old", "# new", True),
        ("a", "import c", "from d import c", True),  # it moved
        ("a", "+ 1", "+  1", True),
        ("c", "1", "2", True),  # not imported by a
        ("a", "+ 1", "+ 2", False),
        ("b", "1", "2", False),
    ],
)
def test_digest_changes_with_the_code_of_imported_modules(path, old, new, is_same):
    path = f"jaxenvs/envs/{path}.py"
    changed = MODULES | {path: MODULES[path].replace(old, new)}
    assert changed != MODULES
    before, after = (_sources.digest("jaxenvs.envs.a", m.get) for m in (MODULES, changed))
    assert (before == after) == is_same


def test_digest_of_a_certificate_of_mjx_covers_the_engine():
    changed = MODULES | {"jaxenvs/physics/mjx_d.py": "W = 2\n"}
    for engine, is_same in (("c", True), ("mjx", False)):
        before, after = (
            _sources.digest("jaxenvs.envs.a", m.get, engine=engine) for m in (MODULES, changed)
        )
        assert (before == after) == is_same


def test_same_compares_with_the_sources_of_a_commit(monkeypatch):
    monkeypatch.setattr(same, "play", functools.cache(same.play))
    commit, id = same.git("rev-parse", "HEAD").decode().strip(), "CliffWalking-v1"
    with same.sources_of(commit) as folder:
        played = same.play_at(folder, [id, "NoSuchId-v0"])
        found, digest = next(played)
        assert (found, digest) == (id, same.play(id))
        with pytest.raises(SystemExit, match="ended with"):
            next(played)
        assert same.problem(id, folder, "another digest") == "DIFFERENT"
        monkeypatch.setattr(_certificates, "read", lambda id: {"sources": "of another commit"})
        assert "was not made with the sources of" in same.problem(id, folder, digest)
