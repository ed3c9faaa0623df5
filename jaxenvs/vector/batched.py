"""Parameters with a row per instance of a batch."""

from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxenvs.core import Environment
from jaxenvs.errors import UnknownParameterError, VectorizeError, closest
from jaxenvs.parameters import is_static_parameter, layers


def check_names(env: Environment, names: Any) -> tuple[str, ...]:
    """Returns the names of batched parameters as a tuple."""
    names = (names,) if isinstance(names, str) else names
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in (*names,)):
        raise VectorizeError(
            f"vectorize got batched={names!r:.60}; expected the names of parameters, such as"
            ' batched=["gravity"].'
        )
    names, known = tuple(names), env.parameters
    for name in names:
        if name not in known:
            raise UnknownParameterError(
                f'batched names "{name}", which is not a parameter of {env!r:.80}.'
                f"{closest(name, known)}  It has: {', '.join(known) or 'none'}."
            )
        if is_static_parameter(env, name):
            owner = type(layers(env, name)[-1]).__name__
            raise VectorizeError(
                f'batched names "{name}", a static field of {owner}.  Static fields'
                " determine the program, which all instances share.  Vectorize one environment for"
                " each value."
            )
    return names


def axes_of(env: Environment, names: Iterable[str]) -> Any:
    """Returns a tree like `env`: 0 if a parameter is batched, otherwise None."""
    axes = jax.tree.map(lambda _: None, env)
    for name in names:
        *path, layer = layers(env, name)
        axes_layer = axes
        for outer in path:
            axes_layer = getattr(axes_layer, outer.inner_parameters)
        vars(axes_layer)[name] = jax.tree.map(lambda _: 0, getattr(layer, name))
    return axes


def rows_of(env: Any, axes: Any, index: Any) -> Any:
    """Returns `env` with only the rows `index` of its batched parameters."""
    # A traced array cannot index a NumPy array. An int can, and the result stays NumPy.
    row = (lambda x: x[index]) if isinstance(index, int) else lambda x: jnp.asarray(x)[index]
    return jax.tree.map(
        lambda axis, leaf: leaf if axis is None else jax.tree.map(row, leaf),
        axes,
        env,
        is_leaf=lambda axis: axis is None,
    )


def check_rows(env: Environment, names: Sequence[str], num_envs: int) -> None:
    """Raises VectorizeError unless each batched parameter has a row for each instance."""

    def check(axis: int | None, value: Any) -> None:
        if axis is not None and isinstance(value, (list, tuple)):
            raise VectorizeError(
                f"batched={list(names)}, but one of these parameters is a"
                f" {type(value).__name__}.  Pass an array: jnp.array([...])."
            )
        shapes = {np.shape(leaf)[:1] for leaf in jax.tree.leaves(value)}
        if axis is not None and shapes != {(num_envs,)}:
            raise VectorizeError(
                f"num_envs={num_envs}, batched={list(names)}, but one of"
                f" these parameters has shape {list(np.shape(value))}."
                f"  Pass one value per instance: [{num_envs}, ...]."
            )

    jax.tree.map(check, axes_of(env, names), env, is_leaf=lambda axis: axis is None)
