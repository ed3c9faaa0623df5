"""Pretrained policies: files that contain one, and where they are found.

A file is an .npz archive of float32 arrays under dotted names, such as
`params.actor.params.head.kernel`, and of `header`, a string of JSON with the format, the version of
jaxenvs, the configuration of the training, and the score.
"""

import dataclasses
import hashlib
import http.client
import json
import os
import tempfile
import urllib.request
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

import jaxenvs
from jaxenvs.errors import TrainingError, closest
from jaxenvs.training.actors import Networks
from jaxenvs.training.algorithms.algorithm import BehaviorPolicy
from jaxenvs.training.assembly import weight_shapes
from jaxenvs.training.config import Config
from jaxenvs.training.train_program import ActorPolicy, Train
from jaxenvs.wrappers.statistics import RunningStatistics

FORMAT = 1
INDEX = Path(__file__).with_suffix(".json")
FOLDER = Path(__file__).parents[1] / "policies"  # in a clone of the repository
RELEASES = "https://github.com/jaxenvs/jaxenvs/releases/download"
_STATISTICS = "observation_statistics"


@dataclasses.dataclass(frozen=True)
class PolicyFile:
    """A policy in a file, with the configuration that trained it."""

    path: Path
    config: Config
    score: Mapping[str, Any]  # how it was measured, over which seeds and episodes
    arrays: Mapping[str, np.ndarray]

    @classmethod
    def of(cls, path: Path, policy: ActorPolicy, config: Config, score: Mapping[str, Any]) -> Self:
        """Returns the file of a trained policy, not yet written."""
        acting = _of_acting(policy.params, policy.networks)
        tree = {"params": acting, _STATISTICS: policy.observation_statistics}
        leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
        arrays = {_name(path): np.asarray(leaf) for path, leaf in leaves}
        return cls(path, config.complete(), score, arrays)

    def write(self) -> None:
        """Writes the file."""
        entries = {name: x for name, x in vars(self.config).items() if x not in (None, (), {})}
        header = {
            "id": self.config.id,
            "algorithm": self.config.algorithm,
            "format": FORMAT,
            "jaxenvs": jaxenvs.__version__,
            "score": self.score,
            "config": entries,
        }
        parts: dict[str, Any] = {"header": np.array(json.dumps(header, indent=1)), **self.arrays}
        np.savez_compressed(self.path, **parts)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Reads a file.

        Raises:
            TrainingError: there is no file, or it is not a policy that this version can read.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = dict(file)
            header = json.loads(str(arrays.pop("header")))
            found = header["format"]
        except OSError as error:
            raise TrainingError(f'there is no policy at "{path}": {error.strerror}.') from error
        except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise TrainingError(
                f'"{path}" is not the file of a pretrained policy.  Pass an .npz file that jaxenvs'
                " has written, or an id that has one."
            ) from error
        if found != FORMAT:
            raise TrainingError(
                f'the policy in "{path}" has format {found}, written by jaxenvs'
                f" {header.get('jaxenvs')}; expected format {FORMAT}.  Use that version of jaxenvs."
            )
        return cls(Path(path), Config(**header["config"]), header["score"], arrays)

    def policy(self, train: Train | None = None) -> ActorPolicy:
        """Returns the greedy policy.

        Args:
            train: a training program of the configuration; None makes one.
        """
        if train is None:
            train = self.config.make_train(env=self.config.make_env(training=False))
        like: dict[str, Any] = {
            "params": _of_acting(weight_shapes(train.algorithm, train.networks), train.networks)
        }
        if getattr(train.algorithm, "normalize_observations", False):
            like[_STATISTICS] = RunningStatistics.of_shape(())
        read = jax.tree_util.tree_map_with_path(
            lambda path, _: jnp.asarray(self.arrays[_name(path)]), like
        )
        learned: Any = BehaviorPolicy(
            **{_STATISTICS: None, **read}, updates=jnp.int32(train.num_updates)
        )
        return train.policy(learned)


def load_policy(id_or_path: str | Path) -> ActorPolicy:
    """Returns a pretrained greedy policy, for `rollout` and `evaluate`.

    The policy of an id is in the folder `policies` of a clone of the repository, or in the folder
    `jaxenvs/policies` of the user's cache. Otherwise it is downloaded from the release of this
    version into that cache. Its checksum must be the one that jaxenvs has in its index.

    Args:
        id_or_path: an id, such as "CartPole-v1", or the path of a policy's .npz file.

    Returns:
        The policy. It takes observations of `make_vec(id, N)`, with an action for each instance.

    Raises:
        TrainingError: there is no policy for this id, it cannot be downloaded, or the file is not
            a policy or another one.

    Example:
        >>> policy = load_policy("CartPole-v1")
        >>> env = jaxenvs.make_vec("CartPole-v1", 8)
        >>> float(jaxenvs.evaluate(env, policy, 1, jax.random.key(0)).mean)
        500.0
    """
    return find_policy(id_or_path).policy()


def find_policy(id_or_path: str | Path) -> PolicyFile:
    """Returns the file of a pretrained policy, see `load_policy`."""
    path, entries = Path(id_or_path), index()
    entry = entries.get(str(id_or_path))
    if entry is None:
        if path.suffix == ".npz" or path.is_file():
            return PolicyFile.read(path)
        raise TrainingError(
            f'there is no pretrained policy for "{id_or_path}".{closest(str(id_or_path), entries)}'
            "  Pass an .npz file, the folder of a run (`jaxenvs train` makes one, which has a"
            f" config.toml), or one of the ids {', '.join(entries)}."
        )
    in_clone, cached = FOLDER / entry["file"], cache_folder() / entry["file"]
    if in_clone.is_file():
        if checksum(in_clone.read_bytes()) != entry["sha256"]:
            raise TrainingError(
                f'"{in_clone}" has another checksum than the index of jaxenvs.  Check it out'
                " again, or pass its path to use it as it is."
            )
        return PolicyFile.read(in_clone)
    if not (cached.is_file() and checksum(cached.read_bytes()) == entry["sha256"]):
        _fetch(entry, cached)
    return PolicyFile.read(cached)


def index() -> dict[str, dict[str, Any]]:
    """Returns file, checksum, size, and score of each pretrained policy, by id."""
    return json.loads(INDEX.read_text(encoding="utf-8"))


def checksum(content: bytes) -> str:
    """Returns the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def cache_folder() -> Path:
    """Returns the folder of downloaded policies."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "jaxenvs" / "policies"


def _of_acting(params: Mapping[str, Any], networks: Networks) -> dict[str, Any]:
    """Returns the weights without those of a critic that acting does not compute."""
    is_needed = networks.is_recurrent
    return {name: x for name, x in params.items() if name != "critic" or is_needed}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")


def _fetch(entry: Mapping[str, Any], path: Path) -> None:
    """Downloads a policy to `path`."""
    url = f"{RELEASES}/v{jaxenvs.__version__}/{entry['file']}"
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            content = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise TrainingError(
            f"the policy at {url} cannot be downloaded: {error}.  Download it by other means to"
            f' "{path}", or pass the path of the file.'
        ) from error
    if (found := checksum(content)) != entry["sha256"]:
        raise TrainingError(
            f"{url} has the SHA-256 {found}; expected {entry['sha256']}.  Try again, or install the"
            " version of jaxenvs to which the file belongs."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as draft:
        draft.write(content)
    os.replace(draft.name, path)
