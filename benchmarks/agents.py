"""Measures what training with several agents learns: the score of the greedy policies.

    python -m benchmarks.agents --output auto
    python -m benchmarks.agents --only "MAPPO simple_spread" --seeds 1

Needs the extras `jaxmarl`, `pgx` and `train`. Seeds train one after the other. The score is the
mean return of one agent; in connect_four, it is the share of games won, with either seat, against
random moves or an opponent that looks one step ahead.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import jaxenvs
from benchmarks import _common
from jaxenvs.core import VectorEnv, Wrapper
from jaxenvs.multi_agent import sample_legal
from jaxenvs.training import PPO, ActorCritic, Train, make_train
from jaxenvs.wrappers import FlattenObservation, IndependentAgents

EVALUATION = 1_000_003  # first seed of the evaluations; training runs use 0, 1, ...
Score = Callable[["Task", Any, int, jax.Array], dict[str, Any]]


class WithShapedReward(Wrapper):
    """Adds the rewards of Overcooked for steps on the way to a served dish."""

    def reset(self, key: Any) -> Any:
        return self.env.reset(key)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        state, timestep = self.env.step(state, action, key)
        shaped = timestep.info["shaped_reward"]
        reward = {agent: each + shaped[agent] for agent, each in timestep.reward.items()}
        return state, timestep.replace(reward=reward)


@dataclasses.dataclass(frozen=True)
class Task:
    """A training run: an environment, its batch, and the settings.

    Args:
        id: the id of the environment.
        score: a function of the task, the greedy policy, a number of episodes and a key; returns
            scores by name.
        algorithm: the algorithm.
        total_steps: the steps of single agents.
        num_envs, unroll_length: the environments, and the steps of each between two updates.
        layers: wrappers of the environment, the innermost first.
        training: wrappers for training only, around the others.
        agents: arguments of `IndependentAgents`.
        actor: arguments of `ActorCritic`.
    """

    id: str
    score: Score
    algorithm: PPO
    total_steps: int
    num_envs: int
    unroll_length: int
    layers: Sequence[Callable[..., Any]] = ()
    training: Sequence[Callable[..., Any]] = ()
    agents: dict[str, Any] = dataclasses.field(default_factory=dict)
    actor: dict[str, Any] = dataclasses.field(default_factory=dict)

    def batch(self, num_envs: int, layers: Sequence[Callable[..., Any]]) -> VectorEnv:
        """Returns the agents of `num_envs` environments."""
        env: Any = jaxenvs.make(self.id)
        for layer in layers:
            env = layer(env)
        return IndependentAgents(jaxenvs.vectorize(env, num_envs), **self.agents)

    def train(self, share: float = 1.0) -> Train:
        """Returns the program that trains for a share of the steps."""
        return make_train(
            self.batch(self.num_envs, [*self.layers, *self.training]),
            self.algorithm,
            actor=ActorCritic(**self.actor),
            unroll_length=self.unroll_length,
            total_steps=max(1, int(self.total_steps * share)),
            report_every=max(1, self.total_steps // (200 * self.num_envs * self.unroll_length)),
        )


def mean_return(task: Task, policy: Any, episodes: int, key: jax.Array) -> dict[str, Any]:
    """Returns the mean return of one agent."""
    batch = task.batch(episodes, task.layers)
    return {"mean return": jaxenvs.evaluate(batch, policy, 1, key).mean}


def games_won(task: Task, policy: Any, episodes: int, key: jax.Array) -> dict[str, Any]:
    """Returns the share of games of connect_four that the policy wins, against each opponent."""
    games = task.batch(episodes, task.layers).env
    first, second = games.agents

    def won(mine: str, other: str, opponent: Callable[..., Any]) -> jax.Array:
        def act(observation: Any, key: jax.Array) -> Any:
            own, key = jax.random.split(key)
            return {
                mine: policy(observation[mine], own),
                other: opponent(observation[other], key),
            }

        returns = jaxenvs.evaluate(games, act, 1, key).episode_return
        return (returns[mine] > 0).mean()

    opponents = {"random": sample_legal, "one step ahead": one_step_ahead}
    return {
        f"won against {name}, {seat} seat": won(*seats, opponent)
        for name, opponent in opponents.items()
        for seat, seats in (("first", (first, second)), ("second", (second, first)))
    }


def one_step_ahead(observation: dict[str, jax.Array], key: jax.Array) -> jax.Array:
    """Returns moves in connect_four that win at once, else prevent a loss, else are random."""
    board = observation["observation"].astype(bool)  # [N, 6, 7, 2]
    legal = observation["action_mask"]
    free = ~board.any(axis=-1)
    row = free.sum(axis=1) - 1  # the lowest free one of each column, row 5 is at the bottom
    drop = (jnp.arange(6)[:, None] == row[:, None, :])[:, None]  # [N, 1, 6, 7]
    column = jnp.eye(7, dtype=bool)[:, None]  # [7, 1, 7]
    value = jax.random.uniform(key, legal.shape)
    for player, bonus in ((1, 1), (0, 2)):
        after = board[..., player][:, None] | (drop & column)  # [N, 7, 6, 7]
        value += bonus * _has_four(after)
    return jnp.where(legal, value, -1.0).argmax(axis=-1).astype(jnp.int32)


def _has_four(stones: jax.Array) -> jax.Array:
    """Returns whether there are four in a row, for stones of [..., 6, 7]."""
    padded = jnp.pad(stones, [(0, 0)] * (stones.ndim - 2) + [(3, 3), (3, 3)])
    found = False
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        line = [
            padded[..., 3 + i * down : 9 + i * down, 3 + i * right : 10 + i * right]
            for i in range(4)
        ]
        found |= jnp.stack(line).all(axis=0).any(axis=(-2, -1))
    return found


_SPREAD = {
    "id": "jaxmarl/MPE_simple_spread_v3",
    "score": mean_return,
    "total_steps": 3_000_000,
    "num_envs": 64,
    "unroll_length": 128,
}
# Returns are around -100, so limiting changes of the critic to 0.2 would hold it back.
_SPREAD_PPO = PPO(learning_rate=5e-4, clip_value=False)
TASKS = {
    "IPPO simple_spread": Task(algorithm=_SPREAD_PPO, **_SPREAD),
    "IPPO with separate weights simple_spread": Task(
        algorithm=_SPREAD_PPO,
        agents={"agent_id": True},
        actor={"per_agent": True},
        **_SPREAD,
    ),
    "MAPPO simple_spread": Task(algorithm=_SPREAD_PPO, agents={"central_critic": True}, **_SPREAD),
    "IPPO cramped_room": Task(
        "jaxmarl/overcooked",
        mean_return,
        PPO(learning_rate=5e-4),
        total_steps=5_000_000,
        num_envs=64,
        unroll_length=128,
        layers=[lambda env: env.wrap(FlattenObservation)],
        training=[lambda env: WithShapedReward(env=env)],
    ),
    "PPO connect_four": Task(
        "pgx/connect_four",
        games_won,
        PPO(
            learning_rate=1e-3,
            gamma=1.0,
            minibatches=16,
            entropy_coefficient=0.02,
            clip_value=False,
        ),
        total_steps=15_000_000,
        num_envs=512,
        unroll_length=32,
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("agents", __doc__)
    add = parser.add_argument
    add(
        "--only",
        type=_common.choices(list(TASKS)),
        default=list(TASKS),
        help=f"comma-separated: {', '.join(TASKS)}",
    )
    add("--seeds", type=int, default=3, help="training runs of each task (default 3)")
    add("--episodes", type=int, default=1_000, help="episodes per evaluation (default 1,000)")
    add("--share", type=float, default=1.0, help="fraction of the steps; 0.1 for a trial")
    options = parser.parse_args(arguments)
    _common.publish(options, lambda: measure(options, arguments), table)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains and evaluates; returns the report for JSON."""
    packages = ["flax", "optax", "distrax", "jaxmarl", "pgx"]
    report = _common.new_report("agents", arguments, packages, options.seeds)
    report |= {"episodes": options.episodes, "measurements": []}
    for name in options.only:
        report["measurements"].append(_learn(name, options))
        for row in _rows(report["measurements"][-1]):
            print(*row, sep=", ", file=sys.stderr, flush=True)
    return report


def _learn(name: str, options: argparse.Namespace) -> dict[str, Any]:
    task = TASKS[name]
    train = task.train(options.share)
    score = jax.jit(lambda policy, key: task.score(task, policy, options.episodes, key))
    begin = time.perf_counter()
    compiled = jax.jit(train).lower(jax.random.key(0)).compile()
    compile_seconds, run_seconds, scores, curves = time.perf_counter() - begin, [], [], []
    for seed in range(options.seeds):
        begin = time.perf_counter()
        result = jax.block_until_ready(compiled(jax.random.key(seed)))
        run_seconds.append(time.perf_counter() - begin)
        policy = train.policy(result.learner_state)
        found = score(policy, jax.random.key(EVALUATION + seed))
        scores.append({each: float(value) for each, value in found.items()})
        curves.append(result.metrics["episode_return"].tolist())
    return {
        "task": name,
        "id": task.id,
        "steps": int(task.total_steps * options.share),
        "scores": {each: [row[each] for row in scores] for each in scores[0]},
        "compile_seconds": compile_seconds,
        "run_seconds": run_seconds,
        "curves": curves,
    }


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    work = f"greedy policies after training, {report['episodes']:,} episodes per seed"
    titles = "task", "steps of one agent", "score", "median", "all seeds", "seconds of a training"
    rows = (row for entry in report["measurements"] for row in _rows(entry))
    return "\n".join([_common.headline(report, work), "", *_common.markdown(titles, rows)])


def _rows(entry: dict[str, Any]) -> list[list[str]]:
    seconds = _common.quartiles(entry["run_seconds"])[1]
    return [
        [
            entry["task"],
            f"{entry['steps']:,}",
            name,
            f"{_common.quartiles(values)[1]:.3g}",
            ", ".join(f"{value:.3g}" for value in sorted(values)),
            f"{seconds:.0f}",
        ]
        for name, values in entry["scores"].items()
    ]


if __name__ == "__main__":
    main()
