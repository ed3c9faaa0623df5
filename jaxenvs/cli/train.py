"""`jaxenvs train`."""

import argparse
import contextlib
import itertools
import signal
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxenvs import statistics
from jaxenvs.cli._console import console
from jaxenvs.cli._runs import Run, reward_threshold, runs_in
from jaxenvs.cli.info import field_comments
from jaxenvs.errors import MissingExtraError, TrainingError
from jaxenvs.rendering.plots import write_learning_curves
from jaxenvs.training import Learner, Scheme
from jaxenvs.training.collection import WINDOW
from jaxenvs.training.config import Config, config_for
from jaxenvs.training.logs import STEP, check_logs, read_metrics, remove_new
from jaxenvs.training.schemes.spec import TrainingSpec

_FLAGS = ("num_envs", "unroll_length", "total_steps", "report_every", "seed")
_FLAGS += ("save_every", "evaluate_every", "evaluation_episodes")
_SCHEME_FLAGS = ("collection", "gradients", "update")
_UNSAVED = "training ended before the first checkpoint"


def run(options: argparse.Namespace) -> int:
    """Trains, writes the output folder and prints a summary. Returns the exit status."""
    check_logs(options.log)
    if options.resume is not None:
        folder, runs = _find_runs_to_resume(options)
        return _train(folder, runs, options.log, resume=True)
    config = configuration(options)
    _check(config, options.seeds)
    if options.dry_run:
        print(commented(config), end="")
        return 0
    with _new_runs(config, options.seeds, options.output) as (folder, runs):
        return _train(folder, runs, options.log, resume=False)


def _train(folder: Path, runs: Sequence[Run], logs: Sequence[str], *, resume: bool) -> int:
    """Runs a learner to the end or until a signal arrives. Returns the exit status."""
    config, out, status = runs[0].config, console(), 0
    is_alone = runs[0].folder == folder
    number = config.evaluation_episodes
    if config.is_hosted:  # do not start more processes than for training
        number = min(number, config.num_envs)
    learner = Learner(
        config.make_scheme(),
        total_steps=config.total_steps,
        seed=config.seed if is_alone else [run.config.seed for run in runs],
        log_dir=folder,
        logs=logs,
        report_every=config.rows_every(),
        save_every=config.save_every,
        evaluate_every=config.evaluate_every,
        evaluation_env=lambda: config.make_env(number, training=False),
        evaluation_episodes=config.evaluation_episodes,
        resume=resume,
        progress=True,
    )
    with contextlib.closing(learner):
        done = learner.updates * learner.steps_per_update
        threshold = reward_threshold(learner.env, config.id)
        if learner.updates > learner.num_updates:
            raise TrainingError(
                f"train got --total-steps {config.total_steps:_} for a run that has already taken"
                f" {done:_}.  Pass a larger number, or omit it."
            )
        for run in runs:
            run.write_config()
        out.print(_heading(config, len(runs), done if resume else None), markup=False)
        try:
            while not learner.done():
                learner.step()
            learner.save()
            learner.close()
        except SystemExit as stop:  # a signal arrived, and the learner has saved
            status = int(stop.code or 0)
    steps = learner.timed_steps * len(runs)
    speed = f" ({steps / learner.run_seconds:,.0f} steps/s)" if steps else ""
    out.print(
        f"Trained in {learner.run_seconds:.1f} s{speed},"
        f" compiled in {learner.compile_seconds:.1f} s."
    )
    _print_summary(folder, runs, threshold)
    if status:
        name = signal.Signals(status - 128).name
        out.print(f"Stopped by {name}. To continue: jaxenvs train --resume {folder}", markup=False)
    return status


def _heading(config: Config, num_seeds: int, done: int | None) -> str:
    seeds = "" if num_seeds == 1 else f" for each of {num_seeds} seeds"
    resumed = "" if done is None else f", {done:,} of them already done"
    workers = "".join(f"; {name}: {value}" for name, value in config.scheme.items())
    return (
        f"{config.algorithm} on {config.id}: {config.num_envs} instances,"
        f" {config.total_steps:,} steps{seeds}{resumed}, on {jax.devices()[0].device_kind}{workers}"
    )


def _check(config: Config, seeds: int | None) -> None:
    """Checks the id and the parts before anything is printed."""
    scheme = config.make_scheme()
    if seeds is not None:
        _check_seeds(config, scheme, seeds)
    if config.is_hosted:  # checking would start processes
        return
    config.make_instance()
    _ = TrainingSpec(scheme, config.total_steps, config.seed).train


def _check_seeds(config: Config, scheme: Scheme, seeds: int) -> None:
    """Checks that the seeds can be trained in one program."""
    if seeds < 1:
        raise TrainingError(f"train got --seeds {seeds}; expected a positive number.")
    if seeds > 1 and not 0 <= config.seed <= 2**32 - seeds:
        raise TrainingError(
            f"train got --seeds {seeds} starting with --seed {config.seed}; seeds must be between 0"
            f" and {2**32 - 1}.  Pass another --seed."
        )
    if config.is_hosted:
        raise TrainingError(
            f"train got --seeds for {config.id}, whose environments are not written in JAX, so"
            " their number is fixed when the pool is made.  Train one seed after the other, with"
            " --seed."
        )
    if not scheme.is_fused:
        raise TrainingError(
            f"train got --seeds {seeds} and a scheme with workers, which support only one seed."
            "  Train one seed after the other, with --seed, or make collection and gradients"
            " central."
        )


def configuration(options: argparse.Namespace) -> Config:
    """Returns the configuration. Flags override the file, which overrides tuned settings.

    Raises:
        TrainingError: arguments contradict each other or are invalid.
    """
    if options.config is not None:
        config = Config.read(options.config)
        if options.algorithm is not None and options.algorithm.lower() != config.algorithm.lower():
            raise TrainingError(
                f'"{options.config}" configures {config.algorithm}, not {options.algorithm}.  Omit'
                " ALGORITHM and ID, or pass another file."
            )
        config = config.replace(id=options.id or config.id)
    else:
        config = config_for(options.algorithm, options.id, options.imports)
    given = {name: getattr(options, name) for name in _FLAGS if getattr(options, name) is not None}
    given["imports"] = tuple(dict.fromkeys([*config.imports, *options.imports]))
    places = {f"scheme.{name}": getattr(options, name) for name in _SCHEME_FLAGS}
    places = {name: value for name, value in places.items() if value is not None}
    return with_settings(config.replace(**given).with_settings(places), options.set)


def with_settings(config: Config, settings: Sequence[str]) -> Config:
    """Applies settings in the form "name=value".

    Raises:
        TrainingError: a setting is malformed, or there is no such setting.
    """
    changes, complete = {}, vars(config.complete())
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise TrainingError(f'--set got "{setting}"; write it as name=value.')
        name = name.strip()
        if name in _FLAGS and name not in complete["settings"]:
            flag = f"--{name.replace('_', '-')}"
            raise TrainingError(
                f'--set got "{setting}", but {name} is not a hyperparameter of {config.algorithm}.'
                f"  Pass {flag} {text.strip()}."
            )
        value = parse_value(text.strip())
        table, _, key = name.rpartition(".")
        known = complete.get(table or "settings")
        is_list = isinstance(known, Mapping) and isinstance(known.get(key), tuple)
        is_single = value is not None and not isinstance(value, list)
        changes[name] = [value] if is_list and is_single else value  # as in hidden_sizes=64
    return config.with_settings(changes)


def commented(config: Config) -> str:
    """Returns the complete configuration as TOML, with a comment on each line."""
    complete = config.complete()
    parts = {
        "[settings]": type(complete.make_algorithm()),
        "[actor]": type(complete.make_actor()),
        "[storage]": type(complete.make_storage()),
        "[scheme]": Scheme,
    }
    comments, lines = field_comments(Config), []
    for line in complete.to_toml().splitlines():
        if line.startswith("["):
            comments = field_comments(parts.get(line, object))
        comment = comments.get(line.partition(" = ")[0])
        lines.append(f"{line:<36}  # {comment}" if comment else line)
    return "\n".join(lines) + "\n"


@contextlib.contextmanager
def _new_runs(
    config: Config, seeds: int | None, output: str | None
) -> Iterator[tuple[Path, list[Run]]]:
    """Makes the output folder and a run per seed. After a failed start, removes what is new."""
    if output is None:
        algorithm, id = (name.rpartition(":")[2] for name in (config.algorithm, config.id))
        wished = Path("runs") / algorithm.lower() / id
    else:
        wished = Path(output)
        there = [Run(path.parent, config) for path in wished.rglob("config.toml")]
        if there:
            if all(run.is_saved for run in there):
                also = f", or continue with --resume {wished}"
            else:
                also = f", or delete the folder: {_UNSAVED}"
            raise TrainingError(f'"{wished}" already contains a run.  Pass another --output{also}.')
        if found := sorted({name for run in _runs(wished, config, seeds) for name in run.written}):
            raise TrainingError(
                f'"{wished}" already contains a run without config.toml ({", ".join(found)}).  Pass'
                " another --output."
            )
    try:
        folder, new_folders = _make_folder(wished, find_unused=output is None)
    except OSError as error:
        raise TrainingError(
            f'the folder "{wished}" cannot be created: {error.strerror}.  Pass another --output.'
        ) from error
    runs, before = _runs(folder, config, seeds), {*folder.iterdir()}
    try:
        yield folder, runs
    except BaseException:
        if not any(run.has_begun for run in runs):
            remove_new(folder, before, new_folders)
        raise


def _runs(folder: Path, config: Config, seeds: int | None) -> list[Run]:
    """Returns the new runs in a folder."""
    if seeds is None:
        return [Run(folder, config)]
    numbers = range(config.seed, config.seed + seeds)
    return [Run(folder / f"seed_{n}", config.replace(seed=n)) for n in numbers]


def _find_runs_to_resume(options: argparse.Namespace) -> tuple[Path, list[Run]]:
    """Returns the folder given by `--resume`, and its runs."""
    others = {"algorithm", "id", "config", "output", "seeds", *_FLAGS, *_SCHEME_FLAGS}
    may_change = ("total_steps", "num_envs")
    given = [name for name in others - {*may_change} if getattr(options, name) is not None]
    if given or options.set or options.imports or options.dry_run:
        raise TrainingError(
            "train got --resume and a configuration, but a run continues with its own"
            " configuration.  Only --total-steps, --num-envs, and --log can be combined with"
            " --resume."
        )
    folder = Path(options.resume)
    runs = runs_in([folder])
    if any(run.config.replace(seed=0) != runs[0].config.replace(seed=0) for run in runs):
        raise TrainingError(
            f'"{folder}" contains runs with different configurations.  Pass the folder of one.'
        )
    for run in runs:
        if not run.is_saved:
            raise TrainingError(
                f'"{run.folder}" has no checkpoint to resume: {_UNSAVED}.  Delete "{folder}"'
                " and train again, or choose another --output; --save-every saves during training."
            )
    parents = {run.folder.parent for run in runs}
    if len(runs) == 1:
        folder = runs[0].folder
    elif len(parents) == 1 and all(run.folder.name == f"seed_{run.config.seed}" for run in runs):
        folder = parents.pop()
    else:
        raise TrainingError(
            f'"{folder}" contains runs that were not trained together.  Pass the folder of one.'
        )
    changes = {name: getattr(options, name) for name in may_change}
    changes = {name: value for name, value in changes.items() if value is not None}
    return folder, [Run(run.folder, run.config.replace(**changes)) for run in runs]


def _make_folder(wished: Path, *, find_unused: bool) -> tuple[Path, list[Path]]:
    """Creates a folder. Returns it and all folders that were created, innermost first.

    With `find_unused`, it is the first of folder, folder_2, folder_3 ... that does not exist.
    Concurrent calls get different folders.

    Raises:
        OSError: the folder cannot be created.
    """
    new_folders = [each for each in wished.parents if not each.exists()]
    wished.parent.mkdir(parents=True, exist_ok=True)
    for number in itertools.count(1):
        folder = wished if number == 1 else wished.with_name(f"{wished.name}_{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            if find_unused:
                continue
            if not folder.is_dir():
                raise
            return folder, new_folders
        return folder, [folder, *new_folders]
    raise AssertionError  # unreachable


def _print_summary(folder: Path, runs: Sequence[Run], threshold: float | None) -> None:
    """Prints the results and plots the learning curve."""
    config, out = runs[0].config, console()
    metrics = [read_metrics(run.folder) for run in runs]
    last = np.array([x for x in map(last_return, metrics) if not np.isnan(x)])
    spread = ""
    if last.size > 1:
        low, high = statistics.bootstrap_interval(statistics.iqm, last, jax.random.key(0))
        spread = f" (IQM of {last.size} seeds, 95 % interval {low:.1f} to {high:.1f})"
    if last.size:
        returned = f"{statistics.iqm(last):.1f}{spread}"
        out.print(f"Mean return of the last {WINDOW} episodes: {returned}")
    else:
        out.print("No episode finished.")
    best = [best_return(each) for each in metrics]
    if max(best) > -np.inf:
        middle = np.median(best)
        out.print(f"Best evaluation: {middle:.1f}{' (median)' if len(runs) > 1 else ''}")
    if threshold is not None:
        out.print(f"Solved at: {threshold}")
    try:
        if all(each[STEP].size for each in metrics):  # a signal may arrive before the first row
            columns = {"": "episode_return"}
            if any("evaluation_return" in each for each in metrics):
                columns = {"training": "episode_return", "evaluation": "evaluation_return"}
            write_learning_curves(
                folder / "learning_curve.png",
                {x: [(each[STEP], each[y]) for each in metrics] for x, y in columns.items()},
                title=f"{config.algorithm} on {config.id}",
                threshold=threshold,
            )
    except MissingExtraError as error:  # do not fail after training
        out.print(f"No learning curve: {error}", markup=False)
    written = ", ".join(
        f"{path.name}/" if path.is_dir() else path.name for path in sorted(folder.iterdir())
    )
    out.print(f"Wrote {folder}/: {written}", markup=False)


def best_return(metrics: Mapping[str, Any]) -> float:
    """Returns the highest mean return of an evaluation, or -inf without evaluations."""
    means = np.asarray(metrics.get("evaluation_return", ()))
    return float(np.max(means, initial=-np.inf, where=~np.isnan(means)))


def last_return(metrics: Mapping[str, Any]) -> float:
    """Returns the mean return of the last episodes, or NaN if none finished."""
    returns = metrics.get("episode_return", ())
    return float(returns[-1]) if len(returns) else float("nan")


def parse_value(text: str) -> Any:
    """Parses a number, true, false, none, a string, or several of these separated by commas."""
    if text.lower() in ("none", "null", ""):
        return None
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            pass
    if text[0] in "[{\"'":
        try:
            return tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError as error:
            raise TrainingError(f"the value {text} is not valid TOML: {error}.") from error
    if "," in text:
        return [parse_value(item.strip()) for item in text.split(",") if item.strip()]
    return text
