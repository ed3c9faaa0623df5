"""Measures Atari games with small pictures, beside EnvPool and ale_py's vector environment.

    python -m benchmarks.atari --output auto

All contestants of a case step N instances with random actions: four frames, the greater of the last
two, 84 x 84, a stack of four, automatic resets; in one process and in turn, with 1 thread and 2:

- "jit": `make_vec` in a jitted scan;
- "make_gym", "EnvPool", and "AtariVectorEnv", stepped from Python;
- "ram": as "jit", without pictures;
- "branch": a game copied N times, and a step of each copy. Only if it is chosen, such as with
  `--contestants branch --num-envs 100000`.
"""

import argparse
import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import jaxenvs
from benchmarks import _common

GAMES = (
    *("pong", "breakout", "space_invaders", "seaquest", "qbert", "beam_rider", "enduro"),
    *("ms_pacman", "montezuma_revenge", "asterix", "boxing", "riverraid"),
)
LIMIT = 27_000  # steps of an episode
Run = Callable[[int], float]  # steps N instances this many times and returns the seconds
Made = Iterator[tuple[Run, int]]  # with the steps of an instance in a call


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("atari", __doc__)
    add = parser.add_argument
    add("--games", type=_common.words, default=list(GAMES), help="comma-separated")
    add("--num-envs", type=_common.numbers, default=[16, 64, 256, 1024], help="comma-separated")
    add("--threads", type=_common.numbers, default=[1, 2], help="comma-separated")
    usual = [name for name in CONTESTANTS if name != "branch"]
    add("--contestants", type=_common.words, default=usual, help="comma-separated")
    add("--repeats", type=int, default=5, help="number of repetitions (default 5)")
    add("--min-seconds", type=float, default=0.3, help="minimum duration of a sample")
    add("--keep", help="JSON file whose measurements of other cases are kept")
    options = parser.parse_args(arguments)
    _common.publish(options, functools.partial(measure, options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report."""
    report = _common.new_report("atari", arguments, ("ale_py", "envpool"), options.repeats)
    cases = list(itertools.product(options.games, options.num_envs, options.threads))
    names = "game", "num_envs", "threads"
    report["measurements"] = [
        entry
        for entry in _common.kept(options.keep, report)
        if tuple(entry[name] for name in names) not in cases
    ]
    for case in cases:
        report["measurements"] += _measure_case(*case, options)
    return report


def _measure_case(
    game: str, num_envs: int, threads: int, options: argparse.Namespace
) -> list[dict[str, Any]]:
    with contextlib.ExitStack() as stack:
        made = [
            stack.enter_context(CONTESTANTS[name](game, num_envs, threads))
            for name in options.contestants
        ]
        runs = [(run, steps * num_envs) for run, steps in made]
        found = _common.speeds(runs, options.repeats, options.min_seconds)
    entries = []
    for name, measured in zip(options.contestants, found, strict=True):
        case = {"game": game, "num_envs": num_envs, "threads": threads, "contestant": name}
        entries.append({**case, "steps_per_second": measured})
        if not options.quiet:
            print(*_row(entries[-1]), sep=", ", flush=True)
    return entries


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    titles = "game", "N", "threads", "contestant", "steps/s"
    lines = _common.markdown(titles, map(_row, report["measurements"]))
    return "\n".join([_common.headline(report, "steps"), "", *lines])


def _row(entry: dict[str, Any]) -> list[str]:
    case = [entry["game"], f"{entry['num_envs']:,}", f"{entry['threads']}", entry["contestant"]]
    return [*case, _common.spread(entry["steps_per_second"], ",.0f")]


def _id(game: str) -> str:
    (id,) = (id for id, spec in jaxenvs.registry.items() if spec.kwargs.get("game") == game)
    return id


def _made(make: Callable[..., Any], game: str, *args: int, **parameters: Any) -> Any:
    same = {"preprocessing": True, "repeat_action_probability": 0.0}
    return make(_id(game), *args, **same | parameters)


@contextlib.contextmanager
def _jit(obs_type: str, game: str, num_envs: int, threads: int) -> Made:
    parameters = {"obs_type": obs_type, "preprocessing": obs_type != "ram", "num_threads": threads}
    env = _made(jaxenvs.make_vec, game, num_envs, **parameters)
    steps = 16

    @jax.jit
    def scan(state: Any, key: jax.Array, actions: jax.Array) -> Any:
        def step(carry: Any, action: jax.Array) -> Any:
            state, key, total = carry
            key, step_key = jax.random.split(key)
            state, timestep = env.step(state, action, step_key)
            return (state, key, total + timestep.reward.sum()), None

        return jax.lax.scan(step, (state, key, jnp.float32(0)), actions)[0]

    carry = jax.jit(env.reset)(jax.random.key(0))[0], jax.random.key(1)
    actions = _common.random_actions(env.single_action_space, (steps, num_envs))

    def run(calls: int) -> float:
        nonlocal carry
        start = time.perf_counter()
        for _ in range(calls):
            *carry, total = scan(*carry, actions)
            total.block_until_ready()
        return time.perf_counter() - start

    yield run, steps


@contextlib.contextmanager
def _make_gym(game: str, num_envs: int, threads: int) -> Made:
    env = _made(jaxenvs.make_gym, game, num_envs, num_threads=threads)
    env.reset(seed=0)
    yield _common.stepping(env.step, env.single_action_space, num_envs), 1
    env.close()


@contextlib.contextmanager
def _envpool(game: str, num_envs: int, threads: int) -> Made:
    import envpool

    same = {"use_fire_reset": False, "noop_max": 30, "max_episode_steps": LIMIT}
    name = _id(game).removeprefix("ALE/")
    pool: Any = envpool.make(name, "gymnasium", num_envs=num_envs, num_threads=threads, **same)
    pool.reset()
    yield _common.stepping(pool.step, pool.action_space, num_envs), 1
    pool.close()


@contextlib.contextmanager
def _vector(game: str, num_envs: int, threads: int) -> Made:
    from ale_py.vector_env import AtariVectorEnv

    same = {"use_fire_reset": False, "reward_clipping": False, "noop_max": 30}
    env: Any = AtariVectorEnv(game=game, num_envs=num_envs, num_threads=threads, **same)
    env.reset()
    yield _common.stepping(env.step, env.single_action_space, num_envs), 1
    env.close()


@contextlib.contextmanager
def _branch(game: str, num_envs: int, threads: int) -> Made:
    parameters = {"obs_type": "ram", "preprocessing": False, "num_threads": threads}
    env, key = _made(jaxenvs.make, game, **parameters), jax.random.key(0)
    state, _ = env.reset(key)

    @jax.jit
    def branches(state: Any, actions: jax.Array) -> Any:
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (num_envs, *x.shape)), state)
        return jax.vmap(env.step, (0, 0, None))(states, actions, key)[0]

    actions = _common.random_actions(env.action_space, (num_envs,))

    def run(calls: int) -> float:
        start = time.perf_counter()
        for _ in range(calls):
            jax.block_until_ready(branches(state, actions))
        return time.perf_counter() - start

    yield run, 1


CONTESTANTS: dict[str, Callable[..., contextlib.AbstractContextManager[Any]]] = {
    "jit": functools.partial(_jit, "grayscale"),
    "ram": functools.partial(_jit, "ram"),
    "make_gym": _make_gym,
    "EnvPool": _envpool,
    "AtariVectorEnv": _vector,
    "branch": _branch,
}


if __name__ == "__main__":
    main()
