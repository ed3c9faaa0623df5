"""Steps through the NumPy interface: jaxenvs.make_gym, EnvPool, and Gymnasium's vector classes.

    python -m benchmarks.gym_api --ids CartPole-v1 --num-envs 1,1024
    python -m benchmarks.gym_api --output auto    # everything, about ten minutes
    python -m benchmarks.gym_api --quick                        # a trial, under two minutes
    python -m benchmarks.gym_api --busy --peers vectorized      # beside a learner
    python -m benchmarks.gym_api --variants autoreset_mode=next_step --peers vectorized

Each contestant calls `env.step(actions)` repeatedly, with the same actions, drawn in advance, and
with its own autoreset. README.md describes how the comparison is kept fair.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib
import itertools
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from benchmarks import _common
from benchmarks._common import OURS

NUM_ENVS = (1, 16, 64, 256, 1024, 4096, 16384)
PEERS = ("envpool", "vectorized", "sync", "async")
QUICK = {"ids": ["CartPole-v1"], "num_envs": [1, 16, 64, 1024, 16384], "repeats": 7}

# Required speed ratios to the peers with CartPole-v1 on two CPU cores, by N. Gymnasium's vectorized
# class must not be faster at any N.
REQUIRED = {
    "envpool": {1: 2.5, 16: 4.5, 64: 5.0, 1024: 6.0, 16384: 25.0},
    "vectorized": dict.fromkeys(NUM_ENVS, 1.0) | {1: 2.0, 16: 3.0, 64: 3.0, 1024: 1.2},
}
# The same with all cores but one busy.
REQUIRED_BUSY = {"envpool": {}, "vectorized": dict.fromkeys(NUM_ENVS, 1.5)}


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A library, or one way to use it."""

    name: str
    kind: str  # "jaxenvs" or one of PEERS
    package: str  # required package
    make: Callable[[str, int], Any]  # (id, num_envs) -> an environment with reset, step and close
    max_num_envs: int | None = None  # larger batches would take minutes
    discrete_dtype: type[np.integer] = np.int64  # dtype of actions that needs no conversion

    def objection(self, id: str, num_envs: int) -> str | None:
        """Returns the reason not to measure this contestant, or None."""
        if not _common.version(self.package):
            return f"{self.package} is not installed"
        if self.kind == OURS and not hasattr(importlib.import_module(OURS), "make_gym"):
            return "this jaxenvs has no make_gym"
        spec = gymnasium.registry.get(id)
        if self.kind == "vectorized" and not (spec and spec.vector_entry_point):
            return f"Gymnasium has no vectorized class for {id}"
        if self.kind in ("sync", "async") and spec is None:
            return f"Gymnasium has no {id}"
        if self.max_num_envs and num_envs > self.max_num_envs:
            return f"N is at most {self.max_num_envs:,}"
        return None


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Results of one contestant for one id and one N."""

    id: str
    num_envs: int
    contestant: str
    kind: str
    ready_seconds: float  # to make, reset, and step it once, including compilation
    calls: int  # of step, per sample
    steps_per_second: list[float]  # instance-steps, one value per repetition
    ours_over_this: list[float]  # ratio within each repetition; empty without jaxenvs
    calls_per_episode: float | None  # shows that the work is the same; None: too few episodes
    import_mb: float | None = None  # memory of the import beyond Gymnasium's, in a fresh process
    memory_mb: float | None = None  # memory of the environment, with all processes it starts


def ours(variant: str = "") -> Contestant:
    """Returns `jaxenvs.make_gym` with the arguments in `variant`, as "autoreset_mode=next_step"."""

    def make(id: str, num_envs: int) -> Any:
        import jaxenvs

        return jaxenvs.make_gym(id, num_envs=num_envs, **_common.variant(variant, num_envs))

    return Contestant(f"{OURS}[{variant}]" if variant else OURS, OURS, "jaxenvs", make)


def _envpool(id: str, num_envs: int, num_threads: int) -> Any:
    import envpool

    return envpool.make(
        id, env_type="gymnasium", num_envs=num_envs, num_threads=num_threads, seed=0
    )


def _vectorized(id: str, num_envs: int) -> Any:
    return gymnasium.make_vec(id, num_envs=num_envs, vectorization_mode="vector_entry_point")


def _singles(id: str, num_envs: int) -> list[Callable[[], gymnasium.Env]]:
    return [functools.partial(gymnasium.make, id, disable_env_checker=True)] * num_envs


def _sync(id: str, num_envs: int) -> Any:
    return gymnasium.vector.SyncVectorEnv(_singles(id, num_envs))


def _async(id: str, num_envs: int) -> Any:
    # Workers forked from this process could hang, because JAX has threads in it.
    multiprocessing.set_forkserver_preload(["gymnasium"])
    return gymnasium.vector.AsyncVectorEnv(_singles(id, num_envs), context="forkserver")


CONTESTANTS = (
    ours(),
    *(
        Contestant(
            f"EnvPool, {threads} thread{'s' * (threads > 1)}",
            "envpool",
            "envpool",
            functools.partial(_envpool, num_threads=threads),
            discrete_dtype=np.int32,
        )
        for threads in (1, 2)
    ),
    Contestant("Gymnasium vectorized", "vectorized", "gymnasium", _vectorized),
    Contestant("Gymnasium Sync", "sync", "gymnasium", _sync, max_num_envs=1024),
    Contestant("Gymnasium Async", "async", "gymnasium", _async, max_num_envs=16),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    options = _parse(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(
    options: argparse.Namespace,
    arguments: Sequence[str] | None = None,
    contestants: Sequence[Contestant] = CONTESTANTS,
) -> dict[str, Any]:
    """Measures everything that `options` select; returns the report that is written as JSON."""
    packages = ("gymnasium", "envpool")
    report = _common.new_report("gym_api", arguments, packages, options.repeats)
    required, others = REQUIRED, 0
    if options.busy:
        required, others = REQUIRED_BUSY, max(1, _common.cores() - 1)
        report["benchmark"] = "gym_api_busy"
    selected = [c for c in contestants if c.kind in (OURS, *options.peers)]
    selected[1:1] = [ours(variant) for variant in options.variants]
    measurements: list[Measurement] = []
    notes = set()
    for id, num_envs in itertools.product(options.ids, options.num_envs):
        objections = {c.name: c.objection(id, num_envs) for c in selected}
        for note in [f"{name} is skipped: {why}." for name, why in objections.items() if why]:
            if note not in notes:
                print(f"note: {note}", file=sys.stderr)
            notes.add(note)
        present = [c for c in selected if not objections[c.name]]
        if not present:
            continue
        with _common.burning(others):
            row = race(id, num_envs, present, options.repeats, options.min_seconds)
        if id in options.memory_ids:
            row = [
                dataclasses.replace(m, **memory(c, id, num_envs))
                for c, m in zip(present, row, strict=True)
            ]
        measurements += row
        if not options.quiet:
            line = ", ".join(f"{m.contestant} {_micros(m):.1f}" for m in row)
            print(f"{id} N={num_envs}: {line} µs per call", file=sys.stderr, flush=True)
    report["measurements"] = [dataclasses.asdict(measurement) for measurement in measurements]
    report["ratios"] = ratios(report["measurements"], required)
    return report


def race(
    id: str, num_envs: int, contestants: Sequence[Contestant], repeats: int, min_seconds: float
) -> list[Measurement]:
    """Measures the contestants in turn, `repeats` times, in rotating order."""
    with contextlib.ExitStack() as stack:
        entries = [stack.enter_context(_Entry.open(c, id, num_envs)) for c in contestants]
        _common.alternate([entry.sampler for entry in entries], repeats, min_seconds)
        episodes = [entry.calls_per_episode(10 * min_seconds) for entry in entries]
    speeds = [
        [num_envs * entry.sampler.calls / seconds for seconds in entry.sampler.seconds]
        for entry in entries
    ]
    reference = next((s for c, s in zip(contestants, speeds, strict=True) if c.kind == OURS), None)
    return [
        Measurement(
            id=id,
            num_envs=num_envs,
            contestant=entry.contestant.name,
            kind=entry.contestant.kind,
            ready_seconds=entry.ready_seconds,
            calls=entry.sampler.calls,
            steps_per_second=speed,
            ours_over_this=[a / b for a, b in zip(reference or (), speed, strict=False)],
            calls_per_episode=calls,
        )
        for entry, speed, calls in zip(entries, speeds, episodes, strict=True)
    ]


class _Entry:
    """A contestant with its environment, actions, and samples."""

    def __init__(self, contestant: Contestant, env: Any, num_envs: int) -> None:
        self.contestant, self.env, self.num_envs = contestant, env, num_envs
        self.sampler = _common.Sampler(self._run)
        self.ready_seconds = 0.0
        space = getattr(env, "single_action_space", env.action_space)
        self.actions = itertools.cycle(draw_actions(space, num_envs, contestant.discrete_dtype))

    @classmethod
    @contextlib.contextmanager
    def open(cls, contestant: Contestant, id: str, num_envs: int) -> Iterator["_Entry"]:
        """Makes the environment, runs it for a while, and closes it at the end."""
        begin = time.perf_counter()
        env = contestant.make(id, num_envs)
        try:
            entry = cls(contestant, env, num_envs)
            env.reset()
            result = env.step(next(entry.actions))
            entry.ready_seconds = time.perf_counter() - begin
            observation, *rest = result[:4]
            parts = [*(observation if isinstance(observation, tuple) else [observation]), *rest]
            if not all(isinstance(part, np.ndarray) for part in parts):
                kinds = [type(part).__name__ for part in parts]
                raise TypeError(f"{contestant.name} returns {kinds}; expected NumPy arrays only")
            entry._run(64)
            yield entry
        finally:
            env.close()

    def calls_per_episode(self, max_seconds: float) -> float | None:
        """Returns the mean number of `step` calls per episode.

        Counts from the end of one episode of instance 0 to the end of a later one, which is exact
        even if the episodes of all instances end together.
        """
        end = time.perf_counter() + max_seconds
        total = calls = finished = 0
        counting, mean = False, None
        while total < 64 or time.perf_counter() < end:
            _, _, terminated, truncated, _ = self.env.step(next(self.actions))
            done = terminated | truncated
            total += 1
            if counting:
                calls, finished = calls + 1, finished + int(done.sum())
                if done[0]:
                    mean = calls * self.num_envs / finished
            counting = counting or bool(done[0])
        return mean

    def _run(self, calls: int) -> float:
        step = self.env.step
        begin = time.perf_counter()
        for actions in itertools.islice(self.actions, calls):
            # The results stay alive until the next step, as in a learner.
            observation, reward, terminated, truncated, info = step(actions)  # noqa: RUF059
        return time.perf_counter() - begin


def draw_actions(
    space: gymnasium.Space, num_envs: int, discrete_dtype: type[np.integer]
) -> list[np.ndarray]:
    """Returns random actions for `num_envs` instances, the same values for every contestant."""
    generator = np.random.default_rng(0)
    # A much shorter cycle is not a random policy: it drifts, which ends CartPole sooner.
    shape = min(max(2**18 // num_envs, 64), 1024), num_envs
    if isinstance(space, gymnasium.spaces.Discrete):
        actions = generator.integers(space.start, space.start + space.n, shape)
        return list(actions.astype(discrete_dtype))
    assert isinstance(space, gymnasium.spaces.Box)
    actions = generator.uniform(space.low, space.high, (*shape, *space.shape))
    return list(actions.astype(space.dtype))


def memory(contestant: Contestant, id: str, num_envs: int) -> dict[str, float | None]:
    """Returns the memory of importing a library, and of making and stepping an environment, in MB.

    Measured in a fresh process that has imported Gymnasium and NumPy, together with the processes
    that it starts. Shared pages count once.
    """
    if not _common.version("psutil"):
        return {"import_mb": None, "memory_mb": None}
    call = f"_print_memory({contestant.name!r}, {id!r}, {num_envs})"
    program = f"from benchmarks import gym_api; gym_api.{call}"
    root = Path(__file__).parents[1]
    path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=os.environ | {"PYTHONPATH": path},
        stdout=subprocess.PIPE,
        check=True,
        timeout=300,
    )
    return json.loads(found.stdout.splitlines()[-1])


def _print_memory(name: str, id: str, num_envs: int) -> None:
    """Prints the result of `memory`; runs in a separate process."""
    start = _megabytes()
    contestant = next((c for c in CONTESTANTS if c.name == name), None)
    contestant = contestant or ours(name.removeprefix(f"{OURS}[").removesuffix("]"))
    importlib.import_module(contestant.package)
    imported = _megabytes()
    with _Entry.open(contestant, id, num_envs):
        made = _megabytes()
    print(json.dumps({"import_mb": imported - start, "memory_mb": made - imported}))


def _megabytes() -> float:
    import psutil

    process = psutil.Process()
    total = 0
    for each in (process, *process.children(recursive=True)):
        usage = each.memory_full_info()
        total += getattr(usage, "pss", usage.uss)  # on Linux, a page shared by k processes is 1/k
    return total / 2**20


def ratios(
    measurements: Sequence[dict[str, Any]],
    bars: Mapping[str, Mapping[int, float]] = REQUIRED,
) -> list[dict[str, Any]]:
    """Returns the ratios to the faster EnvPool and to Gymnasium's vectorized class.

    A ratio is the median of the ratios within each repetition. `bars` has what is required of it,
    by the kind of peer and N.
    """
    rows = []
    groups = itertools.groupby(measurements, key=lambda entry: (entry["id"], entry["num_envs"]))
    for (id, num_envs), group in groups:
        group = list(group)
        for kind, required in bars.items():
            rivals = [entry for entry in group if entry["kind"] == kind and entry["ours_over_this"]]
            if rivals:
                best = max(rivals, key=lambda entry: statistics.median(entry["steps_per_second"]))
                rows.append(
                    {
                        "id": id,
                        "num_envs": num_envs,
                        "kind": kind,
                        "contestant": best["contestant"],
                        "ratio": statistics.median(best["ours_over_this"]),
                        "required": required.get(num_envs) if id == "CartPole-v1" else None,
                    }
                )
    return rows


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown: all contestants, then the ratios and the required ones."""
    lines = [
        _common.headline(report, "NumPy interface"),
        "",
        "| id | N | contestant | µs per call | M steps/s | jaxenvs / this | calls per episode "
        "| ready s | MB | import MB |",
        "|---|--:|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for entry in report["measurements"]:
        low, middle, high = _common.quartiles(entry["steps_per_second"])
        micros = [f"{entry['num_envs'] / speed * 1e6:.1f}" for speed in (high, middle, low)]
        ratio = ""
        if entry["ours_over_this"] and entry["contestant"] != OURS:
            ratio = "{1:.3g} [{0:.3g}, {2:.3g}]".format(*_common.quartiles(entry["ours_over_this"]))
        lines.append(
            f"| {entry['id']} | {entry['num_envs']:,} | {entry['contestant']} "
            f"| {micros[1]} [{micros[0]}, {micros[2]}] | {middle / 1e6:.3g} | {ratio} "
            f"| {_number(entry['calls_per_episode'], '.1f')} | {entry['ready_seconds']:.2f} "
            f"| {_number(entry['memory_mb'], '.1f')} | {_number(entry['import_mb'], '.1f')} |"
        )
    if report["ratios"]:
        lines += [
            "",
            "| id | N | peer | jaxenvs / peer | required | |",
            "|---|--:|---|--:|--:|---|",
        ]
    for row in report["ratios"]:
        verdict = ""
        if row["required"]:
            verdict = "reached" if row["ratio"] >= row["required"] else "**missed**"
        lines.append(
            f"| {row['id']} | {row['num_envs']:,} | {row['contestant']} | {row['ratio']:.2f} "
            f"| {_number(row['required'], 'g')} | {verdict} |"
        )
    return "\n".join(lines)


def _micros(measurement: Measurement) -> float:
    return measurement.num_envs / statistics.median(measurement.steps_per_second) * 1e6


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _common.parser("gym_api", __doc__ or "", num_envs=NUM_ENVS, repeats=31, peers=PEERS)
    add = parser.add_argument
    add(
        "--memory-ids",
        type=_common.words,
        default=["CartPole-v1"],
        help='ids whose memory is measured, in separate processes; "" for none',
    )
    add(
        "--variants",
        nargs="*",
        default=[],
        metavar="NAME=VALUE[,...]",
        help="also measure make_gym with these arguments; the value N stands for num_envs",
    )
    add("--busy", action="store_true", help="keep all cores but one busy with other processes")
    add("--quick", action="store_true", help="a trial with few cases and repetitions")
    quick = "--quick" in (sys.argv[1:] if arguments is None else arguments)
    parser.set_defaults(**QUICK if quick else {})
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
