"""Writes the tables of figures in the README and the documentation from `results/`.

    python -m benchmarks.tables

A page marks the place of a table with `<!-- table: NAME -->` and `<!-- end of table -->`. All pages
show results of the same machine and versions, so they cannot disagree; only those of GPUs and some
trainings on Box2D's and MuJoCo's tasks are from other machines.
"""

import re
from pathlib import Path

from benchmarks.tables import calls, overview, rollouts, simulators, training  # noqa: F401
from benchmarks.tables._cells import TABLES

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/benchmarks.md",
    "docs/bridge/figures.md",
    "docs/suites/index.md",
    "docs/training/results.md",
    "docs/usage/atari.md",
    "docs/usage/gpu.md",
    "docs/usage/mujoco.md",
    "docs/usage/multi_agent.md",
)


def main() -> None:
    """Writes the tables of every page."""
    for page, text in texts().items():
        page.write_text(text, encoding="utf-8")


def texts() -> dict[Path, str]:
    """Returns what each page should contain."""
    return {ROOT / page: fill((ROOT / page).read_text(encoding="utf-8")) for page in PAGES}


def fill(text: str) -> str:
    """Returns `text` with all marked tables replaced.

    Raises:
        KeyError: A marker has the name of a table that does not exist.
    """
    return re.sub(
        r"(?s)(<!-- table: (\w+) -->).*?(<!-- end of table -->)",
        lambda found: "\n".join([found[1], *TABLES[found[2]](), found[3]]),
        text,
    )
