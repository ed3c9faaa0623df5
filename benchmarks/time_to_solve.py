"""Measures the time until CartPole-v1 is solved, compared with Stable-Baselines3's PPO.

After every 2,048 environment steps, the greedy policy plays 100 new episodes. The task is solved
when their mean return is 475 or more. The time of these evaluations is not counted.

    python -m benchmarks.time_to_solve --output auto
    python -m benchmarks.time_to_solve --seeds 2 --contestants jaxenvs,sb3-1thread

Stable-Baselines3 uses the settings of its zoo, with torch's default number of threads and with one.
jaxenvs' PPO uses the zoo's settings too, and others that were chosen on this task. Importing the
libraries is not counted. Compiled programs are dropped before each run. `compile again` is the time
to compile with programs in JAX's cache on disk.
"""

import argparse
import contextlib
import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

import jaxenvs
from benchmarks import _common
from jaxenvs.training import PPO, LearnerState, Train, make_train

ID = "CartPole-v1"
SOLVED, EPISODES = 475, 100
EVERY = 2_048  # environment steps between evaluations; a multiple of each contestant's update
STEPS = 100_000  # length of schedules and of a failed training
EVALUATION = 1_000_003  # first seed of the evaluations; training runs use 0, 1, ...
PEER = "sb3"
TARGET = 10.0

# rl-baselines3-zoo, hyperparams/ppo.yml, CartPole-v1. Learning rate and clip fall linearly to 0.
ZOO_ENVS, ZOO_UNROLL = 8, 32
ZOO = PPO(
    learning_rate=1e-3,
    gamma=0.98,
    gae_lambda=0.8,
    clip=0.2,
    entropy_coefficient=0.0,
    epochs=20,
    minibatches=1,
    clip_value=False,
)


class Clock:
    """Times one training run without its evaluations."""

    def __init__(self, max_steps: int) -> None:
        self.ready_seconds = self.seconds = self.evaluation_seconds = 0.0
        self.returns: list[float] = []
        self._max_steps, self._since = max_steps, 0.0

    def start(self) -> None:
        """Starts to time the preparation."""
        self._since = time.perf_counter()

    def ready(self) -> None:
        """Ends the preparation and starts to time the training."""
        self.ready_seconds, self._since = self._lap(), time.perf_counter()

    def evaluate(self, mean_return: Callable[[], float]) -> bool:
        """Evaluates after `EVERY` more steps, untimed; returns whether to continue training."""
        self.seconds += self._lap()
        begin = time.perf_counter()
        self.returns.append(mean_return())
        self._since = time.perf_counter()
        self.evaluation_seconds += self._since - begin
        return not self.is_solved and self.steps + EVERY <= self._max_steps

    @property
    def steps(self) -> int:
        """Returns the number of environment steps so far."""
        return len(self.returns) * EVERY

    @property
    def is_solved(self) -> bool:
        """Returns whether the last evaluation reached the required return."""
        return self.returns[-1] >= SOLVED

    def _lap(self) -> float:
        return time.perf_counter() - self._since


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("time_to_solve", __doc__)
    names = list(CONTESTANTS)
    add = parser.add_argument
    add(
        "--contestants",
        type=_common.words,
        default=names,
        help=f"comma-separated: {', '.join(names)}",
    )
    add("--seeds", type=int, default=9, help="training runs per contestant (default 9)")
    add("--steps", type=int, default=STEPS, help="steps after which a training run has failed")
    options = parser.parse_args(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Returns the report. The contestants train in turn."""
    packages = ("flax", "optax", "gymnasium", "stable_baselines3", "torch")
    report = _common.new_report("time_to_solve", arguments, packages, options.seeds)
    names = list(options.contestants)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name in names:  # warm-up: the first training in a process also initializes its libraries
        _run(name, 0, EVERY)
    for seed in range(options.seeds):
        for name in _common.rotated(names, seed):
            run = _run(name, seed, options.steps)
            if not name.startswith(PEER):
                run["again_seconds"] = _prepare_from_cache(name, seed)
            runs[name].append(run)
            if not options.quiet:
                took = f"{run['ready_seconds']:.2f} s + {run['seconds']:.2f} s"
                print(f"{name}, seed {seed}: {run['steps']} steps, {took}", flush=True)
    report["measurements"] = [{"contestant": name, "runs": runs[name]} for name in names]
    return report


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown: seconds, and ratios to the faster peer."""
    lines = [
        _common.headline(
            report, f"until the mean of {EPISODES} greedy episodes of {ID} is {SOLVED}"
        ),
        "",
        "| contestant | solved | steps | prepare and compile, s | compile again, s | train, s"
        " | total, s | speedup, training | speedup, compiled before | speedup, total |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rival = _rival(report)
    spread = functools.partial(_common.spread, form=".3g")
    for entry in report["measurements"]:
        runs = entry["runs"]
        steps = _common.quartiles([run["steps"] for run in runs])[1]
        is_ours = not entry["contestant"].startswith(PEER)
        again = spread([run["again_seconds"] for run in runs]) if is_ours else ""
        ratios = ["", "", ""]
        if is_ours and rival is not None:
            sums = (("seconds",), ("again_seconds", "seconds"), ("ready_seconds", "seconds"))
            ratios = [spread(_speedups(runs, rival["runs"], own)) for own in sums]
        cells = [
            entry["contestant"],
            f"{sum(run['is_solved'] for run in runs)} of {len(runs)}",
            f"{steps:,.0f}",
            spread([run["ready_seconds"] for run in runs]),
            again,
            spread([run["seconds"] for run in runs]),
            spread(_sums(runs, ("ready_seconds", "seconds"))),
            *ratios,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if rival is not None:
        lines += ["", f"Ratios to {rival['contestant']}; the target is {TARGET:g}."]
    return "\n".join(lines)


def _run(name: str, seed: int, max_steps: int) -> dict[str, Any]:
    with _compilation_cache(None):
        clock = Clock(max_steps)
        CONTESTANTS[name](seed, clock)
    return {
        "seed": seed,
        "is_solved": clock.is_solved,
        "steps": clock.steps,
        "ready_seconds": clock.ready_seconds,
        "seconds": clock.seconds,
        "evaluation_seconds": clock.evaluation_seconds,
        "returns": clock.returns,
    }


def _prepare_from_cache(name: str, seed: int) -> float:
    """Returns the seconds to prepare when the programs are in JAX's cache on disk."""
    clocks = [Clock(EVERY), Clock(EVERY)]
    with tempfile.TemporaryDirectory() as folder:
        for clock in clocks:
            with _compilation_cache(folder):
                CONTESTANTS[name](seed, clock)
    return clocks[-1].ready_seconds


@contextlib.contextmanager
def _compilation_cache(folder: str | None) -> Iterator[None]:
    """Drops the programs in memory and uses `folder`, or nothing, as the cache on disk."""
    wanted: dict[str, Any] = {
        "jax_enable_compilation_cache": folder is not None,
        "jax_compilation_cache_dir": folder,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    try:
        _configure(wanted)
        yield
    finally:
        _configure(before)


def _configure(settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    jax.clear_caches()


def _ours(
    algorithm: PPO, num_envs: int, unroll_length: int, clip_falls: bool, seed: int, clock: Clock
) -> None:
    clock.start()
    train = make_train(
        ID, algorithm, num_envs=num_envs, unroll_length=unroll_length, total_steps=STEPS
    )
    key = jax.random.key(seed)
    init = jax.jit(train.init).lower(key).compile()
    block = jax.jit(functools.partial(_block, train, clip_falls), donate_argnums=0)
    block = block.lower(jax.eval_shape(train.init, key)).compile()
    clock.ready()
    env, state = jaxenvs.make_vec(ID, EPISODES), init(key)

    def mean_return() -> float:
        key = jax.random.fold_in(jax.random.key(EVALUATION + seed), clock.steps)
        return float(jaxenvs.evaluate(env, train.policy(state), 1, key).mean)

    state = jax.block_until_ready(block(state))
    while clock.evaluate(mean_return):
        state = jax.block_until_ready(block(state))


def _block(train: Train, clip_falls: bool, state: LearnerState) -> LearnerState:
    """Runs the updates between two evaluations."""

    def update(state: LearnerState, _: None) -> tuple[LearnerState, None]:
        ppo: Any = train.algorithm
        if clip_falls:  # as in Stable-Baselines3, progress includes the steps just collected
            left = 1.0 - (state.updates + 1) / train.num_updates
            ppo = ppo.replace(clip=ppo.clip * left)
        now = dataclasses.replace(train, algorithm=ppo)  # pyright: ignore[reportArgumentType]
        return now.update(state)[0], None

    return jax.lax.scan(update, state, length=EVERY // train.context.steps_per_update)[0]


def _stable_baselines3(threads: int | None, seed: int, clock: Clock) -> None:
    import gymnasium
    import torch
    from stable_baselines3 import PPO as TheirPPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import DummyVecEnv

    before = torch.get_num_threads()
    test_envs = DummyVecEnv([lambda: gymnasium.make(ID)] * EPISODES)  # one episode in each
    test_envs.seed(EVALUATION + seed)

    class Evaluation(BaseCallback):
        should_continue = True

        def _on_rollout_start(self) -> None:  # the previous update has ended
            if self.num_timesteps and self.num_timesteps % EVERY == 0:
                self.should_continue = clock.evaluate(self._mean_return)

        def _on_step(self) -> bool:
            return self.should_continue

        def _mean_return(self) -> float:
            mean: Any = evaluate_policy(self.model, test_envs, EPISODES, warn=False)[0]
            return float(mean)

    try:
        if threads is not None:
            torch.set_num_threads(threads)
        clock.start()
        model = TheirPPO(
            "MlpPolicy",
            make_vec_env(ID, ZOO_ENVS, seed=seed),
            n_steps=ZOO_UNROLL,
            batch_size=ZOO_ENVS * ZOO_UNROLL,
            gae_lambda=ZOO.gae_lambda,
            gamma=ZOO.gamma,
            n_epochs=ZOO.epochs,
            ent_coef=ZOO.entropy_coefficient,
            learning_rate=lambda left: ZOO.learning_rate * left,
            clip_range=lambda left: ZOO.clip * left,
            seed=seed,
            device="cpu",
        )
        clock.ready()
        model.learn(STEPS, callback=Evaluation(), log_interval=None)  # pyright: ignore[reportArgumentType]
    finally:
        torch.set_num_threads(before)


def _rival(report: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the peer with the shorter median training time."""
    peers = [each for each in report["measurements"] if each["contestant"].startswith(PEER)]
    if not peers:
        return None
    return min(peers, key=lambda each: statistics.median(run["seconds"] for run in each["runs"]))


def _speedups(
    runs: list[dict[str, Any]], peers: list[dict[str, Any]], own: Sequence[str]
) -> list[float]:
    """Returns, per seed, the peer's seconds divided by the sum of the `own` parts of a run.

    The peer's seconds include its preparation, unless `own` is the training alone.
    """
    whole = ("seconds",) if own == ("seconds",) else ("ready_seconds", "seconds")
    times = zip(_sums(peers, whole), _sums(runs, own), strict=True)
    return [theirs / ours for theirs, ours in times]


def _sums(runs: list[dict[str, Any]], names: Sequence[str]) -> list[float]:
    return [sum(run[name] for name in names) for run in runs]


OURS = ZOO.replace(learning_rate=2e-3, epochs=10, minibatches=4, anneal=False)
CONTESTANTS: dict[str, Callable[[int, Clock], None]] = {
    "jaxenvs": functools.partial(_ours, OURS, 16, 32, False),
    "jaxenvs-zoo": functools.partial(_ours, ZOO, ZOO_ENVS, ZOO_UNROLL, True),
    "sb3": functools.partial(_stable_baselines3, None),
    "sb3-1thread": functools.partial(_stable_baselines3, 1),
}


if __name__ == "__main__":
    main()
