"""NumPy arrays as PyTorch tensors."""

import sys
from collections.abc import Callable
from typing import Any

import jax

from jaxenvs.errors import missing_extra


def torch_converter() -> Callable[[Any], Any]:
    """A function that turns a tree of arrays into one of tensors over the same memory.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise missing_extra('make_gym(output="torch")', "torch", "torch") from error
    from_dlpack = torch.from_dlpack
    return lambda tree: jax.tree.map(from_dlpack, tree)


_told: set[type] = set()


def tell_torch(kind: type[dict]) -> None:
    """Lets PyTorch's trees see into `kind`, a class of dicts, once PyTorch has been imported."""
    if kind in _told or "torch" not in sys.modules:
        return
    from torch.utils import _pytree

    _pytree.register_pytree_node(
        kind,
        lambda tree: ([*tree.values()], [*tree]),
        lambda values, names: kind(zip(names, values, strict=True)),
    )
    _told.add(kind)
