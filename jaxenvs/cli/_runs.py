"""The output folders of `jaxenvs train`, which other commands read.

A run is a folder with a `config.toml`; a training of several seeds is a folder of runs.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxenvs.core import VectorEnv
from jaxenvs.errors import TrainingError
from jaxenvs.registry import find
from jaxenvs.training import ActorPolicy, Train, restore
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from jaxenvs.training.config import Config
from jaxenvs.training.learner import BEST, CHECKPOINT, POLICY
from jaxenvs.training.schemes.workers import find_host_env

_CONFIG = "config.toml"
_POLICIES = {"latest": POLICY, "best": BEST}  # the folders that `--which` reads


@dataclasses.dataclass(frozen=True)
class Run:
    """A training of one seed: its folder and its configuration."""

    folder: Path
    config: Config

    @classmethod
    def read(cls, folder: Path) -> "Run":
        """Reads the run in a folder."""
        return cls(folder, Config.read(folder / _CONFIG))

    @property
    def task(self) -> Config:
        """The configuration without the seed and without what does not affect training."""
        watched = {"save_every": None, "evaluate_every": None, "evaluation_episodes": 1}
        return self.config.replace(seed=0, **watched)

    @property
    def is_saved(self) -> bool:
        """Whether there is a checkpoint, perhaps under one of its temporary names."""
        names = (CHECKPOINT, f"{CHECKPOINT}.next", f".{CHECKPOINT}.new", f".{CHECKPOINT}.previous")
        return any((self.folder / name).is_dir() for name in names)

    def write_config(self) -> None:
        """Writes the complete configuration, before the training starts."""
        self.config.complete().write(self.folder / _CONFIG)

    def read_policy(self, train: Train, which: str = "latest") -> ActorPolicy:
        """Returns the greedy policy of this run.

        Raises:
            TrainingError: there is none, or nothing was evaluated.
        """

        def behavior(key: Any) -> BehaviorPolicy:
            return BehaviorPolicy.of(train.init(key))

        path = self.folder / _POLICIES[which]
        if which == "best" and not path.is_dir():
            raise TrainingError(
                f'"{self.folder}" has no best policy, since nothing was evaluated.'
                "  Train with --evaluate-every, or omit --which."
            )
        like = jax.eval_shape(behavior, jax.random.key(0))
        learned: Any = restore(path, like)
        return train.policy(learned)


def runs_in(paths: Iterable[str | Path]) -> list[Run]:
    """Returns the runs in these folders, or in the folders below them.

    Raises:
        TrainingError: one of them holds no run.
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
                f'"{path}" holds no {_CONFIG}.  Pass an output folder of `jaxenvs train`.'
            )
        runs.update({folder: Run.read(folder) for folder in folders})
    return list(runs.values())


def by_task(runs: Sequence[Run]) -> list[list[Run]]:
    """Returns the runs in groups that differ only by their seeds."""
    groups: list[list[Run]] = []
    for run in runs:
        for group in groups:
            if group[0].task == run.task:
                group.append(run)
                break
        else:
            groups.append([run])
    return groups


def assembled(config: Config) -> Train:
    """Returns the training of a configuration, to read weights; its hosted env can play."""
    if not config.is_hosted:
        return config.assemble()
    return config.assemble(env=config.make_env(training=False))


def close(env: VectorEnv) -> None:
    """Closes an environment if it is hosted."""
    hosts = find_host_env(env)
    if hosts is not None:
        hosts.close()


def reward_threshold(env: VectorEnv, id: str) -> float | None:
    """Returns the mean return at which `id` counts as solved; None if it is not specified."""
    hosts = find_host_env(env)
    spec = find(id) if hosts is None else hosts.pools[0].spec
    return getattr(spec, "reward_threshold", None)


def _natural(path: Path) -> list[Any]:
    """Returns a sort key that puts seed_2 before seed_10."""
    return [(len(part), part) for part in path.parts]
