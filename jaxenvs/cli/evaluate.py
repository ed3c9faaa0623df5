"""`jaxenvs eval`."""

import argparse

import numpy as np

from jaxenvs.cli._console import console, table
from jaxenvs.cli._runs import (
    Run,
    group_by_task,
    make_train_for_playing,
    reward_threshold,
    runs_or_policies,
)
from jaxenvs.cli.render import playing_key
from jaxenvs.errors import TrainingError
from jaxenvs.training.evaluation import play_episodes


def run(options: argparse.Namespace) -> None:
    """Plays episodes with the greedy policies and prints their returns."""
    if options.episodes < 1:
        raise TrainingError(f"eval got --episodes {options.episodes}; expected a positive number.")
    rows = table(
        *("run", "episodes", "mean", "std"), *("lowest", "25 %", "median", "75 %", "highest")
    )
    thresholds = {}
    for group in group_by_task(runs_or_policies(options.runs)):
        returns, threshold = episode_returns(
            group, options.episodes, options.seed, options.max_steps, options.which
        )
        if threshold is not None:
            thresholds[group[0].config.id] = threshold
        for each, own in zip(group, returns, strict=True):
            rows.add_row(f"{each.folder}", *_figures(own))
        if len(group) > 1:
            rows.add_row(f"[bold]all {len(group)}[/]", *_figures(np.concatenate(returns)))
    out = console()
    out.print(rows)
    for id, threshold in thresholds.items():
        out.print(f"{id} is solved at a mean of {threshold}", markup=False)


def episode_returns(
    runs: list[Run],
    episodes: int,
    seed: int,
    max_steps: int | None = None,
    which: str = "latest",
) -> tuple[list[np.ndarray], float | None]:
    """Returns the returns of at least `episodes` whole episodes per run, and the threshold.

    The runs differ only in their seeds, so one program plays all of them, in the same new episodes.
    Episodes that `max_steps` cuts off are not counted.
    """
    config = runs[0].config
    train = make_train_for_playing(config)
    env = train.env if config.is_hosted else config.make_env(episodes, training=False)
    key, returns = playing_key(seed), []
    try:
        for each in runs:
            policy = each.read_policy(train, which)
            evaluation = play_episodes(env, policy, episodes, key, max_steps=max_steps)
            returns.append(np.asarray(evaluation.episode_return)[np.asarray(evaluation.finished)])
        return returns, reward_threshold(env, config.id)
    finally:
        env.close()


def _figures(returns: np.ndarray) -> list[str]:
    if not returns.size:
        return ["0", *("-" * 7)]
    figures = [returns.mean(), returns.std(), *np.quantile(returns, (0, 0.25, 0.5, 0.75, 1))]
    return [f"{returns.size}", *(f"{figure:.1f}" for figure in figures)]
