"""Measures the ways in which users write a random-policy rollout, beside the same with gymnax.

    python -m benchmarks.forms --output auto
    python -m benchmarks.forms --ids CartPole-v1 --num-envs 64

The forms:
    a loop that sums: a scan whose carry sums the rewards and counts the episodes
    a user's loop: a scan over keys, as in gymnax's README, whose policy reads the observation
    a loop that stacks: a scan that returns transitions
    a loop that stacks all: a scan that returns all that `rollout` does
    rollout: `jaxenvs.rollout`, which returns a trajectory
    rollout of statistics: `jaxenvs.rollout(outputs="statistics")`
"""

import argparse
import dataclasses
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp

import jaxenvs
from benchmarks import _common
from benchmarks.rollout import OURS_IN_GYMNAX, Contestant, gymnax_batch, race
from jaxenvs import prng
from jaxenvs.catalog.gymnax_ids import GYMNAX_DEFAULTS

SUMS, USERS, STACKS, STACKS_ALL, RETURNS_ALL = (
    "a loop that sums",
    "a user's loop",
    "a loop that stacks",
    "a loop that stacks all",
    "a loop that stacks all, with statistics",
)
ROLLOUT, STATISTICS = "rollout", "rollout of statistics"
Step = Callable[[Any, chex.PRNGKey], tuple[Any, Any, Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.parser(
        "forms", __doc__ or "", num_envs=(64, 1024), repeats=9, peers=["gymnax"]
    )
    parser.set_defaults(ids=["CartPole-v1", "Pendulum-v1"])
    parser.add_argument("--steps", type=int, default=1024, help="steps per rollout (default 1,024)")
    options = parser.parse_args(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures everything that `options` select; returns the report that is written as JSON."""
    report = _common.new_report("forms", arguments, ["gymnax"], options.repeats)
    measurements = []
    for id, num_envs in itertools.product(options.ids, options.num_envs):
        contestants = [*ours(id, num_envs, options.steps)]
        if "gymnax" in options.peers and id in OURS_IN_GYMNAX:
            contestants += gymnax(id, num_envs, options.steps)
        found = race(id, num_envs, contestants, options)
        measurements += map(dataclasses.asdict, found)
        if not options.quiet:
            line = ", ".join(
                f"{m.contestant} {statistics.median(m.steps_per_second) / 1e6:.1f}" for m in found
            )
            print(f"{id} N={num_envs}: {line} M steps/s", file=sys.stderr, flush=True)
    return report | {"measurements": measurements}


def ours(id: str, num_envs: int, steps: int) -> Iterator[Contestant]:
    """Yields the forms with jaxenvs; the first one is `rollout`, to which ratios refer."""
    env = jaxenvs.make_vec(id, num_envs, **GYMNAX_DEFAULTS.get(OURS_IN_GYMNAX.get(id, ""), {}))

    def run(outputs: Any) -> Callable[..., Any]:
        def play(state: Any, key: chex.PRNGKey) -> tuple[Any, jax.Array, jax.Array]:
            del key  # the state has one
            result = jaxenvs.rollout(env, None, steps, state=state, outputs=outputs)
            before = state.statistics.count.sum()
            count = result.statistics["count"]
            return result.state, result.statistics["return_mean"], count - before

        return play

    start = jaxenvs.rollout(env, None, 0, jax.random.key(0)).state
    yield Contestant(ROLLOUT, start, run("trajectory"))
    yield Contestant(STATISTICS, start, run("statistics"))

    def step(carry: Any, keys: Any) -> tuple[Any, Any, Any]:
        action = env.action_space.sample(keys[0])
        state, timestep = env.step(carry[0], action, keys[1])
        return (state, timestep.observation), action, timestep

    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    carry = state, timestep.observation
    yield from _loops("", carry, step, num_envs, steps, in_loop=True)


def gymnax(id: str, num_envs: int, steps: int) -> Iterator[Contestant]:
    """Yields the forms with gymnax, written as in its README."""
    start, step = gymnax_batch(id, num_envs)
    carry = jax.jit(start)(jax.random.key(0))
    loops = _loops("gymnax: ", carry, step, num_envs, steps, in_loop=False)
    yield from (loop for loop in loops if STACKS_ALL not in loop.name)


def _loops(
    prefix: str, start: Any, step: Step, num_envs: int, steps: int, *, in_loop: bool
) -> Iterator[Contestant]:
    """Yields the forms that are scans, given `step(carry, keys) -> (carry, action, timestep)`.

    With `in_loop`, keys are made in the loop, where it is faster for jaxenvs, except in the user's.
    """
    zeros = jnp.zeros(num_envs, jnp.float32), jnp.zeros(num_envs, jnp.int32)
    moments = (jnp.zeros((2, num_envs), jnp.float32),) * 3  # of returns and lengths

    def scan(body: Callable[..., Any], name: str) -> Callable[..., Any]:
        is_users = name == USERS
        zero = moments if name == RETURNS_ALL else zeros[0]

        def run(carry: Any, key: chex.PRNGKey) -> tuple[Any, jax.Array, jax.Array]:
            quick = prng.as_fast_key(key)

            def one(loop: Any, row: Any) -> Any:
                if is_users:
                    return body(loop, jax.random.split(row))
                keys = jax.random.split(jax.random.fold_in(quick, row)) if in_loop else row
                return body(loop, keys)

            rows = jnp.arange(steps)
            if is_users:
                rows = jax.random.split(key, steps)
            elif not in_loop:
                rows = jax.random.split(key, (steps, 2))
            loop, stacked = jax.lax.scan(one, (carry, zero, zeros[1]), rows)
            return loop[0], loop[1], loop[2].sum(), stacked

        program = jax.jit(run)
        return lambda carry, key: program(carry, key)[:3]

    def sums(loop: Any, keys: Any) -> Any:
        carry, total, finished = loop
        new, _, timestep = step(carry, keys)
        return (new, total + timestep.reward, finished + timestep.done.astype(jnp.int32)), None

    def users(loop: Any, keys: Any) -> Any:
        (carry, total, finished), _ = sums(loop, keys)
        read = jax.tree.leaves(loop[0][1])[0].reshape(num_envs, -1)[:, 0]
        return (carry, total + 0 * read.astype(jnp.float32), finished), None

    def stacks(loop: Any, keys: Any, *, is_all: bool = False) -> Any:
        carry, total, finished = loop
        new, action, timestep = step(carry, keys)
        row = carry[1], action, timestep.reward, timestep.terminated, timestep.truncated
        if is_all:
            row = *row, timestep.final_observation, timestep.final_info
        return (new, total, finished + timestep.done.astype(jnp.int32)), row

    def stacks_all(loop: Any, keys: Any) -> Any:
        return stacks(loop, keys, is_all=True)

    def returns_all(loop: Any, keys: Any) -> Any:
        carry, (running, sums, squares), finished = loop
        (new, _, finished), row = stacks_all((carry, None, finished), keys)
        running = running + jnp.stack([row[2], jnp.ones_like(row[2])])
        done = (row[3] | row[4]).astype(jnp.float32)[None]
        squares = squares + done * running * running
        moments = running * (1 - done), sums + done * running, squares
        return (new, moments, finished), row

    bodies = {
        SUMS: sums,
        USERS: users,
        STACKS: stacks,
        STACKS_ALL: stacks_all,
        RETURNS_ALL: returns_all,
    }
    for name, body in bodies.items():
        yield Contestant(prefix + name, start, scan(body, name))


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown: million steps per second of each form."""
    cases = list(dict.fromkeys((m["id"], m["num_envs"]) for m in report["measurements"]))
    forms = list(dict.fromkeys(m["contestant"] for m in report["measurements"]))
    speeds = {
        (m["id"], m["num_envs"], m["contestant"]): statistics.median(m["steps_per_second"]) / 1e6
        for m in report["measurements"]
    }
    lines = [
        _common.headline(report, "rollouts in several forms"),
        "",
        "| form | " + " | ".join(f"{id}, N = {number:,}" for id, number in cases) + " |",
        "|---|" + "--:|" * len(cases),
    ]
    for form in forms:
        row = (speeds.get((*case, form)) for case in cases)
        lines.append(f"| {form} | " + " | ".join(f"{x:.3g}" if x else "" for x in row) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
