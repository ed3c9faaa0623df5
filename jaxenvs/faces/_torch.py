"""Conversion of NumPy arrays to PyTorch tensors."""

from collections.abc import Callable
from typing import Any, Literal

import jax

from jaxenvs.errors import missing_extra


def output_converter(output: Literal["numpy", "torch"]) -> Callable[[Any], Any]:
    """Returns a function that turns a tree of arrays into tensors that share their memory.

    For "numpy" it returns the arrays unchanged.

    Raises:
        MissingExtraError: PyTorch is not installed.
    """
    if output == "numpy":
        return lambda tree: tree
    try:
        import torch
    except ImportError as error:
        raise missing_extra('make_gym(output="torch")', "torch", "torch") from error
    from_dlpack = torch.from_dlpack
    return lambda tree: jax.tree.map(from_dlpack, tree)
