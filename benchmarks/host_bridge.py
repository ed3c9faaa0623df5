"""Compares pools of environments that are not written in JAX with the pools of other libraries.

    python -m benchmarks.host_bridge --output auto    # everything, about a quarter hour
    python -m benchmarks.host_bridge --only cartpole,waiting
    python -m benchmarks.host_bridge --only in_jit --keep benchmarks/results/NAME.json \
        --output auto                                            # keeps the file's other parts
    python -m benchmarks.host_bridge --quick                     # a trial

Each part runs in its own process, unaffected by the threads of the others, and measures its
contestants in turn. README.md describes how the comparisons are kept fair.
"""

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import _common

# Names for `--only`: a module of benchmarks.host, and flags for XLA.
PARTS = {
    "cartpole": ("cartpole", ""),
    "auto": ("auto", ""),
    "efficiency": ("efficiency", ""),
    "atari": ("atari", ""),
    "in_jit": ("in_jit", ""),
    # By default, XLA's CPU client gives independent work to a second thread, which occupies a core.
    "in_jit_one_thread": (
        "in_jit",
        "--xla_cpu_enable_concurrency_optimized_scheduler=false",
    ),
    "partial": ("partial", ""),
    "waiting": ("waiting", ""),
    "overlap": ("overlap", ""),
    "growth": ("growth", ""),
}
REPEATS, QUICK_REPEATS = 11, 3
MIN_SECONDS, QUICK_MIN_SECONDS = 0.1, 0.01
PART_TIMEOUT = 900.0


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    options = _parse(arguments)
    if options.child:
        _measure_one(options)
    else:
        _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures everything that `options` select; returns the report that is written as JSON."""
    from benchmarks.host.peers import VERSIONS

    report = _common.new_report("host_bridge", arguments, VERSIONS, options.repeats)
    report |= {"measurements": [], "figures": [], "notes": [], "seconds": {}}
    earlier = _common.earlier_report(options.keep, report)
    for part in PARTS:
        if part in options.only:
            found = _measure_in_process(part, options)
        elif part in earlier.get("seconds", {}):
            found = _kept(part, earlier)
        else:
            continue
        for kind in ("measurements", "figures", "notes"):
            report[kind] += found[kind]
        report["seconds"][part] = found["seconds"]
    report["XLA_FLAGS"] = {part: flags for part in report["seconds"] if (flags := PARTS[part][1])}
    return report


def _kept(part: str, earlier: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        kind: [entry for entry in earlier[kind] if entry["part"] == part]
        for kind in ("measurements", "figures")
    }
    found["notes"] = [note for note in earlier["notes"] if note.startswith(f"{part}: ")]
    return found | {"seconds": earlier["seconds"][part]}


def _measure_in_process(part: str, options: argparse.Namespace) -> dict[str, Any]:
    root = Path(__file__).parents[1]
    _, flags = PARTS[part]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")])),
        "XLA_FLAGS": f"{os.environ.get('XLA_FLAGS', '')} {flags}".strip(),
        "PYTHONWARNINGS": "ignore",  # warnings of the measured libraries
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "found.json"
        command = [
            *(sys.executable, "-m", "benchmarks.host_bridge", "--child", str(path)),
            *("--only", part, "--repeats", str(options.repeats)),
            *("--min-seconds", str(options.min_seconds)),
            *(["--quick"] if options.quick else []),
            *(["--quiet"] if options.quiet else []),
        ]
        begin = time.perf_counter()
        try:
            finished = subprocess.run(
                command, cwd=root, env=environment, timeout=PART_TIMEOUT, check=False
            )
            why = f"it ended with status {finished.returncode}"
        except subprocess.TimeoutExpired:
            why = f"it took more than {PART_TIMEOUT:g} s"
        found = {"measurements": [], "figures": [], "notes": []}
        if path.exists():
            found = json.loads(path.read_text())
        else:
            found["notes"] = [f"{part}: failed, {why}"]
            print(f"note: {found['notes'][0]}", file=sys.stderr, flush=True)
        return found | {"seconds": round(time.perf_counter() - begin, 1)}


def _measure_one(options: argparse.Namespace) -> None:
    """Measures one part in this process and writes the results to `options.child`."""
    from benchmarks.host.record import Record

    (part,) = options.only
    module, _ = PARTS[part]
    record = Record(part, options.repeats, options.min_seconds, options.quick, options.quiet)
    try:
        importlib.import_module(f"benchmarks.host.{module}").measure(record)
    except Exception as error:
        traceback.print_exc()
        record.note(f"failed: {type(error).__name__}: {error}".splitlines()[0])
    Path(options.child).write_text(json.dumps(record.as_dict()))


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown: figures and their requirements, then all measurements."""
    from benchmarks.host.record import Figure

    figures = []
    for figure in (Figure(**entry) for entry in report["figures"]):
        required = verdict = ""
        if figure.required is not None:
            required = f"{'≥' if figure.at_least else '≤'} {figure.required:g}"
            verdict = "reached" if (figure.margin or 0) >= 1 else "**missed**"
        case = figure.part, figure.case, figure.name
        figures.append([*case, _common.spread(figure.values, ".3g"), required, verdict])
    measurements = (
        [
            *(entry[name] for name in ("part", "case", "contestant")),
            _common.spread(entry["micros"], ",.4g"),
        ]
        for entry in report["measurements"]
    )
    lines = [
        *(_common.headline(report, "the host bridge"), ""),
        *_common.markdown(("part", "case", "figure", "", "required", ""), figures),
        "",
        *_common.markdown(("part", "case", "contestant", "µs per call"), measurements),
    ]
    if report["notes"]:
        lines += ["", *(f"- {note}" for note in report["notes"])]
    return "\n".join(lines)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _common.new_parser("host_bridge", __doc__)
    add = parser.add_argument
    names = list(PARTS)
    add("--only", type=_common.choices(names), default=names, help=f"some of {', '.join(names)}")
    add("--keep", help="JSON file whose other parts are kept")
    add("--repeats", type=int, help=f"number of repetitions (default {REPEATS})")
    add("--min-seconds", type=float, help=f"minimum duration of a sample (default {MIN_SECONDS})")
    add("--quick", action="store_true", help="few cases and repetitions, to check that all runs")
    add("--child", help=argparse.SUPPRESS)  # output file of a process that measures one part
    options = parser.parse_args(arguments)
    if options.repeats is None:
        options.repeats = QUICK_REPEATS if options.quick else REPEATS
    if options.min_seconds is None:
        options.min_seconds = QUICK_MIN_SECONDS if options.quick else MIN_SECONDS
    return options


if __name__ == "__main__":
    main()
