"""Detection of impurity by changes of attributes, class variables and the compiled program."""

import re
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr  # pyright: ignore[reportPrivateImportUsage]

from jaxenvs.core import Environment, Wrapper

_MUTABLE = (bool, int, float, str, list, dict, set, np.ndarray)


def layers(env: Environment) -> Iterator[Any]:
    """Yields the environment and everything it wraps, outermost first."""
    yield env
    while isinstance(env, Wrapper):
        env = env.env
        yield env


def snapshot_attributes(env: Environment) -> dict[str, Any]:
    """Returns copies of all attributes and class variables, for `is_same`."""
    snapshot = {}
    for layer in layers(env):
        for key, value in vars(layer).items():
            snapshot[f"{type(layer).__name__}.{key}"] = _copy(value)
        for cls in type(layer).__mro__:
            if cls.__module__ == Environment.__module__:
                continue
            for key, value in vars(cls).items():
                if not key.startswith("__") and isinstance(value, _MUTABLE):
                    snapshot[f"{cls.__name__}.{key}"] = _copy(value)
    return snapshot


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return [part for item in value.items() for part in item]
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return list(value) if isinstance(value, list | set) else value


def is_same(before: Any, after: Any) -> bool:
    """Returns whether an attribute is unchanged. Objects are compared by identity."""
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(a is b for a, b in zip(before, after, strict=True))
    return before is after or (
        type(before) is type(after)
        and isinstance(before, bytes | int | float | str)
        and before == after
    )


def trace_program(env: Environment, name: str, args: tuple[Any, ...]) -> list[str]:
    """Traces the method `name` without caches. Returns the lines of its jaxpr and its constants."""
    closed = jax.make_jaxpr(lambda *args: getattr(env, name)(*args))(*args)  # new, so not cached
    text = re.sub(r"0x[0-9a-f]+", "0x", str(closed))  # addresses of functions vary
    values = [f"constant {np.asarray(value).tobytes().hex()}" for value in _constants(closed)]
    return [line.strip() for line in text.split("\n")] + values


def _constants(closed: ClosedJaxpr) -> Iterator[Any]:
    for value in closed.consts:
        yield jax.random.key_data(value) if _is_key(value) else value
    yield from _inner_constants(closed.jaxpr)


def _inner_constants(jaxpr: Jaxpr) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        for part in jax.tree.leaves(equation.params):
            if isinstance(part, ClosedJaxpr):
                yield from _constants(part)
            elif isinstance(part, Jaxpr):
                yield from _inner_constants(part)


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
