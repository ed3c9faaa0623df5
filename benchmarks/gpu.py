"""Measures on the device that JAX has, such as a GPU, in eight minutes at most.

    python -m benchmarks.gpu --output auto
    python -m benchmarks.gpu --output auto --resume     # measures what was not measured before
    python -m benchmarks.gpu --only physics --output auto

The cases of all parts share the time. A case whose program would probably not compile in what is
left is not begun, and one that has not ended by then is given up; the report says so. It is written
after each case.

- "rollout": those of `benchmarks.rollout` for three ids, in turn with gymnax, with the number of
  kernels that one iteration of the loop launches.
- "training": PPO on CartPole-v1, in turn with PureJaxRL where its folder is.
- "pools": pools of processes that the program calls back to.
- "variants": rollouts with other resets, unrolled scans, and CUDA graphs of more of the loop.
- "physics": Hopper, HalfCheetah, Ant, and Humanoid with every engine of jaxenvs, and, if it is
  installed, tasks of MuJoCo Playground. N instances take random actions in a jitted scan and are
  reset when they end. Playground's tasks have other models and control steps, so physics steps per
  second are reported, too. The engine "c" runs on the processor.
- "atari": a game with small pictures, which runs on the processor and is called back.
"""

import argparse
import contextlib
import dataclasses
import functools
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxenvs
from benchmarks import _common, hlo, rollout
from benchmarks import _training_peers as peers
from benchmarks._common import OURS
from benchmarks.host.environments import NoOp, cartpole
from benchmarks.training import SIZES
from jaxenvs import physics

ROLLOUTS = "CartPole-v1", "MinAtar/Breakout-v1", "MiniGrid-DoorKey-8x8-v0"
GRAPHS = "xla_gpu_enable_command_buffer=FUSION+CUSTOM_CALL+CONDITIONAL+WHILE"
VARIANTS = (
    "xla_gpu_graph_min_graph_size=1",
    f"{GRAPHS},xla_gpu_graph_min_graph_size=1",
    "unroll=4",
    "xla_gpu_enable_command_buffer=",
    "reset_chunk=64",
    "reset_chunk=1024",
    f"{GRAPHS},xla_gpu_command_buffer_unroll_loops=True",
    "unroll=16",
)
IDS = "Hopper-v5", "HalfCheetah-v5", "Ant-v5", "Humanoid-v5"
GAME = "ALE/Breakout-v5"
PLAYGROUND = "HopperHop", "CheetahRun", "HumanoidRun"
ENGINES = *physics.ENGINES, "Playground, jax", "Playground, warp"
MOST_SAMPLES = 30  # of a case
Result = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """Something to measure: `run(end)` does so until about `end` (`time.perf_counter()`)."""

    name: dict[str, Any]
    program: Any  # cases with the same value take about the same time to compile
    run: Callable[[float], Result]


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("gpu", __doc__)
    add = parser.add_argument
    add(
        "--only",
        type=_common.choices(list(PARTS)),
        default=list(PARTS),
        help=f"of {', '.join(PARTS)}",
    )
    add("--minutes", type=float, default=8.0, help="for all parts together")
    add("--resume", action="store_true", help="keep what --output has, measure the other cases")
    add("--ids", type=_common.words, help="of rollouts and jaxenvs' physics, comma-separated")
    add("--num-envs", type=_common.numbers, help="of every part")
    add("--steps", type=int, help="steps in a scan, or of a training run")
    add("--variants", nargs="*", default=VARIANTS, help="as of benchmarks.rollout")
    add("--purejaxrl", type=Path, default=peers.PUREJAXRL, help=f"folder of {peers.WHERE}")
    add(
        "--playground",
        type=_common.words,
        default=list(PLAYGROUND),
        help="names of its environments",
    )
    add("--engines", default=";".join(ENGINES), help="of the physics, separated by semicolons")
    options = parser.parse_args(arguments)
    if options.resume and not options.output:
        parser.error("--resume needs --output.")
    _common.publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report. Its measurements name their part; those that failed have an error."""
    start = time.perf_counter()
    suites = ("gymnasium", "gymnax", "mujoco", "mujoco-mjx", "playground", "warp-lang")
    report = _common.new_report("gpu", arguments, (*suites, "flax", "optax"), MOST_SAMPLES)
    path = _common.path_of(options.output, report, "json") if options.resume else None
    earlier = _common.kept(str(path), report) if path and path.exists() else []
    done = [entry for entry in earlier if "error" not in entry]
    report["measurements"] = [*done]
    cases = [
        (part, case)
        for part in PARTS  # in this order: PureJaxRL replaces the gymnax of rollouts
        if part in options.only
        for case in PARTS[part](options)
        if not any({"part": part, **case.name}.items() <= entry.items() for entry in done)
    ]
    end = start + 60 * options.minutes
    compiled: dict[Any, float] = {}  # seconds, by program
    for i, (part, case) in enumerate(cases):
        now = time.perf_counter()
        if now + compiled.get(case.program, 0) >= end:
            found: Result = {"error": "no time was left"}
        else:
            found = _run(case, now + (end - now) / (len(cases) - i), end)
        compiled[case.program] = found.get("compile_seconds", 0)
        report["measurements"].append({"part": part, **case.name, **found})
        if not options.quiet:
            print(*_row(report["measurements"][-1]), sep=", ", flush=True)
        report["seconds"] = time.perf_counter() - start
        if options.output:
            _common.write(report, options.output)
        jax.clear_caches()  # and with them the memory of programs
    return report


def _run(case: Case, until: float, end: float) -> Result:
    """Runs a case in a thread, which is left alone if it has not ended at `end`."""
    results: list[Result] = []

    def run() -> None:
        try:
            results.append(case.run(until))
        except (Exception, SystemExit) as error:  # the other cases matter
            text = next(iter(str(error).strip().splitlines()), "")
            results.append({"error": f"{type(error).__name__}: {text[:200]}"})

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(0.0, end - time.perf_counter()))
    return results[0] if results else {"error": "it had not ended when the time was over"}


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    titles = "id", "engine", "N", "steps/s", "physics steps/s", "compile, s", "kernels", "times"
    lines = _common.markdown(titles, map(_row, report["measurements"]))
    return "\n".join([_common.headline(report, "steps"), "", *lines])


def _row(entry: dict[str, Any]) -> list[str]:
    case = [entry["id"], entry["engine"], f"{entry['num_envs']:,}"]
    if "error" in entry:
        return [*case, entry["error"], "", "", "", ""]
    middle = _common.quartiles(entry["steps_per_second"])[1]
    return [
        *case,
        _common.spread(entry["steps_per_second"], ",.0f"),
        f"{middle * entry['physics_steps']:,.0f}" if "physics_steps" in entry else "",
        f"{entry['compile_seconds']:.1f}",
        str(entry.get("kernels", "")),
        ", ".join(
            f"{peer['contestant']} {_common.quartiles(peer['ours_over_this'])[1]:.2f}×"
            for peer in entry.get("peers", ())
        ),
    ]


def _rollouts(options: argparse.Namespace) -> Iterator[Case]:
    """Yields the cases of jaxenvs and gymnax, those with few instances first."""
    for num_envs in options.num_envs or (1024, 16_384, 262_144):
        for id in options.ids or ROLLOUTS:
            has_peer = id in rollout.OURS_IN_GYMNAX and _common.version("gymnax")
            makes = (rollout.ours, rollout.gymnax) if has_peer else (rollout.ours,)
            yield _case(_rollout, id, OURS, num_envs, options.steps or 256, makes)


def _variants(options: argparse.Namespace) -> Iterator[Case]:
    for num_envs in options.num_envs or (16_384,):
        for variant in options.variants:
            make = functools.partial(rollout.ours, variant=variant)
            for id in options.ids or ROLLOUTS:
                name = f"{OURS}[{variant}]"
                yield _case(_rollout, id, name, num_envs, options.steps or 256, (make,))


def _trainings(options: argparse.Namespace) -> Iterator[Case]:
    """Yields the cases of PPO, those with many instances, which are faster, first."""
    has_peer = (options.purejaxrl / "ppo.py").exists()
    for num_envs, unroll_length in sorted(SIZES.values(), reverse=True):
        if num_envs in (options.num_envs or [num_envs]):
            chosen = unroll_length, options.purejaxrl if has_peer else None
            steps = options.steps or 524_288
            yield _case(_training, "CartPole-v1", f"{OURS}, PPO", num_envs, steps, chosen)


def _pools(options: argparse.Namespace) -> Iterator[Case]:
    for num_envs in options.num_envs or (64,):
        for id, make in (("no-op", NoOp), ("gymnasium/CartPole-v1", cartpole)):
            yield _case(_pool, id, "callback", num_envs, options.steps or 1000, make)


def _physics(options: argparse.Namespace) -> Iterator[Case]:
    """Yields the cases of physics, those with few instances first."""
    has_playground = importlib.util.find_spec("mujoco_playground") is not None
    steps = options.steps or 32
    for num_envs in options.num_envs or (1024, 4096, 8192):
        for engine in options.engines.split(";"):
            impl = engine.partition(", ")[2]
            if not impl:
                for id in options.ids or IDS:
                    yield _case(_ours, id, engine, num_envs, steps, engine)
            elif has_playground and (impl == "jax" or importlib.util.find_spec(impl)):
                for name in options.playground:
                    yield _case(_playground, name, engine, num_envs, steps, impl)


def _case(
    make: Callable[..., Result], id: str, engine: str, num_envs: int, steps: int, chosen: Any
) -> Case:
    name = {"id": id, "engine": engine, "num_envs": num_envs, "steps": steps}
    return Case(name, (id, engine), functools.partial(make, id, num_envs, steps, chosen))


def _atari(options: argparse.Namespace) -> Iterator[Case]:
    for num_envs in options.num_envs or (1024, 4096, 8192):
        yield _case(_game, GAME, "callback", num_envs, options.steps or 32, "")


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Case]]] = {
    "rollout": _rollouts,
    "training": _trainings,
    "pools": _pools,
    "variants": _variants,
    "physics": _physics,
    "atari": _atari,
}


def _rollout(
    id: str,
    num_envs: int,
    steps: int,
    makes: Sequence[Callable[..., rollout.Contestant]],
    until: float,
) -> Result:
    """Measures contestants of `benchmarks.rollout` in turn; the first one is ours."""
    contestants = [make(id, num_envs, steps) for make in makes]
    options = argparse.Namespace(repeats=5, min_seconds=0.05, steps=steps)
    ours, *peers = (
        {
            **dataclasses.asdict(measured),
            "kernels": hlo.kernels_in_longest_loop(hlo.program(contestant)),
        }
        for contestant, measured in zip(
            contestants, rollout.race(id, num_envs, contestants, options), strict=True
        )
    )
    del ours["ours_over_this"]
    return {**ours, "peers": peers}


def _training(
    id: str, num_envs: int, steps: int, chosen: tuple[int, Path | None], until: float
) -> Result:
    """Measures whole training runs, in turn with PureJaxRL's if its folder is given."""
    from jaxenvs.training import PPO, make_train

    unroll_length, folder = chosen
    settings: dict[str, Any] = {
        "num_envs": num_envs,
        "unroll_length": unroll_length,
        "total_steps": steps,
    }
    trains = {OURS: (make_train(id, PPO(), **settings), jax.random.key)}
    if folder is not None:
        peers.install()
        trains["PureJaxRL"] = peers.purejaxrl_ppo(folder, settings), jax.random.PRNGKey
    found = []
    for name, (train, make_key) in trains.items():
        start = time.perf_counter()
        program = jax.jit(train).lower(make_key(0)).compile()
        compile_seconds = time.perf_counter() - start
        call = functools.partial(program, make_key(0))
        found.append({"contestant": name, "compile_seconds": compile_seconds, "call": call})
    speeds = _speeds([each.pop("call") for each in found], steps, until)
    for each, speed in zip(found, speeds, strict=True):
        each["steps_per_second"] = speed
        each["ours_over_this"] = [a / b for a, b in zip(speeds[0], speed, strict=True)]
    return {**found[0], "peers": found[1:]}


def _pool(id: str, num_envs: int, steps: int, make: Callable[[], Any], until: float) -> Result:
    with jaxenvs.make_pool(
        [make] * num_envs, backend="process", num_workers=_common.cores()
    ) as pool:
        env = jaxenvs.HostEnv(pool, path="callback", final_observation=False)
        return _play(env, steps, until)


def _ours(id: str, num_envs: int, steps: int, engine: str, until: float) -> Result:
    is_on_cpu = engine == "c" and jax.default_backend() != "cpu"
    cpu = jax.default_device(jax.devices("cpu")[0]) if is_on_cpu else contextlib.nullcontext()
    with cpu:
        found = _play(jaxenvs.make_vec(id, num_envs, engine=engine), steps, until)
        return {**found, "physics_steps": jaxenvs.make(id, engine=engine).unwrapped._num_steps}  # pyright: ignore[reportAttributeAccessIssue]


def _game(id: str, num_envs: int, steps: int, _: str, until: float) -> Result:
    found = _play(jaxenvs.make_vec(id, num_envs, preprocessing=True), steps, until)
    return {**found, "physics_steps": 4}  # frames


def _play(env: Any, steps: int, until: float) -> Result:
    def step(state: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        action_key, step_key = jax.random.split(key)
        state, timestep = env.step(state, env.action_space.sample(action_key), step_key)
        return state, timestep.observation, timestep.reward

    return _scan(lambda key: env.reset(key)[0], step, env.num_envs, steps, until)


def _playground(name: str, num_envs: int, steps: int, impl: str, until: float) -> Result:
    """Measures Playground, whose resets return to the first state of an instance."""
    from mujoco_playground import registry, wrapper

    single = registry.load(name, config_overrides={"impl": impl})
    env = wrapper.wrap_for_brax_training(single)

    def reset(key: jax.Array) -> Any:
        return env.reset(jax.random.key_data(jax.random.split(key, num_envs)))  # keys of old

    def step(state: Any, key: jax.Array) -> tuple[Any, Any, Any]:
        action = jax.random.uniform(key, (num_envs, single.action_size), minval=-1, maxval=1)
        state = env.step(state, action)
        return state, state.obs, state.reward

    found = _scan(reset, step, num_envs, steps, until)
    return {**found, "physics_steps": single.n_substeps}


def _scan(
    reset: Callable[[jax.Array], Any],
    step: Callable[[Any, jax.Array], tuple[Any, Any, Any]],
    num_envs: int,
    steps: int,
    until: float,
) -> Result:
    """Returns the speed of a scan of steps, measured until a time, at least once."""

    @jax.jit
    def run(state: Any, key: jax.Array) -> Any:
        def body(carry: Any, _: None) -> Any:
            state, key, total = carry
            key, step_key = jax.random.split(key)
            state, observation, reward = step(state, step_key)
            leaves = jax.tree.leaves((observation, reward))
            seen = sum(jnp.sum(leaf, dtype=jnp.float32) for leaf in leaves)
            return (state, key, total + seen), None

        return jax.lax.scan(body, (state, key, jnp.float32(0)), length=steps)[0]

    start = time.perf_counter()
    state = jax.block_until_ready(jax.jit(reset)(jax.random.key(0)))
    program = run.lower(state, jax.random.key(1)).compile()
    compile_seconds = time.perf_counter() - start
    key = jax.random.key(1)

    def call() -> Any:
        nonlocal state, key
        state, key, total = program(state, key)
        return total

    (speeds,) = _speeds([call], num_envs * steps, until)
    return {"steps_per_second": speeds, "compile_seconds": compile_seconds}


def _speeds(calls: Sequence[Callable[[], Any]], steps: int, until: float) -> list[list[float]]:
    """Returns steps per second of calls, which take turns until a time.

    The first of each is left out, because it takes longer.
    """
    speeds: list[list[float]] = [[] for _ in calls]
    while not speeds[0] or (time.perf_counter() < until and len(speeds[0]) < MOST_SAMPLES):
        for call, found in zip(calls, speeds, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(call())
            found.append(steps / (time.perf_counter() - start))
    return [found[1:] or found for found in speeds]


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # without waiting for a program that still compiles
