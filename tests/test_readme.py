"""What the front pages say, done."""

import re
import tomllib
from pathlib import Path

import pytest

from jaxenvs.errors import missing_extra

NAMED = re.compile(r"jaxenvs\[([a-z0-9,]+)\]|missing_extra\([^()]*\"(\w+)\"\)")
ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_snippets_run_in_order(run_snippets, page):
    run_snippets(ROOT / page)


def test_the_readme_has_snippets_to_run():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("```python") >= 3 and "```console\n$ jaxenvs" in text


def test_every_extra_that_is_named_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("jaxenvs/**/*.py")]
    named = {
        name
        for page in pages
        for found in NAMED.findall(page.read_text(encoding="utf-8"))
        for group in found
        if group
        for name in group.split(",")
    }
    assert len(named) > 15 and named <= set(extras)
    assert "jaxenvs[train]" in str(missing_extra("Training", "optax", "train"))
