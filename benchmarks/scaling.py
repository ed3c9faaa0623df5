"""Measures training runs with several seeds and on several devices.

Seeds: PPO on CartPole-v1 with 1, 8, and 64 vmapped seeds. Devices: a run without `shard`, and
the same training sharded over 1, 2, 4, and 8 virtual devices of this machine, each in its own
process. With more devices than cores, this measures the overhead of sharding.

    python -m benchmarks.scaling --output auto
    python -m benchmarks.scaling --parts devices --repeats 3
"""

import argparse
import contextlib
import multiprocessing
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import _common

PARTS = ("seeds", "devices")
SIZES = {"seeds": (64, 64), "devices": (512, 32)}  # instances, unroll length
FORCED = "--xla_force_host_platform_device_count"


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("scaling", __doc__)
    add = parser.add_argument
    add(
        "--parts",
        type=_common.words,
        default=list(PARTS),
        help=f"comma-separated: {', '.join(PARTS)}",
    )
    add(
        "--seeds",
        type=_common.numbers,
        default=[1, 8, 64],
        help="numbers of seeds (default 1,8,64)",
    )
    add("--devices", type=_common.numbers, default=[1, 2, 4, 8], help="numbers of devices")
    add("--steps", type=int, default=131_072, help="environment steps of each training run")
    add("--repeats", type=int, default=5, help="number of repetitions (default 5)")
    options = parser.parse_args(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report. The training runs of a part run in turn."""
    report = _common.new_report("scaling", arguments, ("flax", "optax"), options.repeats)
    report |= {"steps": options.steps, "measurements": []}
    for part in options.parts:
        # 0 devices stands for the training without `shard`, the reference for the others.
        counts = options.seeds if part == "seeds" else [0, *options.devices]
        with contextlib.ExitStack() as stack:
            sides = [stack.enter_context(_process(part, n, options.steps)) for n in counts]
            seconds: list[list[float]] = [[] for _ in counts]
            for repeat in range(options.repeats):
                for i in _common.rotated(range(len(counts)), repeat):
                    seconds[i].append(sides[i][1]())
        for n, (compile_seconds, _), taken in zip(counts, sides, seconds, strict=True):
            entry = {"part": part, "number": n, "seconds": taken}
            report["measurements"].append(entry | {"compile_seconds": compile_seconds})
            if not options.quiet:
                print(f"{_name(entry)}: {_common.quartiles(taken)[1]:.2f} s", flush=True)
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
    work = f"PPO on CartPole-v1, {report['steps']:,} steps per training"
    rows = []
    for entry in report["measurements"]:
        trainings = entry["number"] if entry["part"] == "seeds" else 1
        rows.append(
            [
                _name(entry),
                _common.spread(entry["seconds"], ".2f"),
                _common.spread(_ratios(report, entry), ".2f"),
                f"{_common.quartiles(entry['seconds'])[1] / trainings:.3f}",
                f"{entry['compile_seconds']:.1f}",
            ]
        )
    titles = "", "s", "ratio to the first row", "s per training", "compile, s"
    return "\n".join([_common.headline(report, work), "", *_common.markdown(titles, rows)])


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
