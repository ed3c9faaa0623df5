"""`jaxenvs train`."""

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxenvs.bridge.xla import HostEnv
from jaxenvs.cli._console import console
from jaxenvs.cli._progress import TrainingProgress
from jaxenvs.core import VectorEnv
from jaxenvs.errors import MissingExtraError, TrainingError
from jaxenvs.factory import is_hosted, make
from jaxenvs.registry import find
from jaxenvs.rendering.plots import write_learning_curve
from jaxenvs.training import PPO, Train, TrainResult, make_train, restore, save
from jaxenvs.training.recipes import Recipe, recipe


def run(options: argparse.Namespace) -> None:
    """Trains, says how it went, and writes the output folder."""
    if not is_hosted(options.id):
        make(options.id)  # an unknown id is refused before anything is said
    chosen = recipe(options.id)
    changes = {
        name: getattr(options, name)
        for name in ("num_envs", "unroll_length", "total_steps")
        if getattr(options, name) is not None
    }
    chosen = dataclasses.replace(chosen, **changes, ppo=with_settings(chosen.ppo, options.set))
    folder = Path(options.output or Path("runs") / options.id)

    out = console()
    out.print(
        f"{options.id}: {chosen.num_envs} instances, {chosen.total_steps:,} steps,"
        f" on {jax.devices()[0].device_kind}"
    )
    train, result, seconds = learn(options.id, chosen, options.seed)
    threshold = _threshold(train.env, options.id)
    if isinstance(train.env, HostEnv):
        train.env.close()
    steps = train.num_updates * train.unroll_length * train.env.num_envs
    out.print(
        f"Trained in {seconds['run']:.1f} s ({steps / seconds['run']:,.0f} steps/s),"
        f" compiled in {seconds['compile']:.1f} s."
    )
    out.print(f"Mean return of the last episodes: {last_return(result):.1f}")
    if threshold is not None:
        out.print(f"Solved from: {threshold}")

    write_run(folder, options.id, chosen, options.seed, result)
    written = ["metrics.json", "config.json", "checkpoint/"]
    try:
        curve = write_learning_curve(
            folder / "learning_curve.png",
            result.metrics["steps"],
            result.metrics["episode_return"],
            title=f"PPO on {options.id}",
            threshold=threshold,
        )
        written.append(curve.name)
    except MissingExtraError as error:  # no reason to fail after a training
        out.print(f"No learning curve: {error}", markup=False)
    out.print(f"Wrote {folder}/: {', '.join(written)}")


def learn(id: str, chosen: Recipe, seed: int) -> tuple[Train, TrainResult, dict[str, float]]:
    """Trains with a progress bar; returns also the seconds of "compile" and "run"."""
    instances: dict[str, Any] = {"num_envs": chosen.num_envs, "unroll_length": chosen.unroll_length}
    train = make_train(id, chosen.ppo, **instances, total_steps=chosen.total_steps)
    progress = TrainingProgress(train.num_updates, chosen.num_envs * chosen.unroll_length)
    train = dataclasses.replace(train, on_update=progress)
    key = jax.random.key(seed)
    with progress:
        start = time.perf_counter()
        program = jax.jit(train).lower(key).compile()
        compiled = time.perf_counter()
        result = jax.block_until_ready(program(key))
        finished = time.perf_counter()
        jax.effects_barrier()  # the last reports have arrived
    return train, result, {"compile": compiled - start, "run": finished - compiled}


def _threshold(env: VectorEnv, id: str) -> float | None:
    """The mean return from which `id` counts as solved, where somebody says so."""
    spec = env.pools[0].spec if isinstance(env, HostEnv) else find(id)
    return getattr(spec, "reward_threshold", None)


def last_return(result: TrainResult) -> float:
    """The mean over the episodes that ended in the last tenth of the updates; NaN if none did."""
    returns, counts = (np.asarray(result.metrics[f"episode_{x}"]) for x in ("return", "count"))
    tail = slice(-max(1, len(returns) // 10), None)
    total = counts[tail].sum()
    return float(np.nansum(returns[tail] * counts[tail]) / total) if total else float("nan")


def with_settings(ppo: PPO, settings: Sequence[str]) -> PPO:
    """Applies "name=value" texts; each value takes the type that the hyper-parameter has.

    Raises:
        TrainingError: a text is malformed, or names no hyper-parameter.
    """
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise TrainingError(f'--set got "{setting}"; write it as name=value.')
        ppo.replace(**{name: None})  # raises where there is no such hyper-parameter
        ppo = ppo.replace(**{name: _parsed(name, text, getattr(ppo, name))})
    return ppo


def write_run(folder: Path, id: str, chosen: Recipe, seed: int, result: TrainResult) -> None:
    """Writes config.json, metrics.json and checkpoint/."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"id": id, "algorithm": "ppo", "seed": seed, **dataclasses.asdict(chosen)}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    metrics = {
        name: [None if np.isnan(x) else float(x) for x in np.asarray(values)]
        for name, values in result.metrics.items()
    }
    (folder / "metrics.json").write_text(json.dumps(metrics) + "\n")
    save(folder / "checkpoint", result.learner_state)


def read_policy(folder: Path, id: str) -> Any:
    """The greedy policy of a run that `write_run` left.

    Raises:
        TrainingError: there is no run, or it learned another id.
    """
    try:
        config = json.loads((folder / "config.json").read_text())
    except FileNotFoundError as error:
        raise TrainingError(
            f'"{folder}" holds no config.json.  Pass the output folder of `jaxenvs train`.'
        ) from error
    if config["id"] != id:
        raise TrainingError(f'the run in "{folder}" learned {config["id"]}, not {id}.')
    hyper: dict[str, Any] = {
        k: tuple(v) if isinstance(v, list) else v for k, v in config["ppo"].items()
    }
    sizes = {name: config[name] for name in ("num_envs", "unroll_length", "total_steps")}
    train = make_train(id, PPO(**hyper), **sizes)
    like = jax.eval_shape(train.init, jax.random.key(0))
    return train.policy(restore(folder / "checkpoint", like))


def _parsed(name: str, text: str, old: Any) -> Any:
    try:
        if isinstance(old, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(old, tuple):
            return tuple(int(size) for size in text.split(",") if size)
        return type(old)(text)
    except (KeyError, ValueError) as error:
        raise TrainingError(
            f'--set got {name}="{text}"; it takes a value like {old!r}'
            f"{', sizes separated by commas' if isinstance(old, tuple) else ''}."
        ) from error
