"""`jaxenvs train`."""

import argparse
import contextlib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxenvs.bridge.xla import HostEnv
from jaxenvs.cli._console import console
from jaxenvs.cli._loop import Loop, Stop, stoppable
from jaxenvs.cli._progress import TrainingProgress
from jaxenvs.cli._runs import Run, reward_threshold, runs_in
from jaxenvs.cli.info import field_comments
from jaxenvs.errors import MissingExtraError, TrainingError
from jaxenvs.factory import is_hosted, make
from jaxenvs.rendering.plots import write_learning_curves
from jaxenvs.training import LearnerState, Train
from jaxenvs.training.config import ALGORITHMS, Config, config_for
from jaxenvs.training.logs import STEP, open_logs, read_metrics

_FLAGS = ("num_envs", "unroll_length", "total_steps", "report_every", "seed")


def run(options: argparse.Namespace) -> int:
    """Trains, says how it went, and writes the output folder; the exit status."""
    if options.resume is not None:
        folder, runs = _resumed(options)
    else:
        config = configuration(options)
        if not is_hosted(config.id):
            make(config.id)  # an unknown id is refused before anything is said
            config.make_train()  # so are parts that do not fit
        if options.dry_run:
            print(commented(config), end="")
            return 0
        folder, runs = _new(config, options.seeds, options.output)
    train = runs[0].config.make_train()
    try:
        return learn(train, folder, runs, options.log, resumes=options.resume is not None)
    finally:
        if isinstance(train.env, HostEnv):
            train.env.close()


def learn(
    train: Train, folder: Path, runs: Sequence[Run], kinds: Sequence[str], *, resumes: bool
) -> int:
    """Trains the runs, which differ by their seeds alone, in one program; the exit status."""
    config, per_update, out = runs[0].config, train.parts.steps_per_update, console()
    loop = Loop(train, None if len(runs) == 1 else len(runs))
    with stoppable() as stop:
        if not resumes:
            learner_state = loop.init(config.seed)
        else:
            learner_state = loop.together([run.read_state(train) for run in runs])
            if isinstance(train.env, HostEnv):  # whose environments are in no checkpoint
                fresh = loop.init(config.seed)
                learner_state = learner_state.replace(collector=fresh.collector)
        done = loop.updates(learner_state)
        seeds = "" if len(runs) == 1 else f" for each of {len(runs)} seeds"
        behind = f", {done * per_update:,} of them behind it" if resumes else ""
        out.print(
            f"{config.algorithm} on {config.id}: {config.num_envs} instances,"
            f" {config.total_steps:,} steps{seeds}{behind}, on {jax.devices()[0].device_kind}",
            markup=False,
        )
        learner_state, seconds = _logged(loop, learner_state, runs, kinds, stop, resumes)
        for each, state in zip(runs, loop.each(learner_state), strict=True):
            each.write_state(state)
    steps = (loop.updates(learner_state) - done) * per_update * len(runs)
    speed = f" ({steps / seconds['run']:,.0f} steps/s)" if steps else ""
    out.print(f"Trained in {seconds['run']:.1f} s{speed}, compiled in {seconds['compile']:.1f} s.")
    _conclude(folder, runs, reward_threshold(train.env, config.id))
    if stop.asked is not None:
        out.print(
            f"Stopped by {stop.asked.name}; go on with: jaxenvs train --resume {folder}",
            markup=False,
        )
    return stop.status


def configuration(options: argparse.Namespace) -> Config:
    """What the arguments ask for: flags before the file before what is tuned for the id.

    Raises:
        TrainingError: they contradict each other, or name what there is not.
    """
    if options.config is not None:
        config = Config.read(options.config)
        if options.algorithm is not None and options.algorithm.lower() != config.algorithm.lower():
            raise TrainingError(
                f'"{options.config}" configures {config.algorithm}, not {options.algorithm}.  Leave'
                " ALGORITHM and ID out, or write another file."
            )
        config = config.replace(id=options.id or config.id)
    elif options.algorithm is None or options.id is None:
        raise TrainingError(
            "train got no id.  Say what to learn with and what to learn: jaxenvs train ppo"
            " CartPole-v1; or pass --config."
        )
    else:
        config = config_for(options.algorithm, options.id)
    given = {name: getattr(options, name) for name in _FLAGS if getattr(options, name) is not None}
    return with_settings(config.replace(**given), options.set)


def with_settings(config: Config, settings: Sequence[str]) -> Config:
    """Applies "name=value" texts.

    Raises:
        TrainingError: a text is malformed, or names no setting.
    """
    changes = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise TrainingError(f'--set got "{setting}"; write it as name=value.')
        changes[name.strip()] = _parsed(text.strip())
    return config.with_settings(_as_lists(config, changes))


def commented(config: Config) -> str:
    """The complete configuration as TOML, and what each line means behind it."""
    complete = config.complete()
    parts = {
        "": Config,
        "[settings]": ALGORITHMS[config.algorithm],
        "[actor]": type(complete.make_actor()),
        "[storage]": type(complete.make_storage()),
    }
    comments, lines = {}, []
    for line in ["", *complete.to_toml().splitlines()]:
        if line in parts and (line or not lines):
            comments = {}
            for cls in reversed(parts[line].__mro__):
                comments |= field_comments(cls)
        comment = comments.get(line.partition(" = ")[0])
        lines.append(f"{line:<36}  # {comment}" if comment else line)
    return "\n".join(lines[1:]) + "\n"


def _new(config: Config, seeds: int | None, output: str | None) -> tuple[Path, list[Run]]:
    """The output folder, and a run for each seed."""
    if seeds is not None and seeds < 1:
        raise TrainingError(f"train got --seeds {seeds}; it takes a number from 1 on.")
    if seeds is not None and is_hosted(config.id):
        raise TrainingError(
            f"train got --seeds for {config.id}, whose environments are not JAX: one program steps"
            " as many of them as there are.  Train one seed after the other, with --seed."
        )
    folder = _unused(Path("runs") / config.algorithm.lower() / config.id)
    if output is not None:
        folder = Path(output)
        if next(folder.rglob("config.toml"), None) is not None:
            raise TrainingError(
                f'"{folder}" holds a run already.  Pass another --output, or go on with --resume'
                f" {folder}."
            )
    if seeds is None:
        return folder, [Run(folder, config)]
    numbers = range(config.seed, config.seed + seeds)
    return folder, [Run(folder / f"seed_{n}", config.replace(seed=n)) for n in numbers]


def _resumed(options: argparse.Namespace) -> tuple[Path, list[Run]]:
    """The folder that `--resume` names, and its runs."""
    others = ("algorithm", "id", "config", "output", "seeds", *_FLAGS)
    given = [name for name in others if getattr(options, name) is not None]
    if given or options.set or options.dry_run:
        raise TrainingError(
            "train got --resume and a configuration.  A run goes on as it was configured: pass"
            " --resume DIR alone, perhaps with --log."
        )
    folder = Path(options.resume)
    runs = runs_in([folder])
    if any(run.task != runs[0].task for run in runs):
        raise TrainingError(
            f'"{folder}" holds runs of several configurations.  Pass the folder of one of them.'
        )
    return folder, runs


def _unused(folder: Path) -> Path:
    """`folder`, or the first of folder_2, folder_3 ... that is not there."""
    number, path = 1, folder
    while path.exists():
        number += 1
        path = folder.with_name(f"{folder.name}_{number}")
    return path


def _logged(
    loop: Loop,
    learner_state: LearnerState,
    runs: Sequence[Run],
    kinds: Sequence[str],
    stop: Stop,
    resumes: bool,
) -> tuple[LearnerState, dict[str, float]]:
    """Runs the loop with a progress bar, and logs each row in the folder of each seed."""
    train, done = loop.train, loop.updates(learner_state)
    per_update = train.parts.steps_per_update
    progress = TrainingProgress(train.num_updates, per_update, done=done, num_seeds=len(runs))
    with contextlib.ExitStack() as stack:
        resume_step = done * per_update if resumes else None
        logs = [
            stack.enter_context(open_logs(each.folder, kinds, resume_step=resume_step))
            for each in runs
        ]
        for each in runs:  # now that nothing is missing
            each.write_config()

        def report(updates: int, metrics: Mapping[str, np.ndarray]) -> None:
            for i, log in enumerate(logs):
                row = {name: x[i] for name, x in metrics.items() if name != "steps"}
                log.write(updates * per_update, row)
            progress(updates, metrics)

        stack.enter_context(progress)
        return loop.run(learner_state, report, stop)


def _conclude(folder: Path, runs: Sequence[Run], threshold: float | None) -> None:
    """Says what came out of it, and draws it."""
    config, out = runs[0].config, console()
    metrics = [read_metrics(run.folder) for run in runs]
    last = [last_return(each) for each in metrics]
    spread = ""
    if len(runs) > 1:
        low, high = np.nanquantile(last, (0.25, 0.75))
        spread = f", the median of {len(runs)} seeds (quartiles {low:.1f} and {high:.1f})"
    if np.isnan(last).all():
        out.print("No episode ended.")
    else:
        out.print(f"Mean return of the last episodes: {np.nanmedian(last):.1f}{spread}")
    if threshold is not None:
        out.print(f"Solved from: {threshold}")
    try:
        write_learning_curves(
            folder / "learning_curve.png",
            {"": [(each[STEP], each["episode_return"]) for each in metrics]},
            title=f"{config.algorithm} on {config.id}",
            threshold=threshold,
        )
    except MissingExtraError as error:  # no reason to fail after a training
        out.print(f"No learning curve: {error}", markup=False)
    written = ", ".join(
        f"{path.name}/" if path.is_dir() else path.name for path in sorted(folder.iterdir())
    )
    out.print(f"Wrote {folder}/: {written}", markup=False)


def last_return(metrics: Mapping[str, Any]) -> float:
    """The mean over the episodes that ended in the last tenth of the rows, or last of all.

    NaN if none ever did.
    """
    if not len(metrics.get("episode_count", ())):
        return float("nan")
    returns, counts = (np.asarray(metrics[f"episode_{x}"]) for x in ("return", "count"))
    ended = np.flatnonzero(counts > 0)
    if not ended.size:
        return float("nan")
    tail = ended[ended >= min(ended[-1], len(counts) - max(1, len(counts) // 10))]
    return float(np.average(returns[tail], weights=counts[tail]))


def _parsed(text: str) -> Any:
    """A value as one types it: a number, true, a text, none, or several with commas."""
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
            raise TrainingError(f"--set got {text}, which is no TOML: {error}.") from error
    if "," in text:
        return [_parsed(item.strip()) for item in text.split(",") if item.strip()]
    return text


def _as_lists(config: Config, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Takes a single value for a list of one where a list is wanted: hidden_sizes=64."""
    complete = config.complete()
    known_by_name = dict(complete.settings)
    known_by_name |= {f"actor.{name}": x for name, x in complete.actor.items()}
    known_by_name |= {f"storage.{name}": x for name, x in complete.storage.items()}
    wrapped = {}
    for name, value in changes.items():
        known = known_by_name.get(name)
        is_single = value is not None and not isinstance(value, list | tuple)
        wrapped[name] = [value] if isinstance(known, tuple) and is_single else value
    return wrapped
