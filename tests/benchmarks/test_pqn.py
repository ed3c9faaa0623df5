import json

import jax
import numpy as np
import pytest

from benchmarks import pqn

pytestmark = [pytest.mark.slow, pytest.mark.optimized]

# What the benchmark needs of the authors' program: it makes the environment by the name `gymnax`,
# and logs an episode return after each update.
PROGRAM = """
import hydra
import wandb
from omegaconf import OmegaConf

def train(config, key):
    env, env_params = gymnax.make(config["ENV_NAME"])
    for step in range(0, config["TOTAL_TIMESTEPS"], config["NUM_ENVS"] * config["NUM_STEPS"]):
        wandb.log({"env_step": step, "returned_episode_returns": float(env.num_actions)}, step)
"""


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Runs the benchmark as from the command line, tiny, and reads its results."""
    folder = tmp_path_factory.mktemp("pqn")
    source = folder / "purejaxql" / "simplified" / "pqn_minatar_simple.py"
    source.parent.mkdir(parents=True)
    source.write_text(PROGRAM)
    files = ["--output", str(folder / "results.json"), "--plot", str(folder / "plot.png")]
    small = ["--steps", "16384", "--seeds", "2", "--quiet"]
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        pqn.main(["--purejaxql", str(folder), *small, *files])
    assert (folder / "plot.png").exists()
    return json.loads((folder / "results.json").read_text())


def test_both_programs_train_with_every_seed(report):
    found = [(entry["contestant"], entry["seed"]) for entry in report["measurements"]]
    assert found == [(name, seed) for seed in (0, 1) for name in ("jaxenvs", "purejaxql")]
    for entry in report["measurements"]:
        steps, returns = np.transpose(entry["curve"])
        assert (np.diff(steps) > 0).all() and entry["final_return"] >= 0
        assert entry["contestant"] == "jaxenvs" or (returns == 3).all()  # the actions of Breakout


def test_the_final_return_is_the_mean_of_the_last_tenth():
    assert pqn.final_return([(step, float(step)) for step in range(1, 21)]) == 19.5


def test_a_missing_program_is_reported(tmp_path):
    with pytest.raises(SystemExit, match="purejaxql"):
        pqn.main(["--purejaxql", str(tmp_path), "--quiet"])
