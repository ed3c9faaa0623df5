"""The report of `check_env`, and the descriptions in it: paths, types, and causes of errors."""

import dataclasses
import traceback
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np

from jaxenvs import errors, spaces
from jaxenvs.errors import EnvironmentCheckError
from jaxenvs.spaces.composite import map_leaves
from jaxenvs.spaces.space import ArraySpace

_HERE = str(Path(__file__).parent)
_LIBRARIES = tuple(str(Path(str(library.__file__)).parent) for library in (jax, chex, np))


@dataclasses.dataclass
class CheckReport:
    """The failures of one environment."""

    name: str  # of the environment
    failures: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)
    cause: BaseException | None = None

    def add(self, check: str, problem: str, fix: str) -> None:
        """Adds a failure: what `check` found and expected, and how to fix it."""
        if (check, problem, fix) not in self.failures:
            self.failures.append((check, problem, fix))

    def add_exception(
        self, check: str, call: str, error: BaseException, fix: str | None = None
    ) -> None:
        """Adds the failure that `call` raised `error`. If `fix` is None, `error` determines it."""
        self.cause = self.cause or error
        first_line = str(error).strip().split("\n")[0][:300]
        location = _location(error)
        self.add(
            check,
            f"{call} raised {type(error).__name__}{location}: {first_line}",
            fix or _suggest_fix(error),
        )

    def has_failed(self, *checks: str) -> bool:
        """Returns whether any of `checks` has failed."""
        return any(check in checks for check, _, _ in self.failures)

    def raise_failures(self) -> None:
        """Raises one error that lists all failures, if there are any."""
        if not self.failures:
            return
        count = len(self.failures)
        lines = [f"{self.name} breaks the contract in {count} place{'s' * (count > 1)}."]
        for check, problem, fix in self.failures:
            lines += [f"  [{check}] {problem}", f"      {fix}"]
        raise EnvironmentCheckError("\n".join(lines)) from self.cause


def leaves_by_path(tree: Any, root: str) -> dict[str, Any]:
    """Returns the leaves of `tree` by readable paths, such as "timestep.observation['image']"."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {root + jax.tree_util.keystr(path): leaf for path, leaf in leaves}


def describe(leaf: Any) -> str:
    """Returns dtype, shape and weak type: "float32[4]" or "float32[] (weakly typed)"."""
    weak = " (weakly typed)" if getattr(leaf, "weak_type", False) else ""
    return errors.describe(leaf) + weak


def space_mismatches(space: spaces.Space, value: Any, path: str) -> list[str]:
    """Returns how structure, shapes and dtypes of `value` differ from those of `space`."""
    problems: list[str] = []

    def check(space: spaces.Space, leaf: Any, path: str) -> None:
        expected = jax.ShapeDtypeStruct(space.shape, space.dtype)
        found = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
        if found != (expected.shape, expected.dtype):
            problems.append(f"{path} is {describe(leaf)}, expected {describe(expected)}")

    map_leaves(check, space, value, path, problems)
    return problems


def find_outside(space: spaces.Space, value: Any, path: str) -> str | None:
    """Describes the first number of `value`, NumPy arrays, that is outside `space`, or None."""
    problems: list[str] = []

    def check(space: spaces.Space, leaf: Any, path: str) -> None:
        if bool(space.contains(leaf)):
            return
        assert isinstance(space, ArraySpace)
        low, high = map(np.asarray, space.bounds)
        is_inside = np.asarray((leaf >= low) & (leaf <= high))
        index = tuple(int(i) for i in np.argwhere(~is_inside)[0])
        number, least, most = (np.broadcast_to(x, leaf.shape)[index] for x in (leaf, low, high))
        place = f"{path}[{', '.join(map(str, index))}]" if index else path
        problems.append(f"{place} is {number}, outside [{least}, {most}]")

    map_leaves(check, space, value, path, problems)
    return problems[0] if problems else None


def _location(error: BaseException) -> str:
    """Returns the last line outside libraries and this checker, as " at file.py:12", or ""."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith((_HERE, *_LIBRARIES)):
            return f" at {Path(frame.filename).name}:{frame.lineno}"
    return ""


def _suggest_fix(error: BaseException) -> str:
    text = str(error)
    if isinstance(error, jax.errors.TracerArrayConversionError):
        return "NumPy functions do not work on traced values: use their jax.numpy counterparts."
    if isinstance(error, jax.errors.UnexpectedTracerError):
        return "A traced value was kept from an earlier call: return it in the state instead."
    if isinstance(
        error, jax.errors.ConcretizationTypeError | jax.errors.TracerIntegerConversionError
    ):
        return (
            "Python cannot branch on a traced value, convert it to a number, or use it as a shape:"
            " use jnp.where or jax.lax, keep numbers as arrays, and declare parameters that"
            " determine shapes with struct.static."
        )
    if isinstance(error, dataclasses.FrozenInstanceError):
        return "Environments and states are immutable: return changes in a new state."
    if "hash" in text:
        return (
            "Static fields are compared and hashed: use tuples, numbers, strings or frozen types."
        )
    if "unbound axis name" in text:
        return "An environment describes one instance: do not use collectives over a batch axis."
    return "See the traceback above this error; the call must work under jit and vmap."
