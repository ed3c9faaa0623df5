"""Spaces of all arrays with given shapes."""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxenvs.spaces import Box, Dict, Space, Tuple


def unbounded(shapes: Any) -> Space:
    """Returns the space of all arrays with the shapes and dtypes of a tree of dicts and tuples."""
    if isinstance(shapes, Mapping):
        return Dict({name: unbounded(value) for name, value in shapes.items()})
    if isinstance(shapes, tuple):
        return Tuple([unbounded(value) for value in shapes])
    low, high = limits(shapes.dtype)
    return Box(low, high, shapes.shape, shapes.dtype)


def limits(dtype: Any) -> tuple[Any, Any]:
    """Returns the least and the greatest value of a dtype; infinities for floating types."""
    if jnp.issubdtype(dtype, np.floating):
        return -np.inf, np.inf
    if jnp.issubdtype(dtype, np.bool_):
        return False, True
    return np.iinfo(dtype).min, np.iinfo(dtype).max
