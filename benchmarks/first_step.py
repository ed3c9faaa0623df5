"""Measures what the first `reset` and `step` of a batch take, most of which is compiling.

    python -m benchmarks.first_step --output auto            # one id of each class
    python -m benchmarks.first_step --ids LunarLander-v3,MiniGrid-DoorKey-8x8-v0

Processor seconds, not seconds on a clock, because XLA compiles in several threads and other
programs may run beside. Programs are not read from the cache on disk, and what JAX keeps from
earlier ids is forgotten.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax

import jaxenvs
from benchmarks import _common
from jaxenvs.errors import JaxenvsError

NUM_ENVS = 64
PARTS = ("reset", "step")
STAGES = ("trace", "lower", "compile")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("first_step", __doc__)
    add = parser.add_argument
    add("--ids", type=_common.words, default=list(one_of_each_class()), help="environment ids")
    add("--keep", help="JSON file whose other measurements are kept")
    options = parser.parse_args(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def one_of_each_class() -> Iterator[str]:
    """Yields the last native id of each class, which often is the largest of a family."""
    last = {spec.entry_point: id for id, spec in jaxenvs.registry.items()}
    yield from last.values()


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures the ids in `options`; returns the report that is written as JSON."""
    report = _common.new_report("first_step", arguments, [], 1)
    found = {entry["id"]: entry for entry in _common.kept(options.keep, report)}
    jax.jit(lambda key: jax.random.uniform(key))(jax.random.key(0))  # starts XLA
    for id in options.ids:
        jax.clear_caches()
        try:
            found[id] = first_steps(id)
        except JaxenvsError as error:  # it needs files of the user's
            print(f"note: {id} is skipped: {error}", file=sys.stderr)
            continue
        if not options.quiet:
            print(f"{id}: {total(found[id]):.1f} s", file=sys.stderr, flush=True)
    return report | {"measurements": list(found.values())}


def first_steps(id: str) -> dict[str, Any]:
    """Returns processor seconds of each stage of `reset` and `step`."""
    env, key = jaxenvs.make_vec(id, NUM_ENVS), jax.random.key(0)
    with _common.no_compilation_cache():
        reset, (state, _) = _stages(env.reset, key)
        step, _ = _stages(env.step, state, jax.eval_shape(env.action_space.sample, key), key)
    return {"id": id, "num_envs": NUM_ENVS, "reset": reset, "step": step}


def _stages(call: Callable[..., Any], *args: Any) -> tuple[dict[str, float], Any]:
    """Returns processor seconds of each stage of a call, and the shapes of its results."""
    clock = [time.process_time()]
    traced = jax.jit(call).trace(*args)
    clock.append(time.process_time())
    lowered = traced.lower()
    clock.append(time.process_time())
    lowered.compile()
    clock.append(time.process_time())
    seconds = (after - before for before, after in itertools.pairwise(clock))
    return dict(zip(STAGES, seconds, strict=True)), traced.out_info


def total(entry: dict[str, Any]) -> float:
    """Returns processor seconds of `reset` and `step` together."""
    return sum(entry[part][stage] for part in PARTS for stage in STAGES)


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown, the slowest first."""
    host = report["machine"]
    lines = [
        f"{host['cpu']}, Python {host['python']}, jax {host['versions']['jax']}, {report['date']}",
        "",
        "| id | reset: trace, lower, compile | step: trace, lower, compile | processor seconds |",
        "|---|---|---|--:|",
    ]
    for entry in sorted(report["measurements"], key=total, reverse=True):
        parts = (", ".join(f"{entry[part][stage]:.1f}" for stage in STAGES) for part in PARTS)
        lines.append(f"| {entry['id']} | {' | '.join(parts)} | {total(entry):.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
