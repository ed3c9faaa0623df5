"""Certificates are made again when the rules that they certify change."""

import json

import pytest

import jaxenvs
from benchmarks import _sources, certify

# Ids whose sources have changed since their certificate was made, to be certified again.
TO_BE_REMADE = certify.CERTIFICATES / "to_be_remade.txt"


def stale_ids():
    paths = {id: certify.path_of(id) for id in jaxenvs.registry}
    return {
        id
        for id, path in paths.items()
        if path.exists() and json.loads(path.read_text())["sources"] != certify.sources_digest(id)
    }


def test_certificates_have_the_digest_of_the_current_sources():
    stale, listed = stale_ids(), {*TO_BE_REMADE.read_text().split()}
    assert not stale - listed, "Run `python -m benchmarks.certify ID` for each of these ids."
    assert not listed - stale, f"These ids were certified again; remove them from {TO_BE_REMADE}."


MODULES = {
    "jaxenvs/envs/a.py": 'from jaxenvs.envs import b\n\n"""Text."""\nX = b.Y + 1  # a comment\n',
    "jaxenvs/envs/b.py": "Y = 1\n",
    "jaxenvs/envs/c.py": "Z = 1\n",
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
