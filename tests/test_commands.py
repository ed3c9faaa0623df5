"""Commands and files that the Makefile, workflows, pages, and comments name are there."""

import re
from pathlib import Path

import pytest
import yaml

from tests import release

ROOT = Path(__file__).resolve().parent.parent
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCRIPTS = [ROOT / "Makefile", ROOT / "pyproject.toml", ROOT / "hatch_build.py", *WORKFLOWS]


def commands_of_workflows():
    """The commands, once for each value of `matrix.target`."""
    for path in WORKFLOWS:
        for job in yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values():
            targets = job.get("strategy", {}).get("matrix", {}).get("target", [""])
            for step in job["steps"]:
                for target in targets if "run" in step else ():
                    yield step["run"].replace("${{ matrix.target }}", target)


def test_make_targets_that_are_named_exist():
    command = re.compile(r"(?:^|`|=\S+ )make ([a-z-]+)", re.MULTILINE)
    texts = [path.read_text(encoding="utf-8") for path in [*PAGES, ROOT / ".ci" / "run"]]
    named = {name for text in [*texts, *commands_of_workflows()] for name in command.findall(text)}
    targets = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert {"demo", "test", "test-nightly", "release-check"} <= named <= targets


def test_modules_that_are_run_exist():
    command = re.compile(r"python -m ((?:benchmarks|jaxenvs|tests)[\w.]*)")
    named = {name for path in SCRIPTS + PAGES for name in command.findall(path.read_text("utf-8"))}
    assert len(named) > 10
    for name in named:
        file = ROOT / name.replace(".", "/")
        assert file.with_suffix(".py").exists() or (file / "__main__.py").exists(), name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_files_that_are_named_exist(path):
    file = re.compile(r"(?<![\w/])(?:benchmarks|docs|jaxenvs|tests)/[\w/]+\.(?:py|md|c|cc)\b")
    for name in file.findall(path.read_text("utf-8")):
        assert (ROOT / name).exists(), name


def test_release_workflow_passes_arguments_that_the_script_takes():
    script = "python tests/release.py "
    commands = [line for line in commands_of_workflows() if line.startswith(script)]
    for line in commands:
        arguments = re.sub(r"\$\{\{.*?\}\}", "v0", line.removeprefix(script)).split()
        assert release.parser().parse_args(arguments).command == arguments[0]
    assert len(commands) == 3


def test_release_of_another_version_is_refused(capsys):
    assert release.main(["version", "v0.0.0"]) == 1
    assert f"the tag is v0.0.0, but jaxenvs/__init__.py has version {release.version()}" in (
        capsys.readouterr().out
    )
