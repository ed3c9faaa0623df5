"""`jaxenvs sweep`: searches for hyperparameters."""

import argparse
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxenvs.cli._console import console, plain, table
from jaxenvs.cli.train import configuration, parse_value
from jaxenvs.errors import MissingExtraError, TrainingError
from jaxenvs.rendering.plots import write_sweep
from jaxenvs.training.config import Config
from jaxenvs.training.sweeps import Interval, Result, Space, sample, sweep, with_settings

_SHOWN = 10  # trials in the table


def run(options: argparse.Namespace) -> None:
    """Trains the trials, prints the best of them and plots all."""
    if options.config is options.id is None:
        raise TrainingError(
            "sweep got no id.  Pass an algorithm and an id: jaxenvs sweep ppo CartPole-v1; or pass"
            " --config."
        )
    config = configuration(options)
    space = dict(_entries(options.space, options.search))
    trials = sample(space, options.trials, seed=config.seed, sampler=options.sampler)
    if options.dry_run:
        print(json.dumps(trials, indent=2))
        return
    folder = _folder(config) if options.output is None else Path(options.output)
    results = sweep(
        config,
        trials,
        seeds=options.seeds,
        rungs=options.rungs,
        factor=options.factor,
        metric=options.metric,
        parallel=options.parallel,
        folder=folder,
    )
    out, last = console(), {}
    out.print(
        f"{config.algorithm} on {config.id}: {len(trials)} trials of {options.seeds} seeds,"
        f" {config.total_steps:,} steps",
        markup=False,
    )
    for result in results:
        last[result.trial] = result
        name = f"Trial {result.trial}, {result.steps:,} steps"
        out.print(f"{name}: {result.score:.4g}", markup=False)
    ranked = sorted(last.values(), key=lambda each: (-each.rung, -each.score, each.trial))
    out.print(_table(ranked[:_SHOWN], [*space], options.metric))
    best = with_settings(config, ranked[0].settings).replace(seed=config.seed + options.seeds)
    best.complete().write(folder / "best.toml")
    try:
        _plot(folder / "sweep.png", space, ranked, options)
    except MissingExtraError as error:  # do not fail after training
        out.print(f"No plot: {error}", markup=False)
    written = ", ".join(path.name for path in sorted(folder.iterdir()))
    out.print(f"Wrote {folder}/: {written}", markup=False)
    out.print(
        f"The best, with other seeds: jaxenvs train --config {folder / 'best.toml'} --seeds 10",
        markup=False,
    )


def _folder(config: Config) -> Path:
    algorithm, id = (name.rpartition(":")[2] for name in (config.algorithm, config.id))
    return Path("runs") / "sweep" / algorithm.lower() / id


def _entries(file: str | None, texts: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yields names with their intervals or values, of a TOML file and of texts "name=values"."""
    if file is not None:
        try:
            entries = tomllib.loads(Path(file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:  # also of tomllib or the encoding
            raise TrainingError(f'"{file}" cannot be read as TOML: {error}.') from error
        yield from _flat(entries)
    for text in texts:
        name, equals, values = text.partition("=")
        if not (equals and name.strip() and values.strip()):
            raise TrainingError(
                f'--search got "{text}"; write it as NAME=LOW..HIGH, NAME=LOW..HIGH:log, or'
                " NAME=A,B,C."
            )
        yield name.strip(), _dimension(values.strip())


def _flat(entries: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in entries.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, _dimension(value) if isinstance(value, str) else _listed(value)


def _dimension(text: str) -> Interval | list[Any]:
    """Parses "1e-4..1e-2:log" or "0.1,0.2"."""
    low, dots, rest = text.partition("..")
    if not dots:
        return _listed(parse_value(text))
    high, colon, scale = rest.partition(":")
    ends = [parse_value(end.strip()) for end in (low, high)]
    if any(type(end) not in (int, float) for end in ends) or (colon and scale.strip() != "log"):
        raise TrainingError(
            f'the interval "{text}" is malformed; write it as LOW..HIGH or LOW..HIGH:log.'
        )
    return Interval(*ends, log=bool(colon))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _table(ranked: Sequence[Result], names: Sequence[str], metric: str) -> Any:
    title = plain(f"the best by {metric.replace('_', ' ')}")
    shown = table("trial", "steps", "score", "lowest", "highest", *map(plain, names), title=title)
    for each in ranked:
        figures = (each.score, min(each.scores), max(each.scores))
        shown.add_row(
            f"{each.trial}",
            f"{each.steps:,}",
            *(f"{figure:.4g}" for figure in figures),
            *(plain(_short(each.settings[name])) for name in names),
        )
    return shown


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _plot(path: Path, space: Space, ranked: Sequence[Result], options: argparse.Namespace) -> None:
    points = {
        f"rung {rung + 1}" if options.rungs > 1 else "": [
            (each.settings, each.score) for each in ranked if each.rung == rung
        ]
        for rung in range(options.rungs)
    }
    logarithmic = [name for name, each in space.items() if isinstance(each, Interval) and each.log]
    ylabel = options.metric.replace("_", " ")
    write_sweep(path, points, names=[*space], logarithmic=logarithmic, ylabel=ylabel)
