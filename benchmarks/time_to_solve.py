"""Seconds until CartPole-v1 is solved, beside Stable-Baselines3's PPO: compile time and all.

A training is judged after every 2,048 environment steps: 100 fresh episodes of its greedy policy.
It is solved when their mean return is 475 or more. While it is judged the clock stands still.

    python -m benchmarks.time_to_solve --output auto --plot auto
    python -m benchmarks.time_to_solve --seeds 2 --contestants jaxenvs,sb3-1thread

Stable-Baselines3 has the settings of its zoo, with as many threads as torch takes by itself and
with one. Our PPO plays with the zoo's settings too, and with some of ours, which were chosen on
this task. Importing the libraries is not counted; before each training, what JAX has compiled is
dropped. `compile again` is what compiling takes where JAX keeps programs on disk and has them.
"""

import argparse
import contextlib
import dataclasses
import functools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
from jax.experimental.compilation_cache import compilation_cache

import jaxenvs
from benchmarks._common import headline, new_parser, new_report, publish, quartiles, rotated, words
from jaxenvs.training import PPO, LearnerState, Train, make_train

ID = "CartPole-v1"
SOLVED, EPISODES = 475, 100
EVERY = 2_048  # environment steps between two judgments; a multiple of everybody's update
STEPS = 100_000  # what schedules run over, and when a training is given up
EVALUATION = 1_000_003  # seed of the first judgment; trainings have 0, 1, ...
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
    """Times one training, and stands still while it is judged."""

    def __init__(self, most_steps: int) -> None:
        self.ready_seconds = self.seconds = self.judging_seconds = 0.0
        self.returns: list[float] = []
        self._most_steps, self._since = most_steps, 0.0

    def start(self) -> None:
        """Preparing begins."""
        self._since = time.perf_counter()

    def ready(self) -> None:
        """Training begins; until now it was prepared."""
        self.ready_seconds, self._since = self._lap(), time.perf_counter()

    def goes_on(self, mean_return: Callable[[], float]) -> bool:
        """`EVERY` more steps are taken. Returns whether to go on; the clock does, then."""
        self.seconds += self._lap()
        begin = time.perf_counter()
        self.returns.append(mean_return())
        self._since = time.perf_counter()
        self.judging_seconds += self._since - begin
        return not self.is_solved and self.steps + EVERY <= self._most_steps

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return len(self.returns) * EVERY

    @property
    def is_solved(self) -> bool:
        """Whether the last judgment was good enough."""
        return self.returns[-1] >= SOLVED

    def _lap(self) -> float:
        return time.perf_counter() - self._since


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line; `--help` lists it."""
    parser = new_parser("time_to_solve", __doc__)
    names = list(CONTESTANTS)
    add = parser.add_argument
    add("--contestants", type=words, default=names, help=f"comma-separated: {', '.join(names)}")
    add("--seeds", type=int, default=9, help="trainings of each contestant (default 9)")
    add("--steps", type=int, default=STEPS, help="give up then; few show whether it runs")
    options = parser.parse_args(arguments)
    publish(options, lambda: measure(options, arguments), table, plot)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """The report: all trainings of all contestants, in turn."""
    packages = ("flax", "optax", "gymnasium", "stable_baselines3", "torch")
    report = new_report("time_to_solve", arguments, packages, options.seeds)
    names = list(options.contestants)
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for name in names:  # the first of a process pays for what is set up but once
        _run(name, 0, EVERY)
    for seed in range(options.seeds):
        for name in rotated(names, seed):
            run = _run(name, seed, options.steps)
            if not name.startswith(PEER):
                run["again_seconds"] = _ready_again(name, seed)
            runs[name].append(run)
            if not options.quiet:
                took = f"{run['ready_seconds']:.2f} s + {run['seconds']:.2f} s"
                print(f"{name}, seed {seed}: {run['steps']} steps, {took}", flush=True)
    report["measurements"] = [{"contestant": name, "runs": runs[name]} for name in names]
    return report


def table(report: dict[str, Any]) -> str:
    """Seconds of each contestant, and of the faster peer how many times more it took."""
    lines = [
        headline(report, f"until {EPISODES} greedy episodes of {ID} bring {SOLVED} on average"),
        "",
        "| contestant | solved | steps | prepare and compile, s | compile again, s | train, s"
        " | all, s | sooner, training | sooner, all compiled before | sooner, all |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    rival = _rival(report)
    for entry in report["measurements"]:
        runs = entry["runs"]
        steps = quartiles([run["steps"] for run in runs])[1]
        is_ours = not entry["contestant"].startswith(PEER)
        again = _spread([run["again_seconds"] for run in runs]) if is_ours else ""
        ratios = ["", "", ""]
        if is_ours and rival is not None:
            sums = (("seconds",), ("again_seconds", "seconds"), ("ready_seconds", "seconds"))
            ratios = [_spread(_sooner(runs, rival["runs"], own)) for own in sums]
        cells = [
            entry["contestant"],
            f"{sum(run['is_solved'] for run in runs)} of {len(runs)}",
            f"{steps:,.0f}",
            _spread([run["ready_seconds"] for run in runs]),
            again,
            _spread([run["seconds"] for run in runs]),
            _spread(_sums(runs, ("ready_seconds", "seconds"))),
            *ratios,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    if rival is not None:
        lines += ["", f"Ratios to {rival['contestant']}; {TARGET:g} are wanted."]
    return "\n".join(lines)


def plot(report: dict[str, Any], path: Path) -> None:
    """Returns of the judgments over seconds, with preparation, a line a training."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.5), layout="constrained")
    for i, entry in enumerate(report["measurements"]):
        for run in entry["runs"]:
            number = len(run["returns"])
            seconds = [
                run["ready_seconds"] + run["seconds"] * (k + 1) / number for k in range(number)
            ]
            axis.plot(seconds, run["returns"], color=f"C{i}", alpha=0.35, linewidth=1)
            axis.plot(seconds[-1], run["returns"][-1], "o", color=f"C{i}", markersize=5)
        axis.plot([], [], "o-", color=f"C{i}", label=entry["contestant"])
    axis.axhline(SOLVED, color="gray", linewidth=1, linestyle=":")
    axis.set(xscale="log", xlabel="seconds, compiling included", ylabel="greedy return")
    axis.legend(fontsize=8)
    axis.grid(which="both", alpha=0.3)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _run(name: str, seed: int, most_steps: int) -> dict[str, Any]:
    with _programs_kept_in(None):
        clock = Clock(most_steps)
        CONTESTANTS[name](seed, clock)
    return {
        "seed": seed,
        "is_solved": clock.is_solved,
        "steps": clock.steps,
        "ready_seconds": clock.ready_seconds,
        "seconds": clock.seconds,
        "judging_seconds": clock.judging_seconds,
        "returns": clock.returns,
    }


def _ready_again(name: str, seed: int) -> float:
    """Seconds to prepare what was compiled by an earlier process."""
    clocks = [Clock(EVERY), Clock(EVERY)]
    with tempfile.TemporaryDirectory() as folder:
        for clock in clocks:
            with _programs_kept_in(folder):
                CONTESTANTS[name](seed, clock)
    return clocks[-1].ready_seconds


@contextlib.contextmanager
def _programs_kept_in(folder: str | None) -> Iterator[None]:
    """Without any program in memory, and with those on disk that are in `folder`."""
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
    while clock.goes_on(mean_return):
        state = jax.block_until_ready(block(state))


def _block(train: Train, clip_falls: bool, state: LearnerState) -> LearnerState:
    """The updates between two judgments."""

    def update(state: LearnerState, _: None) -> tuple[LearnerState, None]:
        ppo: Any = train.algorithm
        if clip_falls:  # as Stable-Baselines3 counts: what was collected is progress
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
    judging = DummyVecEnv([lambda: gymnasium.make(ID)] * EPISODES)  # one episode of each
    judging.seed(EVALUATION + seed)

    class Judge(BaseCallback):
        goes_on = True

        def _on_rollout_start(self) -> None:  # the update before is done
            if self.num_timesteps and self.num_timesteps % EVERY == 0:
                self.goes_on = clock.goes_on(self._mean_return)

        def _on_step(self) -> bool:
            return self.goes_on

        def _mean_return(self) -> float:
            mean: Any = evaluate_policy(self.model, judging, EPISODES, warn=False)[0]
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
        model.learn(STEPS, callback=Judge(), log_interval=None)  # pyright: ignore[reportArgumentType]
    finally:
        torch.set_num_threads(before)


def _rival(report: dict[str, Any]) -> dict[str, Any] | None:
    """The peer that is solved first, on average."""
    peers = [each for each in report["measurements"] if each["contestant"].startswith(PEER)]
    if not peers:
        return None
    return min(peers, key=lambda each: statistics.median(run["seconds"] for run in each["runs"]))


def _sooner(
    runs: list[dict[str, Any]], peers: list[dict[str, Any]], own: Sequence[str]
) -> list[float]:
    """How many times longer the peer took, all of it, than these parts of ours; a seed each."""
    whole = ("seconds",) if own == ("seconds",) else ("ready_seconds", "seconds")
    times = zip(_sums(peers, whole), _sums(runs, own), strict=True)
    return [theirs / ours for theirs, ours in times]


def _sums(runs: list[dict[str, Any]], names: Sequence[str]) -> list[float]:
    return [sum(run[name] for name in names) for run in runs]


def _spread(values: Sequence[float]) -> str:
    low, middle, high = quartiles(values)
    return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


OURS = ZOO.replace(learning_rate=2e-3, epochs=10, minibatches=4, anneal=False)
CONTESTANTS: dict[str, Callable[[int, Clock], None]] = {
    "jaxenvs": functools.partial(_ours, OURS, 16, 32, False),
    "jaxenvs-zoo": functools.partial(_ours, ZOO, ZOO_ENVS, ZOO_UNROLL, True),
    "sb3": functools.partial(_stable_baselines3, None),
    "sb3-1thread": functools.partial(_stable_baselines3, 1),
}


if __name__ == "__main__":
    main()
