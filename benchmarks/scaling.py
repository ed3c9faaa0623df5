"""Measures training runs with several seeds and on several devices.

Seeds: PPO on CartPole-v1 with 1, 8, and 64 vmapped seeds. Devices: a run without `shard`, and
the same training sharded over 1, 2, 4, and 8 virtual devices of this machine, each in its own
process. With more devices than cores, this measures the overhead of sharding.

    python -m benchmarks.scaling --output auto --plot auto
    python -m benchmarks.scaling --parts devices --repeats 3
"""

import argparse
import contextlib
import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks._common import (
    headline,
    new_parser,
    new_report,
    numbers,
    publish,
    quartiles,
    rotated,
    words,
)

PARTS = ("seeds", "devices")
SIZES = {"seeds": (64, 64), "devices": (512, 32)}  # instances, unroll length
FORCED = "--xla_force_host_platform_device_count"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = new_parser("scaling", __doc__)
    add = parser.add_argument
    add("--parts", type=words, default=list(PARTS), help=f"comma-separated: {', '.join(PARTS)}")
    add("--seeds", type=numbers, default=[1, 8, 64], help="numbers of seeds (default 1,8,64)")
    add("--devices", type=numbers, default=[1, 2, 4, 8], help="numbers of devices")
    add("--steps", type=int, default=131_072, help="environment steps of each training run")
    add("--repeats", type=int, default=5, help="number of repetitions (default 5)")
    options = parser.parse_args(arguments)
    publish(options, lambda: measure(options, arguments), table, plot)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report. The training runs of a part run in turn."""
    report = new_report("scaling", arguments, ("flax", "optax"), options.repeats)
    report |= {"steps": options.steps, "measurements": []}
    for part in options.parts:
        # 0 devices stands for the training without `shard`, the reference for the others.
        counts = options.seeds if part == "seeds" else [0, *options.devices]
        with contextlib.ExitStack() as stack:
            sides = [stack.enter_context(_process(part, n, options.steps)) for n in counts]
            seconds: list[list[float]] = [[] for _ in counts]
            for repeat in range(options.repeats):
                for i in rotated(range(len(counts)), repeat):
                    seconds[i].append(sides[i][1]())
        for n, (compile_seconds, _), taken in zip(counts, sides, seconds, strict=True):
            entry = {"part": part, "number": n, "seconds": taken}
            report["measurements"].append(entry | {"compile_seconds": compile_seconds})
            if not options.quiet:
                print(f"{_name(entry)}: {quartiles(taken)[1]:.2f} s", flush=True)
    return report


def train(part: str, number: int, steps: int) -> tuple[Any, Any]:
    """Returns a compiled training and its key or keys. 0 devices means without `shard`."""
    import jax  # here, because the number of devices is fixed when JAX starts

    from jaxenvs.training import PPO, make_train, shard

    num_envs, unroll_length = SIZES[part]
    training: Any = make_train(
        "CartPole-v1", PPO(), num_envs=num_envs, unroll_length=unroll_length, total_steps=steps
    )
    key = jax.random.key(0)
    if part == "seeds":
        training, key = jax.vmap(training), jax.random.split(key, number)
    elif number:
        training = shard(training, jax.make_mesh((number,), ("devices",)))
    return jax.jit(training).lower(key).compile(), key


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown: seconds, ratios to the first row, and seconds per seed."""
    lines = [
        headline(report, f"PPO on CartPole-v1, {report['steps']:,} steps per training"),
        "",
        "| | s | ratio to the first row | s per training | compile, s |",
        "|---|---|---|--:|--:|",
    ]
    for entry in report["measurements"]:
        low, middle, high = quartiles(entry["seconds"])
        less, ratio, more = quartiles(_ratios(report, entry))
        trainings = entry["number"] if entry["part"] == "seeds" else 1
        lines.append(
            f"| {_name(entry)} | {middle:.2f} [{low:.2f}, {high:.2f}]"
            f" | {ratio:.2f} [{less:.2f}, {more:.2f}] | {middle / trainings:.3f}"
            f" | {entry['compile_seconds']:.1f} |"
        )
    return "\n".join(lines)


def plot(report: dict[str, Any], path: Path) -> None:
    """Plots ratios to the first entry, one panel per part; dotted: no gain and no loss."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    parts = list(dict.fromkeys(entry["part"] for entry in report["measurements"]))
    figure, axes = plt.subplots(
        1, len(parts), figsize=(4.5 * len(parts), 4), squeeze=False, layout="constrained"
    )
    for axis, part in zip(axes[0], parts, strict=True):
        entries = [entry for entry in report["measurements"] if entry["part"] == part]
        entries = [entry for entry in entries if entry["number"]]
        counts = [entry["number"] for entry in entries]
        rows = [quartiles(_ratios(report, entry)) for entry in entries]
        low, middle, high = zip(*rows, strict=True)
        axis.plot(counts, middle, marker="o")
        axis.fill_between(counts, low, high, alpha=0.2)
        if part == "seeds":
            axis.plot(counts, counts, color="gray", linestyle=":")
            axis.set(yscale="log", title="seeds, vmapped", ylabel="times one seed")
        else:
            axis.axhline(1, color="gray", linestyle=":")
            axis.set(title="devices, the same work", ylabel="times no shard")
            axis.set_ylim(bottom=0)
        axis.set(xscale="log", xlabel=part, xticks=counts, xticklabels=counts)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    host = report["machine"]
    figure.suptitle(f"{host['cores']} cores of {host['cpu']}", fontsize=10)
    figure.savefig(path, dpi=150)
    plt.close(figure)


@contextlib.contextmanager
def _process(part: str, number: int, steps: int) -> Iterator[tuple[float, Callable[[], float]]]:
    """Starts a process that compiles the training.

    Yields the seconds to compile and a function that times one run.
    """
    here, there = (spawn := multiprocessing.get_context("spawn")).Pipe()
    process = spawn.Process(target=_serve, args=(there, part, number, steps), daemon=True)
    with _flags(number if part == "devices" else 0):
        process.start()
    there.close()

    def run() -> float:
        here.send(True)
        return here.recv()

    try:
        yield here.recv(), run
    finally:
        here.close()
        process.join()


def _serve(pipe: Any, part: str, number: int, steps: int) -> None:
    """Compiles the training, sends the seconds, and times a run for each request."""
    import jax

    begin = time.perf_counter()
    program, key = train(part, number, steps)
    seconds = time.perf_counter() - begin
    jax.block_until_ready(program(key))  # warm
    pipe.send(seconds)
    with contextlib.suppress(EOFError):
        while pipe.recv():
            begin = time.perf_counter()
            jax.block_until_ready(program(key))
            pipe.send(time.perf_counter() - begin)


@contextlib.contextmanager
def _flags(num_devices: int) -> Iterator[None]:
    """Makes XLA split the CPU into devices, in processes that start in this context."""
    before = os.environ.get("XLA_FLAGS", "")
    flags = re.sub(rf"{FORCED}=\d+", "", before)
    os.environ["XLA_FLAGS"] = f"{flags} {FORCED}={max(num_devices, 1)}".strip()
    try:
        yield
    finally:
        os.environ["XLA_FLAGS"] = before


def _name(entry: dict[str, Any]) -> str:
    number, part = entry["number"], entry["part"]
    if part == "devices" and not number:
        return "no shard"
    return f"{number} {part.removesuffix('s') if number == 1 else part}"


def _ratios(report: dict[str, Any], entry: dict[str, Any]) -> list[float]:
    """Returns the ratios to the first entry of the part, within each repetition."""
    first = next(each for each in report["measurements"] if each["part"] == entry["part"])
    return [a / b for a, b in zip(entry["seconds"], first["seconds"], strict=True)]


if __name__ == "__main__":
    main()
