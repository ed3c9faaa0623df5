"""Measures what the algorithms learn: greedy returns after training, and learning curves.

    python -m benchmarks.learning --output auto --plot auto     # everything; MinAtar takes longest
    python -m benchmarks.learning --only "DQN CartPole-v1,SAC Pendulum-v1"
    python -m benchmarks.learning --ids bsuite/memory_len-v0 --seeds 10
    python -m benchmarks.learning --only "PQN Taxi-v4" --keep benchmarks/results/NAME.json \
        --output auto     # measures one task again and keeps the file's others
    python -m benchmarks.learning --load benchmarks/results/NAME.json --plot auto

All seeds of a task train in one program, a `vmap` of the training. With environments of other
libraries, which cannot be vmapped, and where the task says so, they train one after the other. Then
the greedy policy of each seed plays new episodes, with keys that are not used in training. The
evaluation uses the plain environment, even if training wraps it.
"""

import argparse
import dataclasses
import math
import operator
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from benchmarks import _common
from jaxenvs.bridge.jit import HostEnv
from jaxenvs.core import VectorEnv
from jaxenvs.envs.minigrid.wrappers import FlatObs
from jaxenvs.factory import is_hosted
from jaxenvs.rollouts import Evaluation
from jaxenvs.training import Actor, ActorPolicy, QNetwork, Train
from jaxenvs.training.config import Config, config_for
from jaxenvs.training.layers import Conv

EVALUATION = 1_000_003  # first seed of the evaluations; training runs use 0, 1, ...


@dataclasses.dataclass(frozen=True)
class Task:
    """A training run and its target."""

    name: str
    config: Config  # as for `jaxenvs train`, in most tasks
    target: float  # of the median over seeds
    at_most: bool = False  # whether the target is a maximum, for training runs that must fail
    score: str = "mean return"  # of an evaluation; or "success rate", see `scores`
    actor: Actor | None = None  # overrides the configuration's
    make: Callable[[str, int], VectorEnv] | None = None  # overrides the environment, (id, N)
    evaluation_config: Config | None = None  # overrides the environment of the evaluation
    max_seeds: int | None = None  # for slow training runs
    max_episodes: int | None = None  # for slow evaluations
    min_episodes: int = 0  # for returns that chance spreads widely
    # Whether seeds train one after the other. On CPU, XLA (of jax 0.12) leaks gigabytes in long
    # vmapped runs with recurrent networks, in the batched matrix multiplications of their loops.
    in_turn: bool = False

    @property
    def is_hosted(self) -> bool:
        """Whether the environment belongs to another library."""
        return is_hosted(self.config.id)

    def train(self, reports: int = 50) -> Train:
        """Returns the training, with about `reports` rows of metrics."""
        config = self.config
        updates = config.total_steps // (config.num_envs * config.unroll_length)
        parts: dict[str, Any] = {"report_every": max(1, updates // reports)}
        if self.actor is not None:
            parts["actor"] = self.actor
        if self.make is not None:
            parts["env"] = self.make(config.id, config.num_envs)
        return config.make_train(**parts)

    def evaluation_env(self, num_envs: int) -> VectorEnv:
        """Returns the plain environment for evaluations."""
        if self.make is not None:
            return self.make(self.config.id, num_envs)
        return (self.evaluation_config or self.config).make_env(num_envs, training=False)


def _small_pong(id: str, num_envs: int) -> VectorEnv:
    """Returns Pong from ale_py's vector environment, with a quarter of the usual pixels."""
    return jaxenvs.make_vec(
        id,
        num_envs,
        backend="native",
        img_height=42,
        img_width=42,
        repeat_action_probability=0.0,
        episodic_life=False,
    )


def _flat(id: str, num_envs: int) -> VectorEnv:
    """Returns a level of MiniGrid with flat observations."""
    return jaxenvs.make_vec(id, num_envs).wrap(FlatObs)


class _TwoConvolutions(nn.Module):
    """The network of the first DQN (V. Mnih et al., 2013), about half of `NatureCNN`."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(jnp.float32) / 255.0
        kernel_init = nn.initializers.orthogonal(2**0.5)
        for channels, size, stride in ((16, 8, 4), (32, 4, 2)):
            convolution = Conv(
                channels, (size, size), (stride, stride), padding="VALID", kernel_init=kernel_init
            )
            x = nn.relu(convolution(x))
        return nn.relu(nn.Dense(256, kernel_init=kernel_init)(x.reshape((len(x), -1))))


def _tuned(algorithm: str, id: str, target: float, what: str = "", **limits: int) -> Task:
    return Task(f"{algorithm} {what}{id}", config_for(algorithm, id), target, **limits)


def _console_memory(game: str, target: float) -> Task:
    """Returns PQN on the 128 bytes of a game's memory."""
    config = Config(
        f"ALE/{game}-v5",
        "PQN",
        num_envs=64,
        unroll_length=32,
        total_steps=2_000_000,
        settings={"normalize_observations": True, "exploration_steps": 200_000},
        actor={"hidden_sizes": [256, 256]},
        env={"obs_type": "ram", "repeat_action_probability": 0.0},
    )
    return Task(f"PQN from memory {config.id}", config, target, max_seeds=1, max_episodes=32)


def _console_pictures(algorithm: str, game: str, target: float, steps: int) -> Task:
    """Returns the beginning of the usual training on a game's pictures; a step is four frames."""
    config = config_for(algorithm, f"ALE/{game}-v5").replace(total_steps=steps)
    if algorithm == "PQN":
        config = config.with_settings({"exploration_steps": 100_000})
    return Task(f"{algorithm} {config.id}", config, target, max_seeds=1, max_episodes=16)


def _small_pictures() -> Task:
    """Returns PPO with a perceptron on small pictures of Pong, as in the notebook."""
    config = Config(
        "ALE/Pong-v5",
        "PPO",
        num_envs=8,
        unroll_length=128,
        total_steps=400_000,
        settings={"learning_rate": 1e-3, "clip": 0.1, "normalize_observations": True},
        actor={"hidden_sizes": [128], "activation": "relu", "shared": True},
        env={
            "preprocessing": True,
            "screen_size": (42, 42),
            "stack_num": 2,
            "repeat_action_probability": 0.0,
        },
        wrappers=[{"type": "FlattenObservation"}],
    )
    return Task(f"PPO from 42 x 42 pixels {config.id}", config, target=5, max_episodes=32)


def _memory(name: str, **memory: Any) -> Task:
    tuned = config_for("PPO", "bsuite/memory_len-v0")
    actor = {"hidden_sizes": [32], "shared": True, **memory}
    return Task(
        f"PPO {name} {tuned.id}",
        tuned.replace(actor=actor),
        target=0.9 if memory else 0.3,
        at_most=not memory,
    )


def _minigrid_memory() -> tuple[Task, Task]:
    """Returns MemoryS7 with a GRU, and without one, which must fail."""
    gru = config_for("PPO", "MiniGrid-MemoryS7-v0")
    without = {name: x for name, x in gru.actor.items() if not name.startswith("memory")}
    return (
        Task(f"PPO GRU {gru.id}", gru, target=0.9, in_turn=True),
        Task(f"PPO feed-forward {gru.id}", gru.replace(actor=without), target=0.6, at_most=True),
    )


def _bits(name: str, storage: str, *, solves: bool) -> Task:
    tuned = config_for("DQN", "BitFlipping-v0")
    return Task(
        f"DQN {name} {tuned.id}",
        tuned.replace(storage={"type": storage}),
        target=0.9 if solves else 0.1,
        at_most=not solves,
        score="success rate",
    )


TASKS = (
    _tuned("PPO", "CartPole-v1", 475),
    _tuned("A2C", "CartPole-v1", 475),
    _tuned("DQN", "CartPole-v1", 475),
    _tuned("PQN", "CartPole-v1", 475),
    _tuned("PPO", "Acrobot-v1", -100),
    _tuned("DQN", "MountainCar-v0", -130),
    _tuned("SAC", "MountainCarContinuous-v0", 90),
    _tuned("SAC", "Pendulum-v1", -200),
    _tuned("TD3", "Pendulum-v1", -200),
    # Optimal policies that do not see the time left get 0.744, 0.892, 7.92, -13 and -0.043.
    _tuned("PQN", "FrozenLake-v1", 0.73, min_episodes=2_000),
    _tuned("PQN", "FrozenLake8x8-v1", 0.87, min_episodes=2_000),
    _tuned("PQN", "Taxi-v4", 7.8, min_episodes=2_000),
    _tuned("PQN", "CliffWalking-v1", -13),
    _tuned("PQN", "Blackjack-v1", -0.055, min_episodes=20_000),
    _tuned("PPO", "Blackjack-v1", -0.055, min_episodes=20_000),
    _tuned("PPO", "bsuite/catch-v0", 0.95, "CNN "),
    _tuned("PQN", "bsuite/catch-v0", 0.95, "CNN "),
    _tuned("DQN", "bsuite/deep_sea-v0", 0.98),
    # As good as the authors' DQN after 5,000,000 steps (K. Young, T. Tian, 2019).
    *(
        _tuned(algorithm, f"MinAtar/{game}-v0", target, "CNN ")
        for game, target in (
            ("Asterix", 17),
            ("Breakout", 10),
            ("Freeway", 50),
            ("Seaquest", 20),
            ("SpaceInvaders", 43),
        )
        for algorithm in ("PPO", "DQN", "PQN")
    ),
    # As good as PPO in RL Baselines3 Zoo, where it has these levels.
    *(
        _tuned("PPO", f"MiniGrid-{level}-v0", target)
        for level, target in (
            ("Empty-8x8", 0.95),
            ("DoorKey-5x5", 0.96),
            ("DoorKey-8x8", 0.95),
            ("FourRooms", 0.57),
            ("KeyCorridorS3R1", 0.95),
            ("Unlock", 0.96),
        )
    ),
    Task(
        "PPO flat MiniGrid-DoorKey-5x5-v0",
        config_for("PPO", "MiniGrid-DoorKey-5x5-v0").replace(
            actor={}, settings={"learning_rate": 1e-3, "normalize_observations": True}
        ),
        target=0.96,
        make=_flat,
    ),
    *_minigrid_memory(),
    _memory("GRU", memory="gru", memory_size=32),
    _memory("LSTM", memory="lstm", memory_size=32),
    _memory("feed-forward"),
    _bits("hindsight", "HindsightReplay", solves=True),
    _bits("replay", "Replay", solves=False),
    _tuned("SAC", "FetchReach-v4", -2.5, "hindsight "),
    _tuned("SAC", "PointMaze_UMaze-v3", 200, "hindsight "),
    dataclasses.replace(
        _tuned("PPO", "gymnasium/CartPole-v1", 475),
        evaluation_config=config_for("PPO", "CartPole-v1"),
    ),
    _tuned("PPO", "LunarLander-v3", 240),
    _tuned("DQN", "LunarLander-v3", 200),
    _tuned("PPO", "BipedalWalker-v3", 280, max_seeds=1),
    *(
        _tuned(algorithm, f"{task}-v5", target, max_seeds=1)
        for algorithm, task, target in (
            ("PPO", "HalfCheetah", 5_000),
            ("PPO", "Hopper", 2_400),
            ("PPO", "Ant", 1_300),
            ("SAC", "HalfCheetah", 8_000),
            ("SAC", "Hopper", 2_300),
            ("SAC", "Ant", 4_000),
        )
    ),
    *(
        _console_memory(game, target)
        for game, target in (
            ("Boxing", 80),
            ("Breakout", 10),
            ("Freeway", 15),
            ("Pong", -15),
            ("Seaquest", 400),
            ("SpaceInvaders", 300),
        )
    ),
    _small_pictures(),
    *(
        _console_pictures(*task)
        for task in (
            ("PQN", "Breakout", 5, 1_000_000),
            ("PQN", "Pong", -15, 1_000_000),
            ("PQN", "SpaceInvaders", 250, 300_000),
            # An epoch costs as much as collection does three times, and PPO has four.
            ("PPO", "Breakout", 5, 300_000),
            ("PPO", "Pong", -19, 300_000),
            ("PPO", "SpaceInvaders", 250, 300_000),
        )
    ),
    Task(
        "DQN ALE/Pong-v5",
        Config(
            "gymnasium/ALE/Pong-v5",
            "DQN",
            num_envs=8,
            unroll_length=4,
            total_steps=400_000,
            settings={
                "learning_rate": 2.5e-4,
                "learning_starts": 5_000,
                "batch_size": 32,
                "exploration_steps": 100_000,
                "final_epsilon": 0.02,
                "target_update_every": 500,
            },
            storage={
                "type": "PrioritizedReplay",
                "capacity": 50_000,
                "n_step": 3,
                "beta_steps": 400_000,
            },
        ),
        target=-18,  # random actions get -20.3; ten minutes are enough only for a start
        actor=QNetwork(extractor=_TwoConvolutions(), dueling=True),
        make=_small_pong,
        max_seeds=1,
        max_episodes=8,
    ),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    options = _parse(arguments)
    _common.publish(options, lambda: measure(options, arguments), table, plot)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains and evaluates the tasks that `options` select; returns the report for JSON."""
    packages = ["flax", "optax", "distrax"]
    report = _common.new_report("learning", arguments, packages, options.seeds)
    report |= {"episodes": options.episodes, "measurements": []}
    kept = {entry["task"]: entry for entry in _common.kept(options.keep, report)}
    for task in selected_tasks(options):
        entry = learn(task, options.seeds, options.episodes, options.share)
        report["measurements"].append(entry)
        if not options.quiet:
            middle = _common.quartiles(entry["scores"])[1]
            print(f"{task.name}: {middle:.4g} in {entry['run_seconds']:.1f} s", file=sys.stderr)
    entries = kept | {entry["task"]: entry for entry in report["measurements"]}
    report["measurements"] = [entries[task.name] for task in TASKS if task.name in entries]
    return report


def selected_tasks(options: argparse.Namespace) -> list[Task]:
    """Returns the tasks whose name and id `options` select."""
    return [
        task
        for task in TASKS
        if (not options.only or task.name in options.only)
        and (not options.ids or task.config.id in options.ids)
    ]


def learn(task: Task, num_seeds: int, episodes: int, share: float = 1.0) -> dict[str, Any]:
    """Trains `num_seeds` seeds and evaluates each one on `episodes` new episodes.

    Args:
        task: the training.
        num_seeds: number of seeds: 0, 1, ...
        episodes: number of episodes per evaluation, at least `min_episodes`.
        share: fraction of the task's steps to train for; less than 1 for a trial.
    """
    config = task.config
    config = config.replace(total_steps=max(1, int(share * config.total_steps)))
    task = dataclasses.replace(task, config=config)
    num_seeds = min(num_seeds, task.max_seeds or num_seeds)
    episodes = max(min(episodes, task.max_episodes or episodes), task.min_episodes)
    train = task.train()
    env = task.evaluation_env(episodes)

    def run(seed: jax.Array) -> tuple[ActorPolicy, dict[str, jax.Array]]:
        result = train(jax.random.key(seed))
        return train.policy(result.learner_state), result.metrics

    def evaluate(policy: ActorPolicy, seed: jax.Array) -> Evaluation:
        carry = policy.initial_carry(episodes)
        return jaxenvs.evaluate(env, policy, 1, jax.random.key(seed), policy_carry=carry)

    seeds = jnp.arange(num_seeds)
    begin = time.perf_counter()
    in_turn = task.in_turn or task.is_hosted
    compiled = _for_each(run, in_turn, seeds)
    done = time.perf_counter()
    policies, metrics = jax.block_until_ready(compiled(seeds))
    run_seconds = time.perf_counter() - done
    evaluation = _for_each(evaluate, in_turn, policies, seeds)(policies, EVALUATION + seeds)
    for each in (train.env, env):
        if isinstance(each, HostEnv):
            each.close()
    return {
        "task": task.name,
        "id": config.id,
        "steps": config.total_steps,
        "num_envs": config.num_envs,
        "episodes": episodes,
        "target": task.target,
        "at_most": task.at_most,
        "score": task.score,
        "scores": scores(task, evaluation),
        "compile_seconds": done - begin,
        "run_seconds": run_seconds,  # of all seeds together
        "curve_steps": _numbers(metrics["steps"][0]),
        "curves": [_numbers(row) for row in metrics["episode_return"]],
    }


def _for_each(function: Callable[..., Any], in_turn: bool, *batched: Any) -> Callable[..., Any]:
    """Compiles `function` for all rows of its arguments: vmapped, or one row after the other."""
    if not in_turn:
        return jax.jit(jax.vmap(function)).lower(*batched).compile()
    compiled = jax.jit(function).lower(*_row(0, batched)).compile()

    def run_in_turn(*batched: Any) -> Any:
        count = len(jax.tree.leaves(batched)[0])
        results = [jax.block_until_ready(compiled(*_row(i, batched))) for i in range(count)]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *results)

    return run_in_turn


def _row(i: int, batched: Any) -> Any:
    return jax.tree.map(operator.itemgetter(i), batched)


def scores(task: Task, evaluation: Evaluation) -> list[float]:
    """Returns one score per seed from an evaluation of [seeds, ...] episodes."""
    values = np.asarray(evaluation.episode_return)
    if task.score == "success rate":  # each flip costs 1, except one that reaches the goal
        values = values > -np.asarray(evaluation.episode_length)
    return values.reshape(len(values), -1).mean(axis=1).tolist()


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    work = f"greedy policy after training, {report['episodes']} episodes per seed"
    lines = [
        _common.headline(report, work),
        "",
        "| task | steps | score | target | median | quartiles | worst | seeds that reach it "
        "| compile s | run s, all seeds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for entry in report["measurements"]:
        low, middle, high = _common.quartiles(entry["scores"])
        at_most, target = entry["at_most"], entry["target"]
        worst = (max if at_most else min)(entry["scores"])
        reach = sum(x <= target if at_most else x >= target for x in entry["scores"])
        lines.append(
            f"| {entry['task']} | {entry['steps']:,} | {entry['score']}"
            f" | {'≤' if at_most else '≥'} {target:g} | {middle:.4g} | [{low:.4g}, {high:.4g}]"
            f" | {worst:.4g} | {reach} of {len(entry['scores'])}"
            f" | {entry['compile_seconds']:.1f} | {entry['run_seconds']:.1f} |"
        )
    return "\n".join(lines)


def plot(report: dict[str, Any], path: Path) -> None:
    """Plots returns during training, one panel per id: median and quartiles over seeds."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    ids = list(dict.fromkeys(entry["id"] for entry in report["measurements"]))
    columns = min(len(ids), 4)
    rows = math.ceil(len(ids) / columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(4.2 * columns, 3.4 * rows), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(ids) :]:
        axis.set_visible(False)
    for axis, id in zip(axes.flat, ids, strict=False):
        for entry in report["measurements"]:
            if entry["id"] != id:
                continue
            curves = np.array(entry["curves"], float)  # None (no episode ended) becomes NaN
            known = ~np.isnan(curves).any(axis=0)
            steps = np.array(entry["curve_steps"])[known]
            low, middle, high = np.quantile(curves[:, known], (0.25, 0.5, 0.75), axis=0)
            (line,) = axis.plot(steps, middle, label=entry["task"].removesuffix(f" {id}"))
            axis.fill_between(steps, low, high, alpha=0.2, color=line.get_color())
            if entry["score"] == "mean return" and not entry["at_most"]:
                axis.axhline(entry["target"], color="gray", linewidth=1, linestyle=":")
        axis.set(title=id, xlabel="environment steps")
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    for row in axes:
        row[0].set_ylabel("return while exploring")
    host = report["machine"]
    figure.suptitle(
        f"Median and quartiles of {report['repeats']} seeds; dotted: target of the greedy policy"
        f" after training (jax {host['versions']['jax']}, {host['platform']})",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _numbers(values: jax.Array) -> list[float | None]:
    return [None if math.isnan(value) else value for value in np.asarray(values).tolist()]


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    names = [task.name for task in TASKS]
    parser = _common.new_parser("learning", __doc__, has_plot=True)
    add = parser.add_argument
    add(
        "--only",
        type=_common.choices(names),
        default=[],
        help=f"comma-separated: {', '.join(names)}",
    )
    add("--ids", type=_common.words, default=[], help="comma-separated environment ids")
    add("--seeds", type=int, default=5, help="training runs of each task (default 5)")
    add("--episodes", type=int, default=100, help="episodes per evaluation (default 100)")
    add("--keep", help="JSON file whose measurements of other tasks are kept")
    add("--share", type=float, default=1.0, help="fraction of the steps; 0.1 for a trial")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
