"""`jaxenvs bsuite`."""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from jaxenvs.catalog.bsuite import EXPERIMENTS
from jaxenvs.cli._console import console, table, writing
from jaxenvs.cli.train import with_settings
from jaxenvs.errors import MissingExtraError, ParameterError, TrainingError, closest
from jaxenvs.faces.bsuite import (
    RandomAgent,
    check_experiment,
    records_path,
    run_experiment,
    scores,
    write_records,
)
from jaxenvs.factory import make, make_vec
from jaxenvs.rendering.plots import write_radar
from jaxenvs.training.config import Config, config_for

RANDOM = "random"
AGENTS = ("a2c", "dqn", "ppo", "pqn", "sac", "vpg", RANDOM)  # for discrete actions
# Annealed rates would reach 0 after so many steps. bsuite's experiments end by episodes instead.
_TOTAL_STEPS = 10**9


def run(options: argparse.Namespace) -> None:
    """Plays the experiments, writes records and radar.png, and prints the scores."""
    make_agent, num_envs, text = _agent(options)
    names = _experiments(options.experiments)
    own = options.algorithm.rpartition(":")[2].lower()
    folder = Path(options.output or Path("runs", "bsuite", own))
    with writing(folder):
        _write_agent(folder / "agent.toml", text)
    out = console()
    for name in names:
        numbers = range(len(EXPERIMENTS[name].settings))
        if all(records_path(folder, f"{name}/{number}").exists() for number in numbers):
            out.print(f"{name}: already played")
            continue
        start = time.perf_counter()
        key = jax.random.fold_in(jax.random.key(options.seed), list(EXPERIMENTS).index(name))
        rows = run_experiment(
            name, make_agent, key=key, num_episodes=options.episodes, num_envs=num_envs
        )
        with writing(folder):
            write_records(folder, rows)
        episodes = next(iter(rows.values()))[-1]["episode"]
        seconds = time.perf_counter() - start
        out.print(f"{name}: {len(rows)} settings, {episodes:,} episodes each, {seconds:.1f} s")
    try:
        by_experiment, by_tag = scores(folder)
        if by_tag:
            for kind, found in (("experiment", by_experiment), ("tag", by_tag)):
                shown = table(kind, "score")
                for each, score in found.items():
                    shown.add_row(each, f"{score:.2f}")
                out.print(shown)
            path = write_radar(folder / "radar.png", {own: by_tag})
            out.print(f"Wrote {path}.", markup=False)
    except MissingExtraError as error:  # the records are written
        out.print(f"The scores are missing: {error}", markup=False)
    out.print(f"Wrote the records to {folder}/.", markup=False)


def _agent(options: argparse.Namespace) -> tuple[Callable[..., Any], int, str]:
    """Returns what makes an agent, its number of instances, and a text that describes it."""
    sizes = {name: getattr(options, name) for name in ("num_envs", "unroll_length")}
    sizes = {name: size for name, size in sizes.items() if size is not None}
    name = options.algorithm.lower()
    if name not in AGENTS and ":" not in name:
        raise TrainingError(
            f'bsuite has no agent "{name}".{closest(name, AGENTS)}  Choose one of'
            f' {", ".join(AGENTS)}; "module:Class" or "file.py:Class" is an algorithm of your own.'
        )
    episodes = ""
    if options.episodes is not None:
        episodes = f"# {options.episodes} episodes of each setting\n"
    if name == RANDOM:
        if options.set or "unroll_length" in sizes:
            raise TrainingError("bsuite got settings for the random agent, which has none.")
        return RandomAgent, sizes.get("num_envs", 1), f'{episodes}algorithm = "{RANDOM}"\n'
    config: Config = config_for(options.algorithm, "bsuite").replace(**sizes, seed=options.seed)
    config = with_settings(config, options.set).replace(total_steps=_TOTAL_STEPS)

    def make_agent(env: Any) -> Any:
        return config.make_train(env=env)

    make_agent(make_vec("bsuite/bandit-v0", config.num_envs))  # reports mistakes before playing
    return make_agent, config.num_envs, episodes + config.complete().to_toml()


def _experiments(given: str | None) -> list[str]:
    """Returns the names of the experiments to play, without those that lack MNIST's images."""
    if given is not None:
        names = [name.strip() for name in given.split(",") if name.strip()]
        for name in names:
            check_experiment(name)
        return names
    try:
        jax.eval_shape(make("bsuite/mnist-v0").reset, jax.random.key(0))
    except ParameterError as error:
        console().print(f"Without the experiments of mnist: {error}", markup=False)
        return [name for name, each in EXPERIMENTS.items() if each.task != "mnist"]
    return list(EXPERIMENTS)


def _write_agent(path: Path, text: str) -> None:
    """Writes the description of the agent, or checks that it is that of the records there."""
    is_other = path.exists() and path.read_text(encoding="utf-8") != text
    if is_other and any(path.parent.glob("*.csv")):
        raise TrainingError(
            f'"{path.parent}" contains records of an agent with other settings, see {path.name}.'
            "  Pass another --output."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
