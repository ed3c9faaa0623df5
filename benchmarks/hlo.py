"""Counts expensive instructions in a compiled rollout, to find unnecessary work.

    python -m benchmarks.hlo CartPole-v1 1024
    python -m benchmarks.hlo CartPole-v1 1024 --variant reset_chunk=N --peer gymnax --dump out.txt

Each instruction of the optimized program counts once, whether it runs once or, inside the scan's
body, on every step.
"""

import collections
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks import _common, rollout

TRANSCENDENTAL = ("sine", "cosine", "tan", "exponential", "log", "power", "remainder", "divide")
OVERHEAD = ("while", "conditional", "call", "fusion", "copy", "sort", "scatter", "gather", "rng")

_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$", re.MULTILINE)
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*?) ([a-z][a-z\-]*)\(", re.MULTILINE)
_CALLED = re.compile(r"(?:to_apply|body|condition|calls)=%?([\w.\-]+)")
_FREE = ("parameter", "tuple", "get-tuple-element", "constant", "bitcast")  # launch no kernel
_SHAPE = re.compile(r"^\w+\[([\d,]*)\]")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.plain_parser("hlo", __doc__)
    parser.add_argument("id")
    parser.add_argument("num_envs", type=int)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--variant", default="", help="arguments of make_vec, as in rollout.py")
    parser.add_argument(
        "--peer", choices=["gymnax"], help="also count the instructions of a peer's program"
    )
    parser.add_argument("--dump", type=Path, help="write the text of jaxenvs' program to this file")
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
    """Returns the optimized HLO of a contestant's rollout."""
    if contestant.compiled is None or (text := contestant.compiled.as_text()) is None:
        raise ValueError(f"{contestant.name} is not a compiled JAX program: it has no HLO.")
    return text


def count(text: str, num_envs: int) -> dict[str, int]:
    """Counts instructions in optimized HLO.

    Args:
        text: `compiled.as_text()`.
        num_envs: N; copies and xors with at least N elements are also counted separately.

    Returns:
        Number of occurrences by name: loops and calls, transcendental operations, copies of whole
        batches, and xors of the random generator (`threefry xors`, a measure of how many hashes
        the program contains).
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
    """Returns the largest number of kernels that one iteration of any loop launches.

    Each fusion, copy, loop, or call in a loop's body is launched separately, which takes some
    30 to 100 ns on a CPU, and more on a GPU. Loops inside a call that is compiled as one kernel are
    not counted.
    """
    bodies = set(re.findall(r"while\(.*body=%?([\w.\-]+)", text))
    in_small_calls = _computations_in_small_calls(text)
    return max(
        (
            sum(
                kind not in _FREE and not kind.endswith("-done")
                for _, kind in _INSTRUCTION.findall(body)
            )
            for name, body in _computations(text).items()
            if name in bodies - in_small_calls
        ),
        default=0,
    )


def _computations(text: str) -> dict[str, str]:
    parts = _COMPUTATION.split(text)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _computations_in_small_calls(text: str) -> set[str]:
    """Returns the names of all computations that calls compiled as one kernel reach."""
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
