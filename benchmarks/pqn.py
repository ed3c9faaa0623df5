"""Compares PQN with the program of its authors: returns during training on MinAtar's Breakout.

    python -m benchmarks.pqn --purejaxql FOLDER --output auto --plot auto

FOLDER is a copy of github.com/mttga/purejaxql (commit 47af6d7). Its `pqn_minatar_simple.py` runs
unchanged, except that `jaxenvs.faces.gymnax` takes the place of gymnax. Both train on the same
environment, `Breakout-MinAtar`, with the authors' hyperparameters for MinAtar.
"""

import argparse
import functools
import importlib.util
import math
import sys
import time
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxenvs
from benchmarks import _common
from benchmarks import _training_peers as peers
from benchmarks._common import OURS
from jaxenvs.catalog.gymnax_ids import GYMNAX_DEFAULTS, GYMNAX_IDS
from jaxenvs.training.config import Config

ID = "Breakout-MinAtar"
AUTHORS = "purejaxql"
NUM_ENVS, UNROLL_LENGTH, MINIBATCHES, EPOCHS = 128, 32, 32, 2
LEARNING_RATE, GAMMA, GAE_LAMBDA, FINAL_EPSILON = 5e-4, 0.99, 0.65, 0.05
EXPLORATION = 0.1  # of the training
LAST = 0.1  # of the training, over which the final return is averaged

Curve = list[tuple[int, float]]  # environment steps, mean return of episodes


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line; see `--help`."""
    parser = _common.new_parser("pqn", __doc__, has_plot=True)
    add = parser.add_argument
    add(
        "--purejaxql",
        type=Path,
        default=Path("purejaxql"),
        help="folder of the authors' repository (default purejaxql)",
    )
    add("--steps", type=int, default=1_000_000, help="environment steps of a training")
    add("--seeds", type=int, default=3, help="trainings of each program (default 3)")
    options = parser.parse_args(arguments)
    _common.publish(options, functools.partial(measure, options, arguments), table, plot)


def measure(options: argparse.Namespace, arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Trains both programs in turn; returns the report for JSON."""
    source = options.purejaxql / "purejaxql" / "simplified" / "pqn_minatar_simple.py"
    if not source.exists():
        raise SystemExit(f"there is no {source}: get it from github.com/mttga/purejaxql.")
    report = _common.new_report("pqn", arguments, ["flax", "optax"], options.seeds)
    report |= {"id": ID, "steps": options.steps, "measurements": []}
    authors = load_program(source)
    ours = make_ours(options.steps)
    for seed in range(options.seeds):
        for name, run in ((OURS, ours), (AUTHORS, functools.partial(authors, options.steps))):
            begin = time.perf_counter()
            curve = run(seed)
            entry = {"contestant": name, "seed": seed, "seconds": time.perf_counter() - begin}
            entry |= {"final_return": final_return(curve), "curve": curve}
            report["measurements"].append(entry)
            if not options.quiet:
                print(f"{name}, seed {seed}: {entry['final_return']:.2f}", file=sys.stderr)
    return report


def make_ours(steps: int) -> Any:
    """Returns our training as a function of a seed."""
    config = Config(
        GYMNAX_IDS[ID],
        "PQN",
        num_envs=NUM_ENVS,
        unroll_length=UNROLL_LENGTH,
        total_steps=steps,
        settings={
            "learning_rate": LEARNING_RATE,
            "gamma": GAMMA,
            "gae_lambda": GAE_LAMBDA,
            "final_epsilon": FINAL_EPSILON,
            "exploration_steps": int(EXPLORATION * steps),
            "minibatches": MINIBATCHES,
            "epochs": EPOCHS,
        },
        actor={"extractor": {"type": "SmallCNN", "layer_norm": True}},
    )
    env = jaxenvs.make_vec(config.id, NUM_ENVS, **GYMNAX_DEFAULTS[ID])
    train = jax.jit(config.make_train(env=env))

    def run(seed: int) -> Curve:
        metrics = jax.device_get(train(jax.random.key(seed)).metrics)
        rows = zip(metrics["steps"].tolist(), metrics["episode_return"].tolist(), strict=True)
        return [(step, value) for step, value in rows if not math.isnan(value)]

    return run


def load_program(source: Path) -> Any:
    """Returns the authors' training as a function of the steps and a seed."""
    peers.install()  # the wrapper that it imports is that of gymnax 0.0.9
    import jaxenvs.faces.gymnax as face

    # It logs by wandb and reads its settings by hydra.
    wandb, hydra, omegaconf = (types.ModuleType(name) for name in ("wandb", "hydra", "omegaconf"))
    vars(hydra)["main"] = lambda **_: lambda function: function
    vars(omegaconf)["OmegaConf"] = None
    sys.modules |= {"wandb": wandb, "hydra": hydra, "omegaconf": omegaconf}
    if not hasattr(jax, "tree_map"):
        vars(jax)["tree_map"] = jax.tree.map
    spec: Any = importlib.util.spec_from_file_location("pqn_minatar_simple", source)
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    program.gymnax = face
    settings = {
        "ENV_NAME": ID,
        "NUM_ENVS": NUM_ENVS,
        "NUM_STEPS": UNROLL_LENGTH,
        "NUM_MINIBATCHES": MINIBATCHES,
        "NUM_EPOCHS": EPOCHS,
        "NORM_TYPE": "layer_norm",
        "LR": LEARNING_RATE,
        "LR_LINEAR_DECAY": True,
        "MAX_GRAD_NORM": 10,
        "GAMMA": GAMMA,
        "LAMBDA": GAE_LAMBDA,
        "EPS_START": 1.0,
        "EPS_FINISH": FINAL_EPSILON,
        "EPS_DECAY": EXPLORATION,
        "WANDB_MODE": "online",
    }

    def run(steps: int, seed: int) -> Curve:
        curve: Curve = []

        def log(metrics: dict[str, float], step: int) -> None:
            del step
            curve.append((metrics["env_step"], metrics["returned_episode_returns"]))

        vars(wandb)["log"] = log
        config = settings | {"TOTAL_TIMESTEPS": steps, "TOTAL_TIMESTEPS_DECAY": steps}
        program.train(config, jax.random.PRNGKey(seed))
        return curve

    return run


def final_return(curve: Curve) -> float:
    """Returns the mean over the last part of a curve."""
    end = curve[-1][0]
    return float(np.mean([value for step, value in curve if step > (1 - LAST) * end]))


def table(report: dict[str, Any]) -> str:
    """Formats the report as Markdown."""
    lines = [
        _common.headline(report, f"{report['steps']:,} steps of {report['id']}"),
        "",
        "| program | return at the end, mean ± standard error | seconds |",
        "|---|---|---|",
    ]
    for name in (OURS, AUTHORS):
        own = [entry for entry in report["measurements"] if entry["contestant"] == name]
        returns = [entry["final_return"] for entry in own]
        mean, error = _common.mean_and_error(np.array(returns))
        seconds = _common.quartiles([entry["seconds"] for entry in own])[1]
        lines.append(f"| {name} | {mean:.2f} ± {error:.2f} | {seconds:.0f} |")
    return "\n".join(lines)


def plot(report: dict[str, Any], path: Path) -> None:
    """Plots the returns of all seeds during training."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
    for color, name in (("C0", OURS), ("C1", AUTHORS)):
        for entry in report["measurements"]:
            if entry["contestant"] == name:
                label = name if entry["seed"] == 0 else None
                axis.plot(*zip(*entry["curve"], strict=True), color=color, linewidth=1, label=label)
    axis.set(xlabel="environment steps", ylabel="return while exploring", title=f"PQN, {ID}")
    axis.legend()
    axis.grid(alpha=0.3)
    figure.savefig(path, dpi=150)
    plt.close(figure)


if __name__ == "__main__":
    main()
