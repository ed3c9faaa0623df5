"""Stubs for the parts of chex that jaxenvs uses.

chex declares `dataclass` without annotations, so a type checker sees no fields on a class decorated
with arguments. Its `ArrayTree` is a recursive union, which type checkers cannot index; here it is
`Any`.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, dataclass_transform, overload

import jax
import numpy as np

T = TypeVar("T")

Array: TypeAlias = jax.Array | np.ndarray
ArrayTree: TypeAlias = Any
Numeric: TypeAlias = jax.Array | np.ndarray | float | int
PRNGKey: TypeAlias = jax.Array

@overload
@dataclass_transform()
def dataclass(cls: type[T], /) -> type[T]: ...
@overload
@dataclass_transform()
def dataclass(*, frozen: bool = False, kw_only: bool = False) -> Callable[[type[T]], type[T]]: ...
