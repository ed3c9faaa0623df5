"""The output folders of `jaxenvs train`, which other commands read.

A run is a folder with a `config.toml`. Training several seeds makes a folder of runs.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxenvs.core import VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.pretrained import PolicyFile, find_policy
from jaxenvs.registry import find
from jaxenvs.training import ActorPolicy, Train, restore
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from jaxenvs.training.assembly import assemble
from jaxenvs.training.config import Config
from jaxenvs.training.logs import CSV_FILE, STEP, read_metrics
from jaxenvs.training.run_files import BEST, CHECKPOINT, POLICY, written_in
from jaxenvs.training.schemes.spec import find_host_env

_CONFIG = "config.toml"
_POLICIES = {"latest": POLICY, "best": BEST}  # the folders for the values of `--which`


@dataclasses.dataclass(frozen=True)
class Run:
    """A training run of one seed: its folder and its configuration."""

    folder: Path
    config: Config

    @classmethod
    def read(cls, folder: Path) -> "Run":
        """Reads the run in a folder."""
        return cls(folder, Config.read(folder / _CONFIG))

    @property
    def task(self) -> Config:
        """The configuration without the seed and options that do not affect training."""
        watched = {"save_every": None, "evaluate_every": None, "evaluation_episodes": 1}
        return self.config.replace(seed=0, **watched)

    @property
    def is_saved(self) -> bool:
        """Whether there is a checkpoint, possibly under a temporary name."""
        names = (CHECKPOINT, f"{CHECKPOINT}.next", f".{CHECKPOINT}.new", f".{CHECKPOINT}.previous")
        return any((self.folder / name).is_dir() for name in names)

    @property
    def written(self) -> list[str]:
        """The names of what training has written."""
        return written_in(self.folder)

    @property
    def has_begun(self) -> bool:
        """Whether there is a checkpoint or a row of metrics."""
        is_logged = CSV_FILE in self.written and read_metrics(self.folder)[STEP].size > 0
        return is_logged or self.is_saved

    def write_config(self) -> None:
        """Writes the complete configuration."""
        self.config.complete().write(self.folder / _CONFIG)

    def read_policy(self, train: Train, which: str = "latest") -> ActorPolicy:
        """Returns the greedy policy of this run.

        Raises:
            TrainingError: there is no policy, or `which` is "best" and there was no evaluation.
        """

        def behavior(key: Any) -> BehaviorPolicy:
            return BehaviorPolicy.of(train.init(key))

        path = self.folder / _POLICIES[which]
        if which == "best" and not path.is_dir():
            raise TrainingError(
                f'"{self.folder}" has no best policy, because there was no evaluation.'
                "  Train with --evaluate-every, or omit --which."
            )
        like = jax.eval_shape(behavior, jax.random.key(0))
        learned: Any = restore(path, like)
        return train.policy(learned)


@dataclasses.dataclass(frozen=True)
class PretrainedRun(Run):
    """A pretrained policy; `folder` is the path of its file."""

    file: PolicyFile

    def read_policy(self, train: Train, which: str = "latest") -> ActorPolicy:
        """Returns the policy; there is only one.

        Raises:
            TrainingError: `which` is not "latest".
        """
        if which != "latest":
            raise TrainingError(
                f'got --which {which} for the pretrained policy "{self.folder}", which is the only'
                " one.  Omit --which, or name the folder of a run."
            )
        return self.file.policy(train)


def runs_or_policies(names: Sequence[str]) -> list[Run]:
    """Returns the runs in these folders, and the pretrained policies of ids and .npz files.

    Raises:
        TrainingError: a folder contains no run, or there is no policy of that name.
    """
    folders = [name for name in names if Path(name).is_dir()]
    files = [find_policy(name) for name in names if name not in folders]
    found = [PretrainedRun(file.path, file.config, file) for file in files]
    return [*runs_in(folders), *found]


def runs_in(paths: Iterable[str | Path]) -> list[Run]:
    """Returns the runs in these folders or their subfolders.

    Raises:
        TrainingError: one of the folders contains no run.
    """
    runs: dict[Path, Run] = {}
    for path in map(Path, paths):
        folders = (
            [path]
            if (path / _CONFIG).is_file()
            else sorted((file.parent for file in path.rglob(_CONFIG)), key=_natural)
        )
        if not folders:
            raise TrainingError(
                f'"{path}" contains no {_CONFIG}.  Pass an output folder of `jaxenvs train`.'
            )
        runs.update({folder: Run.read(folder) for folder in folders})
    return list(runs.values())


def group_by_task(runs: Sequence[Run]) -> list[list[Run]]:
    """Groups runs that differ only in their seeds."""
    groups: list[list[Run]] = []
    for run in runs:
        alike = [group for group in groups if group[0].task == run.task]
        alike[0].append(run) if alike else groups.append([run])
    return groups


def make_train_for_playing(config: Config) -> Train:
    """Returns a training program with the policy's networks, and instances as for evaluation.

    Sizes are not checked: under a scheme, an update uses the data of all collectors.
    """
    return assemble(
        config.make_env(training=False),
        config.make_algorithm(),
        actor=config.make_actor(),
        storage=config.make_storage(),
        unroll_length=config.unroll_length,
        total_steps=config.total_steps,
    )


def reward_threshold(env: VectorEnv, id: str) -> float | None:
    """Returns the mean return at which `id` counts as solved, or None if it is not specified."""
    hosts = find_host_env(env)
    spec = find(id) if hosts is None else hosts.pools[0].spec
    return getattr(spec, "reward_threshold", None)


def _natural(path: Path) -> list[Any]:
    """Returns a sort key that puts seed_2 before seed_10."""
    return [(len(part), part) for part in path.parts]
