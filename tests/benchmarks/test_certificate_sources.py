"""Certificates are made again when the rules that they certify change."""

import pytest

from benchmarks import _sources, certify, same


@pytest.mark.parametrize("engine", ["c", "mjx"])
def test_certificates_have_the_digest_of_the_current_sources(engine):
    ids = [id for id in certify.certified_ids() if certify.path_of(id, engine).exists()]
    stale = [id for id in ids if certify.is_stale(id, engine)]
    assert not stale, "Run `python -m benchmarks.certify --stale`."


MODULES = {
    "jaxenvs/envs/a.py": 'from jaxenvs.envs import b\n\n"""Text."""\nX = b.Y + 1  # a comment\n',
    "jaxenvs/envs/b.py": "Y = 1\n",
    "jaxenvs/envs/c.py": "Z = 1\n",
    "jaxenvs/physics/mjx.py": "from jaxenvs.physics.mjx_d import W\n",
    "jaxenvs/physics/mjx_d.py": "W = 1\n",
}


@pytest.mark.parametrize(
    ("path", "old", "new", "is_same"),
    [
        ("a", "# a comment", "# another", True),
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


def test_same_compares_with_the_sources_of_a_commit(tmp_path, monkeypatch):
    commit, id = same.git("rev-parse", "HEAD").decode().strip(), "CliffWalking-v1"
    with same.sources_of(commit) as folder:
        ((found, digest),) = same.play_at(folder, [id])
        assert (found, digest) == (id, same.play(id))
        assert same.problem(id, folder, "another digest") == "DIFFERENT"
        other = tmp_path / "certificate.json"
        other.write_text('{"sources": "of another commit"}')
        monkeypatch.setattr(certify, "path_of", lambda id: other)
        assert "was not made with the sources of" in same.problem(id, folder, digest)
        with pytest.raises(SystemExit, match="ended with"):
            list(same.play_at(folder, ["NoSuchId-v0"]))
