"""Checkpoints of learner states, with orbax."""

import json
import shutil
import warnings
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AbstractMesh

from jaxenvs.errors import TrainingError, missing_extra
from jaxenvs.training.types import LearnerState

T = TypeVar("T")

_CHECKSUMS = "checksums.json"  # checksums of a checkpoint's other files, written last


def save(path: str | Path, learner_state: Any) -> Path:
    """Writes a learner state, or any other pytree of arrays and keys, as an orbax checkpoint.

    An existing folder `path` is replaced once the new one is complete, so `restore` finds one of
    them even after a crash. Each leaf is stored under its dotted name, such as
    `weights.params.actor.params.Dense_0.kernel`, so other programs can read the weights.

    Returns:
        The absolute path.

    Raises:
        MissingExtraError: orbax is not installed.
    """
    path = Path(path).absolute()
    leaves = {name: leaf for name, leaf in _by_name(learner_state).items() if leaf.size}
    draft = _draft_path(path)
    with _checkpointer() as checkpointer:  # creates `draft` once everything is written
        checkpointer.save(draft, leaves, force=True)
    (draft / _CHECKSUMS).write_text(json.dumps(_checksums(draft)))
    _replace(path, draft)
    return path


def restore(path: str | Path, like: T) -> T:
    """Reads a checkpoint that `save` wrote.

    Args:
        path: the folder.
        like: a pytree of the same structure, shapes and dtypes, such as
            `jax.eval_shape(train.init, key)`. Restored arrays are placed like the arrays in `like`,
            on the same devices and committed to them or not, so they continue its compiled
            programs. Where `like` has no devices, they are uncommitted. If `like` is a dict, such
            as `{"weights": state.weights}`, only its entries are read. If it is a `LearnerState` of
            arrays, such as `jax.jit(train.init)(key)`, the run may have other instances, devices,
            or workers: episodes and the replay memory are then those of `like`, with a warning, and
            updates are recounted, so that environment steps continue.

    Returns:
        The learner state. A training run that continues from it takes the same steps, bit for bit,
        as one that was never interrupted, unless there was a warning.

    Raises:
        TrainingError: there is no such checkpoint, it is damaged, or its leaves differ from those
            of `like`.
        MissingExtraError: orbax is not installed.
    """
    folder = Path(path).absolute()
    everything = {name: _abstract(leaf) for name, leaf in _by_name(like).items()}
    wanted = {
        name: leaf for name, leaf in everything.items() if leaf.size
    }  # orbax does not store empty arrays
    if not folder.is_dir():  # the process may have ended between two renames
        others = _draft_path(folder), _previous_path(folder)
        found = next((each for each in others if (each / _CHECKSUMS).is_file()), None)
        if found is None:
            raise TrainingError(f'there is no checkpoint at "{folder}".  Write one with `save`.')
        folder = found
    _check_files(folder)  # orbax misses some damage, and its errors are verbose
    with _checkpointer() as checkpointer:
        saved = _read(folder, lambda: dict(checkpointer.metadata(folder).item_metadata))
        new = _parts_to_skip(like, saved, wanted)
        differences = [
            f"{name}: {_describe(saved, name)} in the checkpoint, expected"
            f" {_describe(wanted, name)}"
            for name in _differing(saved, wanted)
            if _part(name) not in new
        ]
        if differences:
            others = {_part(line) for line in differences} <= {*_RUNNING}
            also = ", or restore into an array state, such as jax.jit(train.init)(key)"
            raise TrainingError(
                f'the checkpoint at "{folder}" belongs to another training run:\n  '
                + "\n  ".join(differences)
                + "\n  Use the configuration with which the checkpoint was written"
                + f"{also if others and isinstance(like, LearnerState) else ''}."
            )
        # orbax reads all or nothing.
        asked = {name: leaf for name, leaf in wanted.items() if _part(name) not in new}
        for name, leaf in saved.items():
            if _part(name) in new:
                asked[name] = _abstract(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype))
        restored = _read(folder, lambda: checkpointer.restore(folder, asked))
    leaves = [
        leaf
        if _part(name) in new
        else place_like(
            restored[name] if name in restored else jnp.zeros(leaf.shape, leaf.dtype), leaf
        )
        for name, leaf in zip(everything, jax.tree.leaves(like), strict=True)
    ]
    found: Any = jax.tree.unflatten(jax.tree.structure(like), leaves)
    if not isinstance(like, LearnerState):
        return found
    lost = [_RUNNING[part] for part in sorted(new) if jax.tree.leaves(getattr(like, part))]
    if lost:
        warnings.warn(
            f'the checkpoint at "{folder}" has other instances, devices, workers, or memory:'
            f" {' and '.join(lost)}.",
            stacklevel=2,
        )
    return _recount(found, like)


_RUNNING = {"collector": "episodes start again", "storage": "the replay memory starts empty"}


def _parts_to_skip(like: Any, saved: Any, wanted: Any) -> set[str]:
    """Returns the top-level entries that are not read from the checkpoint."""
    if isinstance(like, dict):
        return {_part(name) for name in saved} - {*like}
    if not isinstance(like, LearnerState):
        return set()
    running = jax.tree.leaves((like.collector, like.storage))
    differing = [name for name in _differing(saved, wanted) if _part(name) in _RUNNING]
    is_same_kind = all(
        saved[name].dtype == _stored(wanted[name]).dtype
        if name in saved and name in wanted
        else not any(_part(other) == _part(name) for other in (saved if name in wanted else wanted))
        for name in differing
    )
    can_start = all(isinstance(leaf, jax.Array) for leaf in running)
    return {*_RUNNING} if differing and is_same_kind and can_start else set()


def _recount(state: LearnerState, like: LearnerState) -> Any:
    """Counts the environment steps so far in updates of the length of those of `like`."""
    if not isinstance(like.steps_per_update, jax.Array):
        return state
    old, new = int(state.steps_per_update), int(like.steps_per_update)
    updates = jnp.int32(int(state.updates) * old // new)
    return state.replace(
        updates=place_like(updates, like.updates), steps_per_update=like.steps_per_update
    )


def save_together(paths: Sequence[Path], states: Sequence[Any]) -> None:
    """Writes checkpoints of several seeds after the same number of updates.

    All checkpoints are written under temporary names before the first one is renamed. After a
    crash, `restore_together` therefore finds a complete set.
    """
    if len(paths) == 1:
        save(paths[0], states[0])
        return
    for path, state in zip(paths, states, strict=True):
        save(_pending_path(path), state)
    for path in paths:
        _replace(path, _pending_path(path))


def restore_together(paths: Sequence[Path], likes: Sequence[T]) -> list[T]:
    """Reads the checkpoints that `save_together` wrote, even after a crash.

    Args:
        paths: the folders.
        likes: a `LearnerState` for each checkpoint, see `restore`.

    Raises:
        TrainingError: see `restore`; or the checkpoints have different numbers of updates.
    """
    candidates = []
    for path, like in zip(paths, likes, strict=True):
        places = [each for each in (path, _pending_path(path)) if each.is_dir()] or [path]
        states: list[Any] = [restore(each, like) for each in places]
        candidates.append({int(np.asarray(state.updates)): state for state in states})
    common = set.intersection(*map(set, candidates))
    if not common:
        found = ", ".join(
            f"{path} after {max(each):,} updates"
            for path, each in zip(paths, candidates, strict=True)
        )
        raise TrainingError(
            f"these checkpoints have different numbers of updates: {found}.  Resume each of them"
            " separately."
        )
    return [each[max(common)] for each in candidates]


def _replace(path: Path, draft: Path) -> None:
    """Replaces the checkpoint at `path` by `draft`."""
    previous = _previous_path(path)
    if path.exists():
        shutil.rmtree(previous, ignore_errors=True)  # left by an earlier crash
        path.rename(previous)
    draft.rename(path)
    shutil.rmtree(previous, ignore_errors=True)


def _checksums(folder: Path) -> dict[str, int]:
    """Returns the CRC-32 of each file of a checkpoint, by its relative path."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.name != _CHECKSUMS)
    return {file.relative_to(folder).as_posix(): _checksum(file) for file in files}


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while chunk := file.read(2**20):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def _check_files(folder: Path) -> None:
    """Raises TrainingError if a file of the checkpoint is missing or was changed."""
    found = _read(folder, lambda: _checksums(folder))
    written = _read(folder, lambda: dict(json.loads((folder / _CHECKSUMS).read_text())))
    changed = sorted(name for name in written if found.get(name) != written[name])
    if changed:
        raise TrainingError(
            f'the checkpoint at "{folder}" is damaged: {changed[0]} is missing or was changed.'
            "  Restore another one."
        )


def _read(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except Exception as error:  # orbax raises many types
        reason = str(error).strip().split("\n", 1)[0].rstrip(".")
        raise TrainingError(
            f'the checkpoint at "{path}" is damaged or not a learner state: {reason:.200}.'
            "  Restore another one."
        ) from error


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = _sharding_of(leaf)
    if sharding is None:  # by default, orbax uses the original devices, which may not exist
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _sharding_of(leaf: Any) -> Any:
    """Returns the sharding of a leaf, or None if it has no devices, as with an abstract mesh."""
    sharding = getattr(leaf, "sharding", None)
    return None if isinstance(getattr(sharding, "mesh", None), AbstractMesh) else sharding


def place_like(leaf: jax.Array, like: Any) -> jax.Array:
    """Returns `leaf` on the devices of `like`, and committed to them only if `like` is.

    Programs compile again for an argument that is committed where it was not before.
    """
    if getattr(like, "committed", _sharding_of(like) is not None):
        is_there = leaf.committed and leaf.sharding == like.sharding
        return leaf if is_there else jax.device_put(leaf, like.sharding)
    if not leaf.committed:
        return leaf
    if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jnp.array(np.asarray(leaf))
    words = jnp.array(np.asarray(jax.random.key_data(leaf)))
    return jax.random.wrap_key_data(words, impl=jax.random.key_impl(leaf))


def _draft_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _pending_path(path: Path) -> Path:
    """Returns the temporary name of a checkpoint until those of all seeds are written."""
    return path.with_name(f"{path.name}.next")


def _previous_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


def _by_name(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _part(name: str) -> str:
    """Returns the top-level entry of a dotted name."""
    return name.partition(".")[0]


def _differing(saved: Any, wanted: Any) -> list[str]:
    """Returns the names of leaves whose shapes or dtypes differ."""
    return [
        name
        for name in sorted({*saved, *wanted})
        if _describe(saved, name) != _describe(wanted, name)
    ]


def _describe(leaves: Any, name: str) -> str:
    if name not in leaves:
        return "absent"
    leaf = _stored(leaves[name])
    return f"{leaf.dtype}{list(leaf.shape)}"


def _stored(leaf: Any) -> Any:
    """Returns the stored form of a leaf, which is numbers for keys."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.eval_shape(jax.random.key_data, leaf) if is_key else leaf


def _checkpointer() -> Any:
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise missing_extra("Checkpoints", "orbax-checkpoint", "train") from error
    return orbax.checkpoint.StandardCheckpointer()
