"""Measures random-policy rollouts in one jitted scan: jaxenvs, gymnax, and a loop in C.

    python -m benchmarks.rollout --ids CartPole-v1 --num-envs 64,1024,16384
    python -m benchmarks.rollout --output auto    # everything, about ten minutes
    python -m benchmarks.rollout --variants reset_chunk=16 reset_chunk=N --peers ""
    python -m benchmarks.rollout --ids MinAtar/Seaquest-v1 --steps 16 \
        --keep benchmarks/results/NAME.json --output auto    # keeps the file's other measurements
    python -m benchmarks.rollout --ids MiniGrid-DoorKey-8x8-v0 --max-steps 10,100,1000
    python -m benchmarks.rollout --load benchmarks/results/NAME.json

A rollout is `--steps` steps of N instances. Each contestant draws actions from its own action space
inside the loop, restarts finished episodes, returns the last state and observation, sums the
rewards, and counts the finished episodes. README.md describes how the comparison is kept fair.
"""

import argparse
import dataclasses
import functools
import importlib
import itertools
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from benchmarks import _common, limit
from benchmarks._common import OURS
from jaxenvs import prng
from jaxenvs.catalog.gymnax_ids import GYMNAX_DEFAULTS, GYMNAX_IDS

NUM_ENVS = (1, 16, 64, 256, 1024, 4096, 16384, 65536)
PEERS = ("gymnax", "pgx", "navix", "xminigrid", "envpool", "minigrid", "limit", "scalar")
IDS = (*_common.IDS, "bsuite/catch-v0")
OURS_IN_GYMNAX = {ours: theirs for theirs, ours in GYMNAX_IDS.items()}
ENVPOOL_IDS = {
    id: id
    for id in (
        "FrozenLake-v1",
        "FrozenLake8x8-v1",
        "Taxi-v3",
        "CliffWalking-v1",
        "CliffWalkingSlippery-v1",
        "Blackjack-v1",
        "NChain-v0",
    )
} | {"bsuite/catch-v0": "Catch-v0"}
LEVELS = ("MiniGrid-", "BabyAI-")
IDS_IN_XMINIGRID = {
    f"MiniGrid-{name}-v0": f"MiniGrid-{theirs}"
    for name, theirs in (
        *((f"Empty-{size}x{size}", f"Empty-{size}x{size}") for size in (5, 6, 8, 16)),
        *((f"DoorKey-{size}x{size}", f"DoorKey-{size}x{size}") for size in (5, 6, 8, 16)),
        ("FourRooms", "FourRooms"),
    )
}

Rollout = Callable[[Any, chex.PRNGKey], tuple[Any, chex.Numeric, chex.Numeric]]


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A compiled rollout of one library."""

    name: str
    carry: Any  # state and observation to start from
    run: Rollout  # (carry, key) -> (carry, sum of rewards, number of finished episodes)
    trace_seconds: float = 0.0
    compile_seconds: float = 0.0
    compiled: jax.stages.Compiled | None = None


@dataclasses.dataclass(frozen=True)
class Measurement:
    """Results of one contestant for one id and one N."""

    id: str
    num_envs: int
    steps: int  # per rollout
    contestant: str
    trace_seconds: float
    compile_seconds: float
    calls: int  # rollouts per sample
    steps_per_second: list[float]  # one value per repetition
    ours_over_this: list[float]  # ratio within each repetition
    mean_episode_length: float  # steps per finished episode: shows that the work is the same
    bytes_per_instance: float  # of state and observation, 0 if they are not arrays


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    options = _parse(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Measures everything that `options` select; returns the report that is written as JSON."""
    for reason in _missing(options.peers):
        print(f"note: {reason}", file=sys.stderr)
    report = _common.new_report("rollout", arguments, ["gymnax"], options.repeats)
    report["machine"] |= {"c_compiler": limit.compiler(), "c_flags": " ".join(limit.FLAGS)}
    cases: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for entry in _common.kept(options.keep, report):
        cases.setdefault((entry["id"], entry["num_envs"]), []).append(entry)
    wanted = itertools.product(options.ids, options.max_steps or [None], options.num_envs)
    with _common.no_compilation_cache():
        for id, max_steps, num_envs in wanted:
            contestants = list(build_contestants(id, num_envs, options, max_steps))
            name = id if max_steps is None else f"{id}, {max_steps} steps"
            measurements = race(name, num_envs, contestants, options)
            cases[name, num_envs] = [dataclasses.asdict(each) for each in measurements]
            if not options.quiet:
                line = ", ".join(
                    f"{m.contestant} {statistics.median(m.steps_per_second) / 1e6:.2f}"
                    for m in measurements
                )
                print(f"{name} N={num_envs}: {line} M steps/s", file=sys.stderr, flush=True)
    return report | {"measurements": [entry for case in cases.values() for entry in case]}


def build_contestants(
    id: str, num_envs: int, options: argparse.Namespace, max_steps: int | None = None
) -> Iterator[Contestant]:
    """Builds and compiles the contestants: jaxenvs, its variants, and the peers, in this order.

    `max_steps` is a time limit for a level of MiniGrid, instead of its own.
    """
    steps = options.steps
    yield ours(id, num_envs, steps, max_steps=max_steps)
    for variant in options.variants:
        yield ours(id, num_envs, steps, variant, max_steps)
    for peer in options.peers:
        if peer == "gymnax" and _common.version("gymnax") and id in OURS_IN_GYMNAX:
            yield gymnax(id, num_envs, steps)
        elif peer == "pgx" and _common.version("pgx") and id.startswith("MinAtar/"):
            yield pgx(id, num_envs, steps)
        elif peer == "navix" and _common.version("navix") and _in_navix(id):
            yield navix(id, num_envs, steps, max_steps)
        elif peer == "xminigrid" and _common.version("xminigrid") and id in IDS_IN_XMINIGRID:
            yield xminigrid(id, num_envs, steps, max_steps)
        elif peer == "envpool" and _common.version("envpool") and _in_envpool(id):
            yield envpool(id, num_envs, steps, max_steps)
        elif peer == "minigrid" and _common.version("minigrid") and id.startswith(LEVELS):
            yield minigrid(id, num_envs, steps, max_steps)
        elif peer in ("limit", "scalar") and id == "CartPole-v1" and limit.compiler():
            cores = _common.cores()
            counts = range(1, (os.cpu_count() or 1) + 1) if options.all_threads else {1, cores}
            for num_threads in sorted(counts):
                yield c_loop(num_envs, steps, num_threads, vectorize=peer == "limit")


def ours(
    id: str, num_envs: int, steps: int, variant: str = "", max_steps: int | None = None
) -> Contestant:
    """Returns jaxenvs with the arguments of `make_vec` in `variant`, such as "reset_chunk=N".

    A variant may also have `unroll`, that of the scan, and options of XLA, such as
    "xla_gpu_enable_command_buffer=FUSION+WHILE". Sizes and the dtype of observations are gymnax's,
    where it has the environment.
    """
    defaults = GYMNAX_DEFAULTS.get(OURS_IN_GYMNAX.get(id, ""), {})
    limit = {} if max_steps is None else {"max_steps": max_steps}
    keywords = _common.variant(variant, num_envs)
    unroll = keywords.pop("unroll", 1)
    names = [name for name in keywords if name.startswith("xla_")]
    xla: dict[str, str | bool] = {name: str(keywords.pop(name)).replace("+", ",") for name in names}
    env = jaxenvs.make_vec(id, num_envs, **defaults | limit | keywords)

    def start(key: chex.PRNGKey) -> Any:
        state, timestep = env.reset(key)
        return state, timestep.observation

    def step(carry: Any, keys: chex.PRNGKey) -> tuple[Any, jax.Array, jax.Array]:
        action = env.action_space.sample(keys[0])
        state, timestep = env.step(carry[0], action, keys[1])
        return (state, timestep.observation), timestep.reward, timestep.done

    name = f"{OURS}[{variant}]" if variant else OURS
    return _compile(name, start, step, num_envs, steps, hash_in_loop=True, unroll=unroll, xla=xla)


def gymnax(id: str, num_envs: int, steps: int) -> Contestant:
    """Returns gymnax as in its README: `vmap(env.step)` over split keys, with its own autoreset.

    Only the actions differ: they are drawn for the whole batch in one call, which is faster than
    `vmap(env.action_space(params).sample)` over more split keys.
    """
    start, transition = gymnax_batch(id, num_envs)

    def step(carry: Any, keys: chex.PRNGKey) -> tuple[Any, jax.Array, jax.Array]:
        carry, _, timestep = transition(carry, keys)
        return carry, timestep.reward, timestep.done

    return _compile("gymnax", start, step, num_envs, steps)


def gymnax_batch(id: str, num_envs: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns `start(key) -> carry` and `step(carry, keys) -> (carry, action, timestep)`.

    The carry is the state and the observation.
    """
    import gymnax as library
    from gymnax.environments import spaces

    env, params = library.make(OURS_IN_GYMNAX[id])
    space = env.action_space(params)

    def start(key: chex.PRNGKey) -> Any:
        keys = jax.random.split(key, num_envs)
        observation, state = jax.vmap(env.reset, in_axes=(0, None))(keys, params)
        return state, observation

    def sample(key: chex.PRNGKey) -> jax.Array:
        if isinstance(space, spaces.Discrete):
            return jax.random.randint(key, (num_envs,), 0, space.n)
        return jax.random.uniform(key, (num_envs, *space.shape), jnp.float32, space.low, space.high)

    def step(carry: Any, keys: chex.PRNGKey) -> tuple[Any, jax.Array, jaxenvs.TimeStep]:
        step_keys, action = jax.random.split(keys[1], num_envs), sample(keys[0])
        observation, state, reward, terminated, truncated, info = jax.vmap(
            env.step, in_axes=(0, 0, 0, None)
        )(step_keys, carry[0], action, params)
        timestep = jaxenvs.TimeStep(
            observation=observation,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            info=info,
            final_observation=None,  # gymnax has none
            final_info=None,
        )
        return (state, observation), action, timestep

    return start, step


def pgx(id: str, num_envs: int, steps: int) -> Contestant:
    """Returns pgx as in its documentation: `vmap` of its auto-reset step, with the same actions."""
    from pgx.experimental import auto_reset

    name = id.removeprefix("MinAtar/").rpartition("-")[0]
    module = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    game = getattr(importlib.import_module(f"pgx.minatar.{module}"), f"MinAtar{name}")
    env = game(use_minimal_action_set=id.endswith("-v1"))

    def start(key: chex.PRNGKey) -> Any:
        state = jax.vmap(env.init)(jax.random.split(key, num_envs))
        return state, state.observation

    def step(carry: Any, keys: chex.PRNGKey) -> tuple[Any, jax.Array, jax.Array]:
        action = jax.random.randint(keys[0], (num_envs,), 0, env.num_actions)
        step_keys = jax.random.split(keys[1], num_envs)
        state = jax.vmap(auto_reset(env.step, env.init))(carry[0], action, step_keys)
        return (state, state.observation), state.rewards[:, 0], state.terminated | state.truncated

    return _compile("pgx", start, step, num_envs, steps)


def navix(id: str, num_envs: int, steps: int, max_steps: int | None) -> Contestant:
    """Returns navix as in its README, with minigrid's view and time limit.

    Its view differs from minigrid's: it shows what is behind walls.
    """
    import navix as library

    view: Any = library.observations.symbolic_first_person
    limit = max_steps or jaxenvs.make(id).time_limit
    env: Any = library.make(_in_navix(id), observation_fn=view, max_steps=limit)

    def start(key: chex.PRNGKey) -> Any:
        timestep = jax.vmap(env.reset)(jax.random.split(key, num_envs))
        return timestep, timestep.observation

    def step(carry: Any, keys: chex.PRNGKey) -> tuple[Any, jax.Array, jax.Array]:
        action = jax.random.randint(keys[0], (num_envs,), 0, len(env.action_set))
        timestep = jax.vmap(env.step)(carry[0], action)
        return (timestep, timestep.observation), timestep.reward, timestep.is_done()

    return _compile("navix", start, step, num_envs, steps)


def _in_envpool(id: str) -> bool:
    return id in ENVPOOL_IDS or id.startswith(LEVELS)


def _in_navix(id: str) -> str | None:
    """Returns the navix id that matches a minigrid id, or None if navix lacks the level."""
    import navix as library

    name = id.replace("MiniGrid-DoorKey-", "MiniGrid-DoorKey-Random-")  # as in minigrid
    theirs = name.replace("MiniGrid-", "Navix-")
    return theirs if theirs in library.registry() else None


def xminigrid(id: str, num_envs: int, steps: int, max_steps: int | None) -> Contestant:
    """Returns XLand-MiniGrid as in its README, with minigrid's time limit.

    It has six actions, and two channels in its view, which shows what is behind walls.
    """
    import xminigrid as library
    from xminigrid.wrappers import GymAutoResetWrapper

    limit = max_steps or jaxenvs.make(id).time_limit
    env, params = library.make(IDS_IN_XMINIGRID[id], max_steps=limit)
    env = GymAutoResetWrapper(env)

    def start(key: chex.PRNGKey) -> Any:
        keys = jax.random.split(key, num_envs)
        timestep = jax.vmap(env.reset, in_axes=(None, 0))(params, keys)
        return timestep, timestep.observation

    def step(carry: Any, keys: chex.PRNGKey) -> tuple[Any, jax.Array, jax.Array]:
        action = jax.random.randint(keys[0], (num_envs,), 0, env.num_actions(params))
        timestep = jax.vmap(env.step, in_axes=(None, 0, 0))(params, carry[0], action)
        return (timestep, timestep.observation), timestep.reward, timestep.last()

    return _compile("XLand-MiniGrid", start, step, num_envs, steps)


def envpool(id: str, num_envs: int, steps: int, max_steps: int | None) -> Contestant:
    """Returns EnvPool with one thread, stepped by a loop in Python."""
    import envpool as library
    import gymnasium

    options = {"num_envs": num_envs, "num_threads": 1, "seed": 0}
    if max_steps is not None:
        options["max_episode_steps"] = max_steps
    env: Any = library.make(ENVPOOL_IDS.get(id, id), env_type="gymnasium", **options)
    assert isinstance(env.action_space, gymnasium.spaces.Discrete)
    return _loop("EnvPool, 1 thread", env, env.action_space.n, num_envs, steps)


def minigrid(id: str, num_envs: int, steps: int, max_steps: int | None) -> Contestant:
    """Returns minigrid's own environments in a pool of jaxenvs, without their missions."""
    limit = {} if max_steps is None else {"max_steps": max_steps}
    make = functools.partial(_make_minigrid, id, **limit)
    pool = jaxenvs.make_pool(make, num_envs, backend="process")
    num_actions = jaxenvs.make(id).action_space.n  # pyright: ignore[reportAttributeAccessIssue]
    return _loop("minigrid in a pool", pool, num_actions, num_envs, steps)


def _make_minigrid(id: str, **limit: int) -> Any:
    import gymnasium
    from minigrid.wrappers import ImgObsWrapper

    return ImgObsWrapper(gymnasium.make(id, **limit))


def _loop(name: str, env: Any, num_actions: Any, num_envs: int, steps: int) -> Contestant:
    """Returns a loop in Python over a batch of Gymnasium, with actions drawn before."""
    env.reset()
    actions = np.random.default_rng(0).integers(num_actions, size=(steps, num_envs))
    actions = actions.astype(np.int32)

    def run(carry: Any, key: chex.PRNGKey) -> tuple[Any, chex.Numeric, chex.Numeric]:
        del key  # the environments carry their own generators
        total, finished = np.zeros(num_envs), np.zeros(num_envs, int)
        for action in actions:
            _, reward, terminated, truncated, _ = env.step(action)
            total += reward
            finished += terminated | truncated
        return carry, total.sum(), finished.sum()

    return Contestant(name, None, run)


def c_loop(num_envs: int, steps: int, num_threads: int, *, vectorize: bool = True) -> Contestant:
    """Returns the C loop of CartPole-v1 on `num_threads` threads."""
    lanes = limit.CartPoleLanes(num_envs, vectorize=vectorize)

    def run(carry: Any, key: chex.PRNGKey) -> tuple[Any, chex.Numeric, chex.Numeric]:
        del key  # the lanes carry their own generators
        return carry, float(num_envs * steps), lanes.rollout(steps, num_threads)

    name = "limit" if vectorize else "scalar"
    return Contestant(f"{name}, {num_threads} thread{'s' * (num_threads > 1)}", None, run)


def _compile(
    name: str,
    start: Callable[[chex.PRNGKey], Any],
    step: Callable[[Any, chex.PRNGKey], tuple[Any, jax.Array, jax.Array]],
    num_envs: int,
    num_steps: int,
    *,
    hash_in_loop: bool = False,
    unroll: int = 1,
    xla: dict[str, str | bool] | None = None,
) -> Contestant:
    def rollout(carry: Any, key: chex.PRNGKey) -> tuple[Any, jax.Array, jax.Array]:
        quick = prng.as_fast_key(key)

        def body(loop: Any, row: Any) -> tuple[Any, None]:
            keys = jax.random.split(jax.random.fold_in(quick, row)) if hash_in_loop else row
            carry, total, finished = loop
            carry, reward, done = step(carry, keys)
            return (carry, total + reward, finished + done.astype(jnp.int32)), None

        # Keys are made where it is faster for each library: jaxenvs' generator fuses with its
        # consumers, as in `jaxenvs.rollout`; JAX's would be a serial loop in every step. Rewards
        # are summed per instance, so neither needs a reduction in the loop.
        rows = jnp.arange(num_steps) if hash_in_loop else jax.random.split(key, (num_steps, 2))
        zeros = jnp.zeros(num_envs, jnp.float32), jnp.zeros(num_envs, jnp.int32)
        carry, total, finished = jax.lax.scan(body, (carry, *zeros), rows, unroll=unroll)[0]
        return carry, total.sum(), finished.sum()

    key = jax.random.key(0)
    carry = jax.jit(start)(key)
    begin = time.perf_counter()
    lowered = jax.jit(rollout).lower(carry, key)
    traced = time.perf_counter()
    compiled = lowered.compile(compiler_options=xla)
    done = time.perf_counter()
    return Contestant(name, carry, compiled, traced - begin, done - traced, compiled)


def race(
    id: str, num_envs: int, contestants: Sequence[Contestant], options: argparse.Namespace
) -> list[Measurement]:
    """Measures the contestants in turn, `options.repeats` times, in rotating order."""
    entries = [_Entry(contestant) for contestant in contestants]
    samplers = [entry.sampler for entry in entries]
    _common.alternate(samplers, options.repeats, options.min_seconds)
    steps = num_envs * options.steps
    speeds = [[steps * sampler.calls / s for s in sampler.seconds] for sampler in samplers]
    return [
        Measurement(
            id=id,
            num_envs=num_envs,
            steps=options.steps,
            contestant=entry.contestant.name,
            trace_seconds=entry.contestant.trace_seconds,
            compile_seconds=entry.contestant.compile_seconds,
            calls=entry.sampler.calls,
            steps_per_second=speed,
            ours_over_this=[a / b for a, b in zip(speeds[0], speed, strict=True)],
            mean_episode_length=steps * entry.total_calls / max(entry.finished, 1),
            bytes_per_instance=_bytes(entry.contestant.carry) / num_envs,
        )
        for entry, speed in zip(entries, speeds, strict=True)
    ]


def _bytes(carry: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(carry))


class _Entry:
    """A contestant with its current state and its samples."""

    def __init__(self, contestant: Contestant) -> None:
        self.contestant = contestant
        self.sampler = _common.Sampler(self._run)
        self.total_calls, self.finished = 0, 0
        self._carry = contestant.carry
        self._keys = list(jax.random.split(jax.random.key(1), 32))

    def _run(self, calls: int) -> float:
        carry, counts = self._carry, []
        begin = time.perf_counter()
        for call in range(calls):
            carry, total, finished = self.contestant.run(carry, self._keys[call % len(self._keys)])
            jax.block_until_ready((carry, total))
            counts.append(finished)
        seconds = time.perf_counter() - begin
        self._carry = carry
        self.total_calls += calls
        self.finished += sum(int(count) for count in counts)
        return seconds


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown: million steps per second with quartiles, and ratios."""
    lines = [
        _common.headline(report, "rollouts"),
        "",
        "| id | N | steps | contestant | M steps/s | jaxenvs / this | µs per step | episode length "
        "| trace s | compile s |",
        "|---|--:|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for entry in report["measurements"]:
        low, middle, high = _common.quartiles(entry["steps_per_second"])
        ratio = _common.quartiles(entry["ours_over_this"])
        ours = entry["contestant"] == OURS
        lines.append(
            f"| {entry['id']} | {entry['num_envs']:,} | {entry['steps']} | {entry['contestant']} "
            f"| {middle / 1e6:.2f} [{low / 1e6:.2f}, {high / 1e6:.2f}] "
            f"| {'' if ours else f'{ratio[1]:.3g} [{ratio[0]:.3g}, {ratio[2]:.3g}]'} "
            f"| {entry['num_envs'] / middle * 1e6:.2f} | {entry['mean_episode_length']:.1f} "
            f"| {entry['trace_seconds']:.2f} | {entry['compile_seconds']:.2f} |"
        )
    return "\n".join(lines)


def _missing(peers: Sequence[str]) -> Iterator[str]:
    if "gymnax" in peers and not _common.version("gymnax"):
        yield "gymnax is skipped: it is not installed."
    if {"limit", "scalar"} & set(peers) and not limit.compiler():
        yield "the C loop is skipped: there is no C compiler. Set CC or install one."


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _common.parser("rollout", __doc__ or "", num_envs=NUM_ENVS, repeats=9, peers=PEERS)
    parser.set_defaults(ids=list(IDS))
    add = parser.add_argument
    add("--steps", type=int, default=256, help="steps per rollout (default 256)")
    add(
        "--max-steps",
        type=_common.numbers,
        default=[],
        help="comma-separated time limits of MiniGrid's levels",
    )
    add("--keep", help="JSON file whose other measurements are kept")
    add(
        "--all-threads",
        action="store_true",
        help="run the C loop on 1, 2, ... threads instead of on 1 and all",
    )
    add(
        "--variants",
        nargs="*",
        default=[],
        metavar="NAME=VALUE[,...]",
        help="also measure make_vec with these arguments, the scan with an unroll, and programs "
        "with options of XLA, see `ours`; the value N stands for num_envs",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
