"""The documentation does what it says, and the docstrings' examples too."""

import doctest
import importlib
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxenvs
from jaxenvs.errors import MissingExtraError
from tests.conftest import SNIPPET

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WITH_EXAMPLES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in sorted((ROOT / "jaxenvs").rglob("*.py"))
    if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
]
PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in DOCS.rglob("*.md")
    if "```" in path.read_text(encoding="utf-8")
)
SLOW_PAGES = (
    *("bridge/recipes.md", "training.md", "training/own_parts.md", "training/schemes.md"),
    *("training/statistics.md", "training/sweeps.md"),
    *("extending/check_env.md", "extending/minigrid_level.md", "extending/rendering.md"),
    *("tutorials/action_masks.md", "tutorials/behavior_cloning.md", "tutorials/curriculum.md"),
    *("tutorials/custom_network.md", "tutorials/export.md", "tutorials/offline_data.md"),
    *("tutorials/population.md", "tutorials/save_and_load.md", "tutorials/seeding.md"),
    *("usage/atari.md", "usage/box2d.md", "usage/bsuite.md", "usage/command_line.md"),
    *("usage/coming_from_stable_baselines3.md", "usage/gpu.md", "usage/levels.md"),
    *("usage/mujoco.md", "usage/trials.md"),
    *("usage/multi_agent.md", "usage/other_libraries.md", "usage/rollouts.md", "usage/wrappers.md"),
)


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] if page in SLOW_PAGES else []) for page in PAGES],
)
def test_the_snippets_of_a_page_run_in_order(run_snippets, page):
    run_snippets(DOCS / page)


def test_snippets_use_no_undefined_names(tmp_path):
    """Also of the pages that run in other environments only."""
    for page in DOCS.rglob("*.md"):
        snippets = SNIPPET.finditer(page.read_text(encoding="utf-8"))
        code = [textwrap.dedent(fence[3]) for fence in snippets if fence[2] == "python"]
        name = str(page.relative_to(DOCS)).replace("/", ".")
        (tmp_path / name).with_suffix(".py").write_text("\n".join(code), encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", "--quiet"]
    found = subprocess.run([*ruff, str(tmp_path)], capture_output=True, text=True, check=False)
    assert not found.returncode, found.stdout


@pytest.fixture(scope="module")
def names():
    """What an example may use without importing it."""
    training = importlib.import_module("jaxenvs.training")
    classic_control = importlib.import_module("jaxenvs.envs.classic_control")
    modules = (training, classic_control, jaxenvs.spaces, jaxenvs)
    public = {name: getattr(module, name) for module in modules for name in dir(module)}
    return {
        "jax": jax,
        "jnp": jnp,
        "jaxenvs": jaxenvs,
        **{name: value for name, value in public.items() if not name.startswith("_")},
    }


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_the_examples_of_a_module_are_true(module, names, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    try:
        imported = importlib.import_module(module)
    except MissingExtraError as error:
        pytest.skip(str(error))
    tests = doctest.DocTestFinder(exclude_empty=True).find(imported, extraglobs=names)
    assert any(test.examples for test in tests)
    runner = doctest.DocTestRunner(
        optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.FAIL_FAST
    )
    for test in tests:
        report: list[str] = []
        runner.run(test, out=report.append)
        assert not runner.failures, "".join(report)


@pytest.mark.parametrize(
    "folder",
    [".", "usage", "tutorials", "training", "bridge", "concepts", "extending", "suites", "api"],
)
def test_every_page_is_in_the_navigation(folder):
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(page.relative_to(DOCS)) for page in (DOCS / folder).glob("*.md")]
    assert pages and all(f"- {page}\n" in navigation for page in pages)


def test_the_tables_of_figures_are_up_to_date():
    from benchmarks import tables

    for page, text in tables.texts().items():
        assert page.read_text(encoding="utf-8") == text, "Run `python -m benchmarks.tables`."


def test_the_links_between_files_lead_somewhere():
    """On GitHub too, where there are no pages but those that are in the repository.

    Links of the README are absolute, because package indexes show it, too.
    """
    ours = re.compile(
        r"https://(?:raw\.githubusercontent|github)\.com/jaxenvs/jaxenvs/(?:blob/)?main/"
    )
    for page in [*DOCS.rglob("*.md"), *ROOT.glob("*.md")]:
        text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            target, is_absolute = ours.subn("", link.partition("#")[0])
            assert is_absolute or page.name != "README.md" or "://" in link, f"{page}: {link}"
            if target and not re.match(r"\w+:", target):
                assert ((ROOT if is_absolute else page.parent) / target).exists(), f"{page}: {link}"
