"""Shared parts of the benchmarks: sampling in turn, machine information, reports, and options."""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).with_name("results")
IDS = ("CartPole-v1", "Pendulum-v1", "Acrobot-v1", "MountainCar-v0", "MountainCarContinuous-v0")
OURS = "jaxenvs"


class Sampler:
    """Times one contestant: `run(calls)` does the work `calls` times and returns the seconds."""

    def __init__(self, run: Callable[[int], float]) -> None:
        self.calls = 1  # per sample
        self.seconds: list[float] = []  # one per sample
        self._run = run

    def warm_up(self, min_seconds: float) -> None:
        """Chooses a number of calls that takes at least `min_seconds`."""
        self._run(1)
        seconds = self._run(1)
        while seconds < min_seconds:
            self.calls *= max(2, min(64, int(1.2 * min_seconds / max(seconds, 1e-6))))
            seconds = self._run(self.calls)

    def sample(self) -> None:
        self.seconds.append(self._run(self.calls))


def alternate(samplers: Sequence[Sampler], repeats: int, min_seconds: float) -> None:
    """Takes `repeats` samples of each sampler, in turn and in rotating order."""
    for sampler in samplers:
        sampler.warm_up(min_seconds)
    for repeat in range(repeats):
        for sampler in rotated(samplers, repeat):
            sampler.sample()


def speeds(
    contestants: Sequence[tuple[Callable[[int], float], int]], repeats: int, min_seconds: float
) -> list[list[float]]:
    """Returns the steps per second in each sample of contestants, which run in turn.

    Each is a function for `Sampler`, and how many steps a call of the work takes.
    """
    samplers = [Sampler(run) for run, _ in contestants]
    alternate(samplers, repeats, min_seconds)
    return [
        [sampler.calls * steps / taken for taken in sampler.seconds]
        for sampler, (_, steps) in zip(samplers, contestants, strict=True)
    ]


@contextlib.contextmanager
def burning(count: int) -> Iterator[None]:
    """Runs other processes that keep a core busy each."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def stepping(step: Callable[[Any], Any], space: Any, num_envs: int) -> Callable[[int], float]:
    """Returns a function for `Sampler` that steps instances with random actions of a space."""
    actions, calls_so_far = random_actions(space, (64, num_envs)), 0

    def run(calls: int) -> float:
        nonlocal calls_so_far
        start = time.perf_counter()
        for _ in range(calls):
            step(actions[calls_so_far % len(actions)])
            calls_so_far += 1
        return time.perf_counter() - start

    return run


def random_actions(space: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Returns actions of one instance's space, Discrete or a Box: [*shape, ...]."""
    random = np.random.default_rng(0)
    if hasattr(space, "n"):
        return random.integers(int(space.n), size=shape).astype(space.dtype)
    low, high = np.asarray(space.low), np.asarray(space.high)
    return random.uniform(low, high, (*shape, *low.shape)).astype(low.dtype)


def rotated(contestants: Iterable[Any], turn: int) -> list[Any]:
    """Returns the contestants in the order of this turn: each one is first in its own turn."""
    contestants = list(contestants)
    shift = turn % len(contestants)
    return contestants[shift:] + contestants[:shift]


def new_report(
    benchmark: str, arguments: Sequence[str] | None, packages: Sequence[str], repeats: int
) -> dict[str, Any]:
    """Returns a report with the command, date, machine, and number of repetitions."""
    words = sys.argv[1:] if arguments is None else arguments
    return {
        "benchmark": benchmark,
        "command": shlex.join(["python", "-m", f"benchmarks.{benchmark}", *words]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": machine(packages),
        "repeats": repeats,
    }


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """Returns the hardware and the versions."""
    import jax  # here, so that the peers' worker processes start without it

    device = jax.devices()[0]
    names = ("jaxenvs", "jax", "jaxlib", "numpy", *packages)
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "os": platform.platform(),
        "python": platform.python_version(),
        "device": device.device_kind,
        "platform": device.platform,
        "versions": {name: found for name in names if (found := version(name))},
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
    }


def kept(path: str | None, report: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the measurements of an earlier report, see `earlier_report`."""
    return earlier_report(path, report).get("measurements", [])


def earlier_report(path: str | None, report: dict[str, Any]) -> dict[str, Any]:
    """Returns a report of the same machine and versions; an empty one without a path.

    Raises:
        SystemExit: it is from another machine or other versions.
    """
    if path is None:
        return {}
    earlier = json.loads(Path(path).read_text())
    if slug(earlier) != slug(report):
        raise SystemExit(f"{path} is from another machine or other versions.")
    return earlier


def slug(report: dict[str, Any]) -> str:
    """Returns a file name made of the benchmark, the machine, and the versions."""
    host = report["machine"]
    chip = host["cpu"] if host["platform"] == "cpu" else host["device"]
    python = "".join(host["python"].split(".")[:2])
    words = f"{host['cores']}core {chip}" if host["platform"] == "cpu" else chip
    words = re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
    return f"{report['benchmark']}-{words}-py{python}-jax{host['versions']['jax']}"


def headline(report: dict[str, Any], work: str) -> str:
    """Returns the line above a table: machine, versions, date, and `work`."""
    host = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in host["versions"].items())
    return (
        f"{host['cpu']}, {host['cores']} cores, {host['platform']} ({host['device']}); "
        f"Python {host['python']}, {versions}; {report['date']}; {work}, "
        f"medians of {report['repeats']}, quartiles in brackets."
    )


@contextlib.contextmanager
def no_compilation_cache() -> Iterator[None]:
    """Disables the compilation cache on disk, because compile times are measured."""
    import jax  # see `machine`

    before = jax.config.jax_enable_compilation_cache  # pyright: ignore[reportAttributeAccessIssue]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)


def publish(
    options: argparse.Namespace,
    measure: Callable[[], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
    plot: Callable[[dict[str, Any], Path], None] | None = None,
) -> dict[str, Any]:
    """Returns a report that it measures or loads, writes, prints, and plots as `options` say."""
    if options.load:
        report = json.loads(Path(options.load).read_text())
    else:
        report = measure()
        if options.output:
            print(f"wrote {write(report, options.output)}")
    if not options.quiet:
        print(table(report))
    if plot is not None and options.plot:
        path = path_of(options.plot, report, "png")
        plot(report, path)
        print(f"wrote {path}")
    return report


def write(report: dict[str, Any], option: str) -> Path:
    """Writes the report to the file that `--output` names; returns its path."""
    path = path_of(option, report, "json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")
    return path


def path_of(option: str, report: dict[str, Any], ending: str) -> Path:
    """Returns the file that an option names, where "auto" stands for machine and versions."""
    return RESULTS / f"{slug(report)}.{ending}" if option == "auto" else Path(option)


def parser(
    benchmark: str,
    description: str,
    *,
    num_envs: Sequence[int],
    repeats: int,
    peers: Sequence[str],
) -> argparse.ArgumentParser:
    """Returns a parser with the options of benchmarks that vary the id and N."""
    parser = new_parser(benchmark, description)
    add = parser.add_argument
    add("--ids", type=words, default=list(IDS), help="comma-separated environment ids")
    add("--num-envs", type=numbers, default=list(num_envs), help="comma-separated values of N")
    add(
        "--repeats",
        type=int,
        default=repeats,
        help=f"number of repetitions; medians are reported (default {repeats})",
    )
    add("--min-seconds", type=float, default=0.05, help="minimum duration of a sample")
    add(
        "--peers",
        type=choices(peers),
        default=list(peers),
        help=f"comma-separated: {', '.join(peers)}",
    )
    return parser


def new_parser(
    benchmark: str, description: str | None, *, has_plot: bool = False
) -> argparse.ArgumentParser:
    """Returns a parser with the options of all benchmarks, which `publish` reads."""
    parser = plain_parser(benchmark, description)
    add = parser.add_argument
    add("--output", help='JSON file to write; "auto" names it after the machine and the versions')
    if has_plot:
        add("--plot", help='image file to write; "auto" as above')
    add("--load", help="show the results of this JSON file instead of measuring")
    add("--quiet", action="store_true", help="print neither progress nor a table")
    return parser


def plain_parser(benchmark: str, description: str | None) -> argparse.ArgumentParser:
    """Returns a parser without options."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{benchmark}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def choices(known: Sequence[str]) -> Callable[[str], list[str]]:
    """Returns an argparse type for comma-separated words out of `known`."""

    def choose(text: str) -> list[str]:
        unknown = set(words(text)) - set(known)
        if unknown:
            raise argparse.ArgumentTypeError(
                f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join(known)}"
            )
        return words(text)

    return choose


def words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def numbers(text: str) -> list[int]:
    return [int(word.replace("_", "")) for word in words(text)]


def variant(text: str, num_envs: int) -> dict[str, Any]:
    """Parses "reset_chunk=N,autoreset_mode=next_step" to keyword arguments; N is `num_envs`."""
    keywords: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if value == "N":
            keywords[name] = num_envs
        else:
            keywords[name] = int(value) if value.isdecimal() else value
    return keywords


def quartiles(samples: Sequence[float]) -> tuple[float, float, float]:
    if len(samples) < 2:
        return samples[0], samples[0], samples[0]
    low, middle, high = statistics.quantiles(samples, n=4, method="inclusive")
    return low, middle, high


def spread(samples: Sequence[float], form: str) -> str:
    """Returns the median and the quartiles, such as 2.1 [1.9, 2.2]."""
    low, middle, high = (format(each, form) for each in quartiles(samples))
    return f"{middle} [{low}, {high}]"


def markdown(titles: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Returns the lines of a table."""
    titles = tuple(titles)
    first, *others = [f"| {' | '.join(map(str, cells))} |" for cells in (titles, *rows)]
    return [first, "|---" * len(titles) + "|", *others]


def mean_and_error(values: np.ndarray) -> list[float]:
    """Returns the mean and its standard error."""
    return [float(values.mean()), float(values.std(ddof=1) / len(values) ** 0.5)]


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        if package != "jaxenvs":
            return None
        import jaxenvs

        return jaxenvs.__version__


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor() or platform.machine()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.machine()
