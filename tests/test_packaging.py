"""What is packed is what is in the tree."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The names in the source distribution and in the wheel."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        env=os.environ | {"CC": "no-such-cc", "CXX": "no-such-cxx"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*-py3-none-any.whl")
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    with zipfile.ZipFile(wheel) as archive:
        return sources, set(archive.namelist())


def in_tree(package):
    files = (ROOT / package).rglob("*")
    return {
        str(file.relative_to(ROOT))
        for file in files
        # An editable install compiles libraries into the tree.
        if file.is_file() and "__pycache__" not in file.parts and file.suffix != ".so"
    }


def test_the_wheel_contains_the_package_and_nothing_else(built):
    _, wheel = built
    assert {name for name in wheel if ".dist-info/" not in name} == in_tree("jaxenvs")
    assert "jaxenvs/py.typed" in wheel and "jaxenvs/envs/__init__.py" in wheel


def test_source_distribution_contains_what_the_wheel_needs(built):
    sources, _ = built
    assert in_tree("jaxenvs") <= sources
    others = {name for name in sources if not name.startswith("jaxenvs")}
    assert others == {
        *("pyproject.toml", "hatch_build.py", ".gitignore", "PKG-INFO"),
        *("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "NOTICE", "README.md"),
    }
