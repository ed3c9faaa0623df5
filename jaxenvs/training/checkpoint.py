"""Learner states on disk, through orbax."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxenvs.errors import TrainingError, missing_extra

T = TypeVar("T")


def save(path: str | Path, learner_state: Any) -> Path:
    """Writes a learner state, or any other pytree of arrays and keys, as an orbax checkpoint.

    The folder `path` is replaced if it exists, once the new one is whole: whenever the process
    ends, `restore` finds the one or the other. Each leaf lies under its dotted name, such as
    `weights.params.actor.params.Dense_0.kernel`, so that other programs can read the weights.

    Returns:
        The path, absolute.

    Raises:
        MissingExtraError: orbax is not installed.
    """
    path = Path(path).absolute()
    leaves = {name: leaf for name, leaf in _by_name(learner_state).items() if leaf.size}
    draft, previous = _draft(path), _previous(path)
    with _checkpointer() as checkpointer:  # which lets `draft` appear when all is written
        checkpointer.save(draft, leaves, force=True)
    if path.exists():
        shutil.rmtree(previous, ignore_errors=True)  # what an earlier crash left
        path.rename(previous)
    draft.rename(path)
    shutil.rmtree(previous, ignore_errors=True)
    return path


def restore(path: str | Path, like: T) -> T:
    """Reads what `save` wrote.

    Args:
        path: the folder.
        like: a pytree of the same structure, shapes and dtypes; its values are not read, so
            `jax.eval_shape(train.init, key)` will do. Arrays are read onto the devices that those
            in `like` lie on.

    Returns:
        The learner state. A training that goes on from it takes the steps, bit for bit, of one
        that was never interrupted.

    Raises:
        TrainingError: there is no such checkpoint, it is damaged, or its leaves are not those of
            `like`.
        MissingExtraError: orbax is not installed.
    """
    path = Path(path).absolute()
    everything = {name: _abstract(leaf) for name, leaf in _by_name(like).items()}
    wanted = {name: leaf for name, leaf in everything.items() if leaf.size}  # orbax keeps no others
    if not path.is_dir():  # the process may have ended between two names
        found = next((each for each in (_draft(path), _previous(path)) if each.is_dir()), None)
        if found is None:
            raise TrainingError(f'there is no checkpoint at "{path}".  `save` writes one.')
        path = found
    with _checkpointer() as checkpointer:
        saved = _read(path, lambda: dict(checkpointer.metadata(path).item_metadata))
        differences = [
            f"{name}: {_describe(saved, name)} in the checkpoint, {_describe(wanted, name)} wanted"
            for name in sorted({*saved, *wanted})
            if _describe(saved, name) != _describe(wanted, name)
        ]
        if differences:
            raise TrainingError(
                f'the checkpoint at "{path}" belongs to another training:\n  '
                + "\n  ".join(differences)
                + "\n  Configure the training as it was when the checkpoint was written."
            )
        restored = _read(path, lambda: checkpointer.restore(path, wanted))
    leaves = [
        restored[name] if name in restored else jnp.zeros(leaf.shape, leaf.dtype)
        for name, leaf in everything.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _read(path: Path, read: Callable[[], T]) -> T:
    try:
        return read()
    except Exception as error:  # orbax has no type of its own for what it cannot read
        raise TrainingError(
            f'the checkpoint at "{path}" is damaged, or no learner state: {error}'.rstrip(".")
            + ".  Restore another one."
        ) from error


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:  # else orbax puts it where it was, on devices that may not be there
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


def _draft(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def _previous(path: Path) -> Path:
    return path.with_name(f".{path.name}.previous")


def _by_name(tree: Any) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf for path, leaf in leaves}


def _describe(leaves: Any, name: str) -> str:
    if name not in leaves:
        return "absent"
    leaf = leaves[name]
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.eval_shape(jax.random.key_data, leaf)  # what a key looks like on disk
    return f"{leaf.dtype}{list(leaf.shape)}"


def _checkpointer() -> Any:
    try:
        import orbax.checkpoint
    except ImportError as error:
        raise missing_extra("Checkpoints", "orbax-checkpoint", "train") from error
    return orbax.checkpoint.StandardCheckpointer()
