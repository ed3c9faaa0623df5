"""What a rollout compiles to: counts of the things that cost, to find work that need not be there.

    python -m benchmarks.hlo CartPole-v1 1024
    python -m benchmarks.hlo CartPole-v1 1024 --variant reset_chunk=N --peer gymnax --dump out.txt

Counted once each, wherever they stand in the optimized program; what stands inside the scan's
body is paid on every step.
"""

import argparse
import collections
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks import rollout

TRANSCENDENTAL = ("sine", "cosine", "tan", "exponential", "log", "power", "remainder", "divide")
OVERHEAD = ("while", "conditional", "call", "fusion", "copy", "sort", "scatter", "gather", "rng")

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z][a-z\-]*)\(", re.MULTILINE)
_CALLED = re.compile(r"(?:to_apply|body|condition|calls)=%?([\w.\-]+)")
_FREE = ("parameter", "tuple", "get-tuple-element", "constant", "bitcast")  # start no kernel
_SHAPE = re.compile(r"^\w+\[([\d,]*)\]")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; `--help` lists it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.hlo",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("id")
    parser.add_argument("num_envs", type=int)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--variant", default="", help="arguments of make_vec, as in rollout.py")
    parser.add_argument("--peer", choices=["gymnax"], help="count a peer's program too")
    parser.add_argument("--dump", type=Path, help="write our program's text to this file")
    options = parser.parse_args(arguments)

    contestants = [rollout.ours(options.id, options.num_envs, options.steps, options.variant)]
    if options.peer:
        contestants.append(rollout.gymnax(options.id, options.num_envs, options.steps))
    texts = [program(contestant) for contestant in contestants]
    if options.dump:
        options.dump.write_text(texts[0])
    counts = [count(text, options.num_envs) for text in texts]
    names = [contestant.name for contestant in contestants]
    width = max(map(len, names))
    print(f"{'':32}" + "".join(f"{name:>{width + 2}}" for name in names))
    for row in counts[0]:
        print(f"{row:32}" + "".join(f"{counted[row]:>{width + 2}}" for counted in counts))


def program(contestant: rollout.Contestant) -> str:
    """The optimized HLO of a contestant's rollout."""
    if contestant.compiled is None or (text := contestant.compiled.as_text()) is None:
        raise ValueError(f"{contestant.name} is not a compiled JAX program.")
    return text


def count(text: str, num_envs: int) -> dict[str, int]:
    """Counts instructions in optimized HLO.

    Args:
        text: `compiled.as_text()`.
        num_envs: N; copies and random words are told apart by whether they have N elements.

    Returns:
        Number of occurrences by name: loops and calls, transcendental operations, copies of whole
        batches, and the generator's rotations (`threefry xors`, a measure of how many hashes the
        program spells out).
    """
    kinds: collections.Counter[str] = collections.Counter()
    batch_copies = batch_xors = 0
    for result, kind in _INSTRUCTION.findall(text):
        kinds[kind] += 1
        elements = _elements(result)
        batch_copies += kind in ("copy", "transpose") and elements >= num_envs
        batch_xors += kind == "xor" and elements >= num_envs
    return {
        "computations": len(_COMPUTATION.findall(text)),
        "instructions": sum(kinds.values()),
        **{kind: kinds[kind] for kind in OVERHEAD},
        "calls compiled as one kernel": text.count('xla_cpu_small_call="true"'),
        "kernels on each step": kernels_in_longest_loop(text),
        "copies of N elements or more": batch_copies,
        "threefry xors": kinds["xor"],
        "threefry xors of N or more": batch_xors,
        **{kind: kinds[kind] for kind in TRANSCENDENTAL},
    }


def kernels_in_longest_loop(text: str) -> int:
    """Counts what XLA:CPU starts one by one on each trip of the loop with the most of it.

    Every fusion, copy, loop or call that stands in a loop's body is started on its own, at some
    30 to 100 ns. A loop that lies in a call compiled as one kernel counts for nothing.
    """
    bodies = set(re.findall(r"while\(.*body=%?([\w.\-]+)", text))
    swallowed = _computations_in_small_calls(text)
    return max(
        (
            sum(kind not in _FREE for _, kind in _INSTRUCTION.findall(body))
            for name, body in _computations(text).items()
            if name in bodies - swallowed
        ),
        default=0,
    )


def _computations(text: str) -> dict[str, str]:
    parts = _COMPUTATION.split(text)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _computations_in_small_calls(text: str) -> set[str]:
    """The names of all computations that are reached from a call compiled as one kernel."""
    computations = _computations(text)
    found: set[str] = set()
    pending = []
    for line in text.splitlines():
        if 'xla_cpu_small_call="true"' in line and " call(" in line:
            pending += _CALLED.findall(line)
    while pending:
        name = pending.pop()
        if name not in found and name in computations:
            found.add(name)
            pending += _CALLED.findall(computations[name])
    return found


def _elements(result: str) -> int:
    found = _SHAPE.match(result)
    if not found:
        return 0  # a tuple
    size = 1
    for axis in filter(None, found.group(1).split(",")):
        size *= int(axis)
    return size


if __name__ == "__main__":
    main()
