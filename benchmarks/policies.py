"""Trains the pretrained policies in `policies/`, and writes their index.

    python -m benchmarks.policies                     # those that are missing, fast ones first
    python -m benchmarks.policies Taxi-v4 CartPole-v1
    python -m benchmarks.policies --again Taxi-v4     # replaces the file

Each id is trained by the settings of `jaxenvs train`, except where a task says otherwise, with
several seeds. Each seed's greedy policy plays the same episodes in the environment without training
wrappers. The best one then plays as many other episodes, which the score is the mean of, because
the first ones selected it. It is kept if it is clearly better than random actions.
"""

import dataclasses
import json
import operator
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from benchmarks import _common
from jaxenvs import pretrained
from jaxenvs.core import VectorEnv
from jaxenvs.training import ActorPolicy
from jaxenvs.training.config import Config, config_for
from jaxenvs.training.evaluation import MAX_STEPS, evaluation_env

SELECTION, SCORE = 1_000_003, 2_000_003  # seeds of evaluations; training runs use 0, 1, ...


@dataclasses.dataclass(frozen=True)
class Task:
    """How an id is trained and evaluated."""

    id: str
    algorithm: str = "PPO"
    seeds: int = 5
    steps: int | None = None  # instead of those of the settings
    episodes: int = 100  # of each evaluation
    in_turn: bool = False  # seeds, because vmapped recurrent networks leak memory on CPU
    settings: Any = None  # changes of the configuration, see `Config.with_settings`

    @property
    def config(self) -> Config:
        config = config_for(self.algorithm, self.id)
        config = config if self.settings is None else config.with_settings(self.settings)
        return config if self.steps is None else config.replace(total_steps=self.steps)


def _babyai(level: str, steps: int) -> Task:
    return Task(f"BabyAI-{level}-v0", seeds=2, steps=steps, in_turn=True)


# From fast to slow. Chance spreads the returns of toy texts.
TASKS = (
    Task("CartPole-v1"),
    Task("Acrobot-v1"),
    Task("MountainCar-v0", seeds=3),
    Task("MountainCarContinuous-v0"),
    Task("Pendulum-v1", "TD3"),
    Task("CliffWalking-v1", "PQN"),
    Task("FrozenLake-v1", "PQN", episodes=2_000),
    Task("Taxi-v4", "PQN", episodes=2_000),
    Task("FrozenLake8x8-v1", "PQN", episodes=2_000),
    Task("Blackjack-v1", "PQN", episodes=20_000),
    Task("BitFlipping-v0", "DQN"),
    Task("bsuite/catch-v0"),
    Task("bsuite/deep_sea-v0", "DQN"),
    Task("bsuite/memory_len-v0", in_turn=True),
    Task("bsuite/bandit-v0", seeds=3, steps=100_000),
    Task("bsuite/discounting_chain-v0", seeds=3, steps=200_000),
    Task("bsuite/umbrella_length-v0", seeds=3, steps=300_000),
    Task("bsuite/cartpole-v0", seeds=3, steps=500_000),
    Task("MiniGrid-Empty-8x8-v0"),
    Task("MiniGrid-Empty-5x5-v0", seeds=3, steps=100_000),
    Task("MiniGrid-Empty-Random-6x6-v0", seeds=3, steps=200_000),
    Task("PointRobot-misc", seeds=3, steps=500_000),
    Task("Reacher-misc", seeds=3, steps=500_000),
    Task("FourRooms-misc", seeds=3, steps=1_000_000),
    Task("MiniGrid-DoorKey-5x5-v0"),
    Task("MiniGrid-SimpleCrossingS9N1-v0", seeds=2, steps=500_000),
    Task("MiniGrid-LavaGapS5-v0", seeds=2, steps=300_000),
    Task("MiniGrid-Unlock-v0", seeds=3),
    Task("MiniGrid-KeyCorridorS3R1-v0", seeds=2),
    Task("LunarLander-v3", seeds=3),
    Task("BipedalWalker-v3", seeds=1),
    Task("MinAtar/Asterix-v0", "PQN", seeds=1),
    Task("MinAtar/Breakout-v0", "PQN", seeds=1),
    Task("MinAtar/SpaceInvaders-v0", "PQN", seeds=1),
    Task("MinAtar/Freeway-v0", "PQN", seeds=1),
    Task("MinAtar/Seaquest-v0", "PQN", seeds=1),
    Task("MiniGrid-DoorKey-8x8-v0", seeds=2),
    _babyai("GoToRedBallNoDists", 500_000),
    _babyai("GoToRedBallGrey", 1_000_000),
    _babyai("GoToObj", 1_000_000),
    _babyai("GoToLocalS5N2", 1_000_000),
    Task("MiniGrid-GoToDoor-5x5-v0", seeds=2, steps=1_000_000),
    Task("MiniGrid-MemoryS7-v0", seeds=2, in_turn=True),
    Task("MiniGrid-FourRooms-v0", seeds=1),
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.plain_parser("policies", __doc__)
    known = {task.id: task for task in TASKS}
    parser.add_argument("ids", nargs="*", metavar="ID", help="default: all without a file")
    parser.add_argument("--again", action="store_true", help="train ids that have a file")
    options = parser.parse_args(arguments)
    if unknown := set(options.ids) - set(known):
        parser.error(f"no task for {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    for id in options.ids or known:
        if options.again or id not in pretrained.index():
            begin = time.perf_counter()
            kept, score = make(known[id])
            seconds = time.perf_counter() - begin
            print(
                f"{id}: {score['mean']:.4g} ± {score['std']:.3g}, random {score['random']:.4g},"
                f" seeds {score['seeds']}, {seconds:.0f} s{'' if kept else ', not kept'}",
                file=sys.stderr,
            )
            jax.clear_caches()  # programs of other ids


def make(task: Task) -> tuple[bool, dict[str, Any]]:
    """Trains and evaluates; writes the best seed's policy and its entry in the index.

    Returns:
        Whether the policy is better than random actions, without which nothing is written; and its
        score.
    """
    config = task.config
    env = evaluation_env("policies", config.make_env(1, training=False), task.episodes)
    means, policies = {}, {}
    for seed, policy in _trained(config, task):
        policies[seed], means[seed] = policy, _returns(env, policy, SELECTION).mean().item()
    best = max(means, key=means.__getitem__)
    returns, random = (_returns(env, policy, SCORE) for policy in (policies[best], None))
    score = {
        "mean": round(returns.mean().item(), 4),
        "std": round(returns.std().item(), 4),
        "episodes": len(returns),
        "random": round(random.mean().item(), 4),
        "best_seed": best,
        "seeds": {f"{seed}": round(mean, 4) for seed, mean in means.items()},
        "measured": f"greedy, one episode in each of {len(returns)} instances without training"
        f" wrappers, cut off after {MAX_STEPS:,} steps if the environment has no time limit; the"
        " seed that is best in as many other episodes, in which the scores of seeds were measured",
    }
    errors = [each.std() / len(each) ** 0.5 for each in (returns, random)]
    if not returns.mean() - random.mean() > 4 * np.hypot(*errors):
        return False, score
    pretrained.FOLDER.mkdir(exist_ok=True)
    path = pretrained.FOLDER / f"{task.id.replace('/', '-')}.npz"
    config = config.replace(seed=best)
    pretrained.PolicyFile.of(path, policies[best], config, score).write()
    content = path.read_bytes()
    entry = {
        "file": path.name,
        "sha256": pretrained.checksum(content),
        "bytes": len(content),
        "algorithm": config.algorithm,
        "steps": config.total_steps,
        **{name: score[name] for name in ("mean", "std", "episodes", "random")},
        "seeds": len(means),
    }
    entries = pretrained.index() | {task.id: entry}
    ordered = {each.id: entries[each.id] for each in TASKS if each.id in entries}
    pretrained.INDEX.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
    return True, score


def _trained(config: Config, task: Task) -> Iterator[tuple[int, ActorPolicy]]:
    """Yields each seed with its policy."""
    train = config.make_train()

    def run(seed: jax.Array) -> ActorPolicy:
        return train.policy(train(jax.random.key(seed)).learner_state)

    if task.in_turn:
        program = jax.jit(run)
        for seed in range(task.seeds):
            yield seed, program(jnp.int32(seed))
    else:
        policies = jax.jit(jax.vmap(run))(jnp.arange(task.seeds))
        for seed in range(task.seeds):
            yield seed, jax.tree.map(operator.itemgetter(seed), policies)


def _returns(env: VectorEnv, policy: ActorPolicy | None, seed: int) -> np.ndarray:
    """Returns the return of an episode of each instance. No policy means random actions."""
    carry = None if policy is None else policy.initial_carry(env.num_envs)
    evaluation = jaxenvs.evaluate(env, policy, 1, jax.random.key(seed), policy_carry=carry)
    return np.asarray(evaluation.episode_return, np.float64).ravel()


if __name__ == "__main__":
    main()
