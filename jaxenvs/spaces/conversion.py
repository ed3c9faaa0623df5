"""Conversion to and from Gymnasium spaces and dm_env specs.

Each library is imported only when its functions are called. Dtypes are converted as follows.

- From jaxenvs: `Box` and `MultiBinary` keep their dtype. `Discrete` and `MultiDiscrete` become
  int64 in Gymnasium, its default, where int32 actions are members too, and int32 in dm_env.
- To jaxenvs: `Discrete` and `MultiDiscrete` become int32. 64-bit arrays become 32-bit arrays,
  as in JAX without `jax_enable_x64`; bounds that do not fit become infinite (floats)
  or the extreme value (integers). `x64=True` keeps 64-bit arrays, for programs with that flag.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxenvs.errors import SpaceError, missing_extra
from jaxenvs.spaces.box import Box
from jaxenvs.spaces.composite import Dict, Tuple
from jaxenvs.spaces.discrete import Discrete, MultiBinary, MultiDiscrete
from jaxenvs.spaces.space import ArraySpace, Space

if TYPE_CHECKING:
    import gymnasium


def to_gymnasium(space: Space) -> "gymnasium.Space[Any]":
    """Returns the Gymnasium space with the same members.

    Raises:
        SpaceError: a bound is traced, or NumPy does not have the dtype (bfloat16).
    """
    from gymnasium import spaces

    match space:
        case Box():
            low, high = _concrete_bounds(space)
            return spaces.Box(low, high, space.shape, space.dtype.type)
        case Discrete():
            return spaces.Discrete(space.n, start=space.start)
        case MultiDiscrete():
            return spaces.MultiDiscrete(space.nvec, start=space.start)
        case MultiBinary():
            return spaces.MultiBinary(space.n)
        case Dict():
            return spaces.Dict({key: to_gymnasium(part) for key, part in space.spaces.items()})
        case Tuple():
            return spaces.Tuple([to_gymnasium(part) for part in space.spaces])
    raise SpaceError(f"{space!r} cannot be converted to a Gymnasium space.")


def from_gymnasium(space: "gymnasium.Space[Any]", *, x64: bool = False) -> Space:
    """Returns the jaxenvs space with the members of a Gymnasium space.

    The keys of a `Dict` are sorted, even if Gymnasium's are not.

    Args:
        space: a Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these.
        x64: whether to keep 64-bit arrays, see the module.

    Raises:
        SpaceError: the space is or contains one of another class (Text, Graph, Sequence, OneOf or
            a custom class), or a discrete space has values that do not fit into int32.
    """
    from gymnasium import spaces

    match space:
        case spaces.Box():
            return _box(space.low, space.high, space.shape, space.dtype, x64)
        case spaces.Discrete():
            return Discrete(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            return MultiDiscrete(space.nvec, space.start)
        case spaces.MultiBinary():
            return MultiBinary(space.shape)
        case spaces.Dict():
            return Dict({key: from_gymnasium(part, x64=x64) for key, part in space.items()})
        case spaces.Tuple():
            return Tuple(from_gymnasium(part, x64=x64) for part in space.spaces)
        case spaces.Space():
            raise SpaceError(
                f"{space} cannot be converted: jaxenvs has no equivalent of {type(space).__name__}."
                "\n  Members must have a fixed shape. Convert it to Box, Discrete, MultiDiscrete, "
                "MultiBinary, Dict or Tuple first: pad to a maximum size, or encode text as "
                "integers."
            )
    raise SpaceError(f"from_gymnasium got {space!r}; it must be a Gymnasium space.")


def to_dm_env(space: Space, name: str | None = None) -> Any:
    """Returns the dm_env spec, or dict or tuple of specs, with the same members.

    A `Discrete` that starts at 0 becomes a `DiscreteArray`, and an unbounded `Box` an `Array`.
    Everything else becomes a `BoundedArray`, which does not distinguish a `MultiDiscrete` from an
    integer `Box`; `from_dm_env` returns a `Box` for it.

    Args:
        space: the space to convert.
        name: the name of the spec; parts of a `Dict` or `Tuple` get a path, such as
            "camera/depth".

    Raises:
        SpaceError: a bound is traced, or NumPy does not have the dtype (bfloat16).
        MissingExtraError: dm-env is not installed.
    """
    specs = _import_specs("to_dm_env")
    match space:
        case Dict():
            return {key: to_dm_env(part, _path(name, key)) for key, part in space.spaces.items()}
        case Tuple():
            return tuple(
                to_dm_env(part, _path(name, str(index))) for index, part in enumerate(space.spaces)
            )
        case Discrete(start=0):
            return specs.DiscreteArray(space.n, np.int32, name)
        case Box():
            low, high = _concrete_bounds(space)
            least, most = _extremes(space.dtype)
            if (low == least).all() and (high == most).all():
                return specs.Array(space.shape, space.dtype, name)
            return specs.BoundedArray(space.shape, space.dtype, low, high, name)
        case ArraySpace():
            return specs.BoundedArray(space.shape, space.dtype, *space.bounds, name)
    raise SpaceError(f"{space!r} cannot be converted to a dm_env spec.")


def from_dm_env(spec: Any, *, x64: bool = False) -> Space:
    """Returns the jaxenvs space with the members of a dm_env spec or a tree of specs.

    Args:
        spec: a spec, or a mapping, tuple or list of specs. A `DiscreteArray` becomes a `Discrete`,
            any other numeric spec a `Box`, unbounded if the spec is.
        x64: whether to keep 64-bit arrays, see the module.

    Raises:
        SpaceError: `spec` is or contains anything else, such as a `StringArray`.
        MissingExtraError: dm-env is not installed.
    """
    specs = _import_specs("from_dm_env")
    match spec:
        case Mapping():
            return Dict({key: from_dm_env(part, x64=x64) for key, part in spec.items()})
        case tuple() | list():
            return Tuple(from_dm_env(part, x64=x64) for part in spec)
        case specs.DiscreteArray():
            return Discrete(spec.num_values)
        case specs.BoundedArray():
            return _box(spec.minimum, spec.maximum, spec.shape, spec.dtype, x64)
        case specs.Array() if spec.dtype.kind in "biuf":
            return _box(*_extremes(spec.dtype), spec.shape, spec.dtype, x64)
    raise SpaceError(
        f"from_dm_env got {spec!r}; it must be a numeric dm_env spec, or a dict, tuple or list "
        "of them.\n  Encode text as integers first."
    )


def _box(low: Any, high: Any, shape: tuple[int, ...], dtype: Any, x64: bool) -> Box:
    """Returns a Box with these bounds. Converts 64-bit dtypes to 32 bits unless `x64`."""
    dtype = np.dtype(dtype)
    if x64 or dtype.itemsize < 8:
        return Box(low, high, shape, dtype)
    narrow = np.dtype(f"{dtype.kind}4")
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            low, high = (np.asarray(bound).astype(narrow) for bound in (low, high))
    else:
        low, high = (np.clip(bound, *_extremes(narrow)).astype(narrow) for bound in (low, high))
    return Box(low, high, shape, narrow)


def _concrete_bounds(space: Box) -> tuple[np.ndarray, np.ndarray]:
    """Returns copies of the bounds, because other libraries write to them."""
    if not space.is_concrete:
        raise SpaceError(
            f"{space} cannot be converted: a bound is traced.\n  Convert outside of jit and vmap."
        )
    if space.dtype.kind not in "biuf":
        raise SpaceError(f"{space} cannot be converted: NumPy has no dtype {space.dtype}.")
    return space.low.copy(), space.high.copy()


def _extremes(dtype: np.dtype) -> tuple[Any, Any]:
    if dtype.kind == "f":
        return -np.inf, np.inf
    if dtype.kind == "b":
        return False, True
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def _path(name: str | None, part: str) -> str:
    return part if name is None else f"{name}/{part}"


def _import_specs(feature: str) -> Any:
    try:
        from dm_env import specs
    except ImportError as error:
        raise missing_extra(f"spaces.{feature}", "dm-env", "dm") from error
    return specs
