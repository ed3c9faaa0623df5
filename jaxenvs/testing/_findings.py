"""Gathering what is wrong, and the words for it: paths, types, and the causes of JAX's errors."""

import dataclasses
import traceback
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np

from jaxenvs import spaces
from jaxenvs.errors import EnvironmentCheckError

_HERE = str(Path(__file__).parent)
_LIBRARIES = tuple(str(Path(str(library.__file__)).parent) for library in (jax, chex, np))


@dataclasses.dataclass
class Findings:
    """The failures of one environment; a check that finds nothing leaves no trace."""

    name: str  # the environment's
    failures: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    cause: BaseException | None = None

    def add(self, check: str, found: str, fix: str) -> None:
        """Notes that `check` found `found` (and what it expected); `fix` says what to change."""
        if (check, found, fix) not in self.failures:
            self.failures.append((check, found, fix))

    def crash(self, check: str, doing: str, error: BaseException, fix: str | None = None) -> None:
        """Notes that `doing` raised `error`; `fix` is found from the error if it is None."""
        self.cause = self.cause or error
        first_line = str(error).strip().split("\n")[0][:300]
        self.add(
            check,
            f"{doing} raised {type(error).__name__}{_place(error)}: {first_line}",
            fix or _remedy(error),
        )

    def found(self, *checks: str) -> bool:
        """Whether any of `checks` has failed."""
        return any(check in checks for check, _, _ in self.failures)

    def report(self) -> None:
        """Raises one error with everything that was found, if anything was."""
        if not self.failures:
            return
        count = len(self.failures)
        lines = [f"{self.name} breaks the contract in {count} place{'s' * (count > 1)}."]
        for check, found, fix in self.failures:
            lines += [f"  [{check}] {found}", f"      {fix}"]
        raise EnvironmentCheckError("\n".join(lines)) from self.cause


def leaves_by_path(tree: Any, root: str) -> dict[str, Any]:
    """The leaves of `tree` under readable names, such as "timestep.observation['image']"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {root + jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def describe(leaf: Any) -> str:
    """Dtype and shape: "float32[4]"; a weak type is said to be one."""
    shape = ",".join(map(str, leaf.shape))
    weak = " (weakly typed)" if getattr(leaf, "weak_type", False) else ""
    return f"{leaf.dtype}[{shape}]{weak}"


def space_mismatches(space: spaces.Space, value: Any, path: str) -> list[str]:
    """How the structure, shapes and dtypes of `value` differ from those of `space`."""
    if isinstance(space, spaces.Dict):
        if not isinstance(value, dict) or set(value) != set(space.spaces):
            keys = sorted(value) if isinstance(value, dict) else type(value).__name__
            return [f"{path} is {keys}; its space is a Dict of {sorted(space.spaces)}"]
        parts = [(part, value[key], f"{path}[{key!r}]") for key, part in space.spaces.items()]
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, tuple) or len(value) != len(space.spaces):
            return [f"{path} is {value!r}; its space is a Tuple of {len(space.spaces)}"]
        parts = [(part, value[i], f"{path}[{i}]") for i, part in enumerate(space.spaces)]
    else:
        if not hasattr(value, "shape"):
            return [f"{path} is a {type(value).__name__}; its space holds single arrays: {space}"]
        expected = jax.ShapeDtypeStruct(space.shape, space.dtype)
        if (value.shape, value.dtype) == (expected.shape, expected.dtype):
            return []
        return [f"{path} is {describe(value)}; its space holds {describe(expected)}"]
    return [problem for part in parts for problem in space_mismatches(*part)]


def outside(space: spaces.Space, value: Any, path: str) -> str:
    """Says which number of `value`, a NumPy tree, lies outside `space`, and by which bound."""
    if isinstance(space, spaces.Dict):
        parts = [(part, value[key], f"{path}[{key!r}]") for key, part in space.spaces.items()]
        return next(filter(None, (outside(*part) for part in parts)), "")
    if isinstance(space, spaces.Tuple):
        parts = [(part, value[i], f"{path}[{i}]") for i, part in enumerate(space.spaces)]
        return next(filter(None, (outside(*part) for part in parts)), "")
    if bool(space.contains(value)):
        return ""
    low, high = _bounds(space)
    if low is None:
        return f"{path} is {value}, which is not in {space}"
    inside = (value >= low) & (value <= high)
    index = tuple(int(i) for i in np.argwhere(~np.asarray(inside))[0])
    number, least, most = (np.broadcast_to(x, value.shape)[index] for x in (value, low, high))
    place = f"{path}[{', '.join(map(str, index))}]" if index else path
    return f"{place} is {number}, outside [{least}, {most}]"


def _bounds(space: spaces.Space) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return np.asarray(space.low), np.asarray(space.high)
    if isinstance(space, spaces.Discrete):
        return space.start, space.start + space.n - 1
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.start), np.asarray(space.start) + np.asarray(space.nvec) - 1
    return None, None


def _place(error: BaseException) -> str:
    """' at file.py:12', the last line outside libraries and the checker, if there is one."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((_HERE, *_LIBRARIES)):
            return f" at {Path(frame.filename).name}:{frame.lineno}"
    return ""


def _remedy(error: BaseException) -> str:
    """What to change after `error`."""
    text = str(error)
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return (
            "NumPy cannot work on traced values: call the function of the same name in jax.numpy."
        )
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return "A traced value was kept from an earlier call: return it in the state instead."
    if isinstance(
        error, jax.errors.ConcretizationTypeError | jax.errors.TracerIntegerConversionError
    ):
        return (
            "Python cannot branch on, convert or size by a traced value: use jnp.where or jax.lax,"
            " keep numbers as arrays, and declare what decides shapes with struct.static."
        )
    if isinstance(error, dataclasses.FrozenInstanceError):
        return "Environments and states are immutable: return what changes in a new state."
    if "hash" in text:
        return (
            "Static fields are compared and hashed: use tuples, numbers, strings or frozen types."
        )
    if "unbound axis name" in text:
        return "An environment describes one instance: use no collective over a batch axis."
    return "The traceback stands above this error; the call must work under jit and vmap."
