"""Learner states on disk, through orbax."""

from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

from jaxenvs.errors import TrainingError, missing_extra

T = TypeVar("T")


def save(path: str | Path, learner_state: Any) -> Path:
    """Writes a learner state, or any other pytree of arrays and keys, as an orbax checkpoint.

    The folder `path` is replaced if it exists. Each leaf lies under its dotted name, such as
    `params.actor.params.Dense_0.kernel`, so that other programs can read the weights.

    Returns:
        The path, absolute.

    Raises:
        MissingExtraError: orbax is not installed.
    """
    path = Path(path).absolute()
    leaves = {name: leaf for name, leaf in _by_name(learner_state).items() if leaf.size}
    with _checkpointer() as checkpointer:
        checkpointer.save(path, leaves, force=True)
    return path


def restore(path: str | Path, like: T) -> T:
    """Reads what `save` wrote.

    Args:
        path: the folder.
        like: a pytree of the same structure, shapes and dtypes; its values are not read, so
            `jax.eval_shape(train.init, key)` will do.

    Returns:
        The learner state. A training that goes on from it takes the steps, bit for bit, of one
        that was never interrupted.

    Raises:
        TrainingError: there is no such checkpoint, or its leaves are not those of `like`.
        MissingExtraError: orbax is not installed.
    """
    path, everything = Path(path).absolute(), jax.eval_shape(lambda tree: tree, _by_name(like))
    wanted = {name: leaf for name, leaf in everything.items() if leaf.size}  # orbax keeps no others
    if not path.is_dir():
        raise TrainingError(f'there is no checkpoint at "{path}".  `save` writes one.')
    with _checkpointer() as checkpointer:
        saved = checkpointer.metadata(path).item_metadata
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
        restored = checkpointer.restore(path, wanted)
    leaves = [
        restored[name] if name in restored else jnp.zeros(leaf.shape, leaf.dtype)
        for name, leaf in everything.items()
    ]
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


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
