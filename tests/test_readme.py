"""What the front pages say, done."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_snippets_run_in_order(run_snippets, page):
    run_snippets(ROOT / page)


def test_the_readme_has_snippets_to_run():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.count("```python") >= 3 and "```console\n$ jaxenvs" in text


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    pages = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / ".ci" / "run")
    command = re.compile(r"(?:^|`|=\S+ )make ([a-z-]+)", re.MULTILINE)
    named = {name for page in pages for name in command.findall(page.read_text(encoding="utf-8"))}
    for path in (ROOT / ".github" / "workflows").glob("*.yml"):
        jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
        for job in jobs.values():
            makes = [
                step["run"] for step in job["steps"] if step.get("run", "").startswith("make ")
            ]
            named |= {text.split()[1] for text in makes if "${{" not in text}
            if any("matrix.target" in text for text in makes):
                named |= {*job["strategy"]["matrix"]["target"]}
    assert {"demo", "test", "test-nightly"} <= named <= targets


def test_every_extra_that_is_named_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("jaxenvs/**/*.py")]
    named = {
        name
        for page in pages
        for group in re.findall(r"jaxenvs\[([a-z0-9,]+)\]", page.read_text(encoding="utf-8"))
        for name in group.split(",")
    }
    assert named and named <= set(extras)


def test_the_changelog_begins_with_what_is_not_released():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[0] == "Unreleased"
