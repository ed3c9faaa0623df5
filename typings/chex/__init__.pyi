"""What the package uses of chex, typed.

chex declares its `dataclass` without annotations, so that a type checker sees no fields on a class
decorated with arguments. And its `ArrayTree` is a recursive union that nothing can be read from;
a tree whose structure the caller chooses is `Any` here.
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
