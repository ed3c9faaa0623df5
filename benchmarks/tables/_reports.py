"""The reports that tables show."""

import functools
import json
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks._common import RESULTS

SETUP = "2core-amd-epyc-py312-jax0.12.0.1"
XEON = "2core-intel-xeon-py312-jax0.12.0.1"
GPU = "nvidia-h100-80gb-hbm3-py312-jax0.11.2"

Report = dict[str, Any]


@functools.cache
def load(benchmark: str, setup: str = SETUP) -> Report:
    """Returns the report of a benchmark that the pages show."""
    return json.loads((RESULTS / f"{benchmark}-{setup}.json").read_text(encoding="utf-8"))


def ids_of(report: Report) -> list[str]:
    """Returns the ids that were measured, in order."""
    return list(dict.fromkeys(entry["id"] for entry in report["measurements"]))


def measured(report: Report, *, missing_ok: bool = False, **wanted: Any) -> Any:
    """Returns the one measurement with these values."""
    found = [entry for entry in report["measurements"] if wanted.items() <= entry.items()]
    return None if missing_ok and not found else only(found)


def rival(report: Report, kind: str, **wanted: Any) -> Any:
    """Returns the ratio to the fastest contestant of a kind."""
    wanted["kind"] = kind
    return only(entry for entry in report["ratios"] if wanted.items() <= entry.items())


def figure(report: Report, case: str, start: str, **wanted: Any) -> Sequence[float]:
    """Returns the samples of the figure in `case` whose name starts with `start`."""
    wanted["case"] = case
    return only(
        entry["values"]
        for entry in report["figures"]
        if wanted.items() <= entry.items() and entry["name"].startswith(start)
    )


def only(entries: Iterable[Any]) -> Any:
    (entry,) = entries
    return entry


def version(report: Report, package: str) -> str:
    return report["machine"]["versions"][package]
