"""Conversion of NumPy arrays to PyTorch tensors."""

import sys
from collections.abc import Callable
from typing import Any

import jax

from jaxenvs.errors import missing_extra

_registered: set[type] = set()


def torch_converter() -> Callable[[Any], Any]:
    """Returns a function that turns a tree of arrays into tensors that share their memory.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    try:
        import torch
    except ImportError as error:
        raise missing_extra('make_gym(output="torch")', "torch", "torch") from error
    from_dlpack = torch.from_dlpack
    return lambda tree: jax.tree.map(from_dlpack, tree)


def register_with_torch(cls: type[dict]) -> None:
    """Makes `cls` a node of PyTorch's pytrees, if PyTorch has been imported."""
    if cls in _registered or "torch" not in sys.modules:
        return
    from torch.utils import _pytree

    _pytree.register_pytree_node(
        cls,
        lambda tree: ([*tree.values()], [*tree]),
        lambda values, names: cls(zip(names, values, strict=True)),
    )
    _registered.add(cls)
