"""Checks that policies transfer between an environment and its reference, both ways.

    python -m benchmarks.transfer FrozenLake-v1 MinAtar/Breakout-v0 --algorithm PPO

Trains one policy in our environment and one in the reference, with the same settings. Both play
many episodes in both. A policy transfers if its mean returns are equivalent: two one-sided t-tests
(TOST) reject that they differ by more than a tenth of the reference's. Writes
benchmarks/certificates/transfer.json.
"""

import functools
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np
from scipy import stats

import jaxenvs
from benchmarks import _certificates, _common
from benchmarks.certify import reference_version
from benchmarks.oracles import oracle_for
from jaxenvs.core import VectorEnv
from jaxenvs.spaces.conversion import to_gymnasium
from jaxenvs.training.config import Config, config_for

MARGIN = 0.1  # of the mean return in the reference
SIGNIFICANCE = 0.05


class ReferenceEnv(gymnasium.Env):
    """An oracle as an environment of Gymnasium."""

    def __init__(self, id: str) -> None:
        self.task = jaxenvs.make(id).unwrapped
        self.observation_space = to_gymnasium(self.task.observation_space)
        self.action_space = to_gymnasium(self.task.action_space)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode; a seed makes the reference anew."""
        del options
        if seed is not None:
            self.oracle = oracle_for(self.task)(self.task, seed)
        return self.oracle.reset(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes one step."""
        observation, reward, terminated = self.oracle.step(action)
        return observation, float(reward), bool(terminated), False, {}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; see `--help`. Returns 1 if a policy does not transfer."""
    parser = _common.plain_parser("transfer", __doc__)
    add = parser.add_argument
    add("ids", nargs="+", help="environment ids")
    add("--algorithm", default="PPO")
    add("--steps", type=int, help="environment steps of each training, instead of the tuned ones")
    add("--episodes", type=int, default=2_000, help="episodes per policy and environment")
    add("--seed", type=int, default=0)
    add("--output", type=Path, default=_certificates.FOLDER, help="folder of the certificates")
    options = parser.parse_args(arguments)
    all_transfer = True
    for id in options.ids:
        config = config_for(options.algorithm, id)
        config = config.replace(total_steps=options.steps or config.total_steps)
        found = compare_policies(config, options.episodes, options.seed)
        path = _certificates.write(id, found, "transfer", options.output)
        transfers = all(policy["p_value"] < SIGNIFICANCE for policy in found["policies"].values())
        print(f"{id}: policies {'transfer' if transfers else 'DO NOT TRANSFER'}, {path}")
        all_transfer &= transfers
    return 0 if all_transfer else 1


def compare_policies(config: Config, num_episodes: int, seed: int = 0) -> dict[str, Any]:
    """Trains a policy in each of both environments and compares their returns in both."""
    id, num_envs = config.id, config.num_envs
    each = -(-num_episodes // num_envs)  # episodes per instance
    ours = jaxenvs.make_vec(id, num_envs)
    reference = make_reference(id, num_envs)
    found = {}
    for origin, env in (("jaxenvs", ours), ("reference", reference)):
        train = config.make_train(env=env)
        result = jax.jit(train)(jax.random.key(seed))
        policy = train.policy(result.learner_state)
        key = jax.random.key(seed + 1)
        returns = [
            np.asarray(jaxenvs.evaluate(played, policy, each, key).episode_return).reshape(-1)
            for played in (ours, reference)
        ]
        found[f"trained in {origin}"] = {
            "ours": _common.mean_and_error(returns[0]),
            "reference": _common.mean_and_error(returns[1]),
            "p_value": equivalence_p_value(*returns, margin=MARGIN * abs(returns[1].mean())),
        }
    reference.close()  # pyright: ignore[reportAttributeAccessIssue]
    return {
        "id": id,
        "reference": reference_version(jaxenvs.make(id)),
        "algorithm": config.algorithm,
        "training_steps": config.total_steps,
        "episodes": each * num_envs,
        "margin": MARGIN,
        "policies": found,
    }


def make_reference(id: str, num_envs: int) -> VectorEnv:
    """Returns instances of the reference, in worker processes."""
    is_gymnasium = jaxenvs.registry[id].compared_with == "gymnasium"  # needs no oracle
    pool = jaxenvs.make_pool(
        f"gymnasium/{id}" if is_gymnasium else functools.partial(ReferenceEnv, id),
        num_envs,
        backend="process",
        time_limit=jaxenvs.make(id).time_limit,
    )
    return jaxenvs.HostEnv(pool)


def equivalence_p_value(a: np.ndarray, b: np.ndarray, margin: float) -> float:
    """Returns the p-value of the hypothesis that the means differ by at least `margin`."""
    below = stats.ttest_ind(a + margin, b, equal_var=False, alternative="greater").pvalue
    above = stats.ttest_ind(a - margin, b, equal_var=False, alternative="less").pvalue
    return float(max(below, above))


if __name__ == "__main__":
    sys.exit(main())
