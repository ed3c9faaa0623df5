"""Measures environments of other JAX libraries, through jaxenvs and in the library itself.

    python -m benchmarks.suites --output auto

A program is one jitted scan of a random policy over N instances. Without resets, both step the
instances by `vmap`, which shows what the adapter costs. With resets, the library uses its own
automatic resets and its own time limit, and jaxenvs uses `make_vec`. brax's and NAVIX's own resets
do less: brax returns to the first state of the program, and NAVIX spends a step on each reset. So
do the optimistic resets of Craftax's baselines, by which finished instances may share an episode.
JAXtari has no resets of its own and stands beside the usual `where(done, reset, state)`.
"""

import argparse
import functools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import jaxenvs
from benchmarks import _common
from benchmarks._suite_peers import PLAYERS, RESETTING
from jaxenvs.suites._shared import cast_like
from jaxenvs.wrappers import TimeLimit

IDS = (
    "brax/inverted_pendulum",
    "craftax/Craftax-Classic-Symbolic-v1",
    "gymnax/CartPole-v1",
    "gymnax/Breakout-MinAtar",
    "jaxmarl/MPE_simple_spread_v3",
    "jaxmarl/overcooked",
    "jaxtari/pong",
    "jumanji/Maze-v0",
    "jumanji/Snake-v1",
    "jumanji/Game2048-v1",
    "kinetix/s/h8_unicycle_balance",
    "navix/Navix-DoorKey-8x8-v0",
    "pgx/2048",
    "pgx/minatar-asterix",
    "playground/CartpoleBalance",
    "xminigrid/MiniGrid-DoorKey-8x8",
    "xminigrid/XLand-MiniGrid-R1-9x9",
)
Step = Callable[
    [Any, Any, Any], tuple[Any, Any, Any]
]  # (state, action, keys) -> state, reward, done


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("suites", __doc__)
    add = parser.add_argument
    add("--ids", type=_common.words, default=list(IDS), help="comma-separated")
    add("--num-envs", type=_common.numbers, default=[1024], help="comma-separated")
    add("--steps", type=int, default=32, help="steps in a scan")
    add("--repeats", type=int, default=7, help="number of repetitions (default 7)")
    add("--min-seconds", type=float, default=0.2, help="minimum duration of a sample")
    options = parser.parse_args(arguments)
    _common.publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    packages = dict.fromkeys(_package(id) for id in options.ids)
    report = _common.new_report("suites", arguments, list(packages), options.repeats)
    report["measurements"] = []
    warnings.filterwarnings("ignore")  # of the libraries
    for id in options.ids:
        if not _common.version(_package(id)):
            continue
        for num_envs in options.num_envs:
            for peer in RESETTING:
                if peer.partition(",")[0] == id.partition("/")[0]:
                    entry = _measure(id, num_envs, peer, options)
                    report["measurements"].append(entry)
                    print(*_row(entry), sep=", ", flush=True)
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    titles = (
        "id",
        "N",
        "time of a step, jaxenvs / library, no resets",
        "M steps/s with resets",
        "speed with resets, jaxenvs / library",
        "episodes end after",
    )
    lines = _common.markdown(titles, map(_row, report["measurements"]))
    return "\n".join([_common.headline(report, "steps in one jitted scan"), "", *lines])


def _package(id: str) -> str:
    suite = id.partition("/")[0]
    return "kinetix-env" if suite == "kinetix" else suite


def _row(entry: dict[str, Any]) -> list[str]:
    return [
        entry["id"],
        f"{entry['num_envs']:,}",
        _common.spread(entry["cost"], ".3f"),
        f"{_common.quartiles(entry['steps_per_second'])[1] / 1e6:.3g}",
        _common.spread(entry["gain"], ".2f"),
        f"{entry['episode_length']:.0f} steps",
    ]


def _measure(id: str, num_envs: int, peer: str, options: argparse.Namespace) -> dict[str, Any]:
    """Returns the measurement of an id: seconds of the four programs, as ratios.

    Args:
        id: the id.
        num_envs: N.
        peer: the key in `RESETTING`.
        options: those of the command line.
    """
    suite, _, name = id.partition("/")
    env = jaxenvs.make(id)
    env = env.env if isinstance(env, TimeLimit) else env
    batch = jaxenvs.make_vec(id, num_envs)
    reset, step = PLAYERS[suite](name, {})

    def ours(state: Any, action: Any, key: Any) -> Any:
        state, timestep = env.step(state, action, key)
        return state, timestep.reward, timestep.done

    def theirs(state: Any, action: Any, key: Any) -> Any:
        state, _, reward, terminated, truncated = step(state, action, key)
        return state, reward, terminated | truncated

    def ours_resetting(state: Any, action: Any, keys: Any) -> Any:
        state, timestep = batch.step(state, action, keys)
        return state, timestep.reward, timestep.done

    keys = jax.random.split(jax.random.key(0), num_envs)
    first, following = RESETTING[peer](name)
    sample = batch.action_space.sample
    programs = [
        _Program(jax.vmap(ours), jax.vmap(lambda key: env.reset(key)[0]), sample, keys, options),
        _Program(jax.vmap(theirs), jax.vmap(lambda key: reset(key)[0]), sample, keys, options),
        _Program(ours_resetting, lambda keys: batch.reset(keys)[0], sample, keys, options),
        _Program(following, first, sample, keys, options),
    ]
    samplers = [_common.Sampler(program.run) for program in programs]
    _common.alternate(samplers, options.repeats, options.min_seconds)
    seconds = [[s / sampler.calls for s in sampler.seconds] for sampler in samplers]
    return {
        "id": id + peer.removeprefix(suite),
        "num_envs": num_envs,
        "cost": [a / b for a, b in zip(seconds[0], seconds[1], strict=True)],
        "gain": [b / a for a, b in zip(seconds[2], seconds[3], strict=True)],
        "steps_per_second": [num_envs * options.steps / each for each in seconds[2]],
        "episode_length": programs[2].mean_length(),
        "compile_seconds": [program.compile_seconds for program in programs],
    }


class _Program:
    """A compiled scan over N instances, which goes on from its last state."""

    def __init__(
        self,
        step: Step,
        reset: Callable[[Any], Any],
        sample: Callable[[Any], Any],
        keys: Any,
        options: argparse.Namespace,
    ) -> None:
        self.num_envs, self.steps = len(keys), options.steps
        self.finished = self.calls = 0

        def once(state: Any, key: Any) -> Any:
            first, second = jax.random.split(key)
            each = jax.random.split(second, self.num_envs)
            new, reward, done = step(state, sample(first), each)
            rewards = sum(x.sum() for x in jax.tree.leaves(reward))  # of all agents
            return cast_like(new, state), (rewards, (done != 0).sum())

        def scan(state: Any, key: Any) -> Any:
            state, sums = jax.lax.scan(once, state, jax.random.split(key, self.steps))
            return state, jax.tree.map(jnp.sum, sums)

        state = jax.jit(reset)(keys)
        # Libraries start with other dtypes than those of their steps.
        like, *_ = jax.eval_shape(step, state, sample(keys[0]), keys)
        self.state = cast_like(state, like)
        start = time.perf_counter()
        self.program = jax.jit(scan).lower(self.state, keys[0]).compile()
        self.compile_seconds = time.perf_counter() - start

    def run(self, calls: int) -> float:
        """Runs the scan and returns the seconds."""
        start = time.perf_counter()
        for _ in range(calls):
            self.calls += 1
            self.state, sums = self.program(self.state, jax.random.key(self.calls))
            self.finished += int(sums[1])
        return time.perf_counter() - start

    def mean_length(self) -> float:
        """Returns steps per finished episode."""
        return self.calls * self.steps * self.num_envs / max(self.finished, 1)


if __name__ == "__main__":
    main()
