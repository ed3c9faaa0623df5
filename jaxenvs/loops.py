"""Loops and branches whose types agree inside `jax.shard_map`.

There, the type of an array names the mesh axes that the array varies over, and JAX demands that a
loop carries equal types into every iteration and that branches return equal types. But a carry
usually starts with constants, which vary over no axis. The functions here make all that a loop
carries, or a branch returns, vary over the same axes. Elsewhere they are those of `jax.lax`.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
from jax import lax

T = TypeVar("T")


def while_loop(cond_fun: Callable[[T], Any], body_fun: Callable[[T], T], init_val: T) -> T:
    """Is `jax.lax.while_loop` with a carry that may start with constants."""
    axes = _axes_of_results(body_fun, init_val)
    return lax.while_loop(cond_fun, lambda x: _vary(body_fun(x), axes), _vary(init_val, axes))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, T], T], init_val: T) -> T:
    """Is `jax.lax.fori_loop` with a carry that may start with constants."""
    axes = _axes_of_results(body_fun, lower, init_val)
    return lax.fori_loop(
        lower, upper, lambda i, x: _vary(body_fun(i, x), axes), _vary(init_val, axes)
    )


def scan(
    f: Callable[[T, Any], tuple[T, Any]],
    init: T,
    xs: Any = None,
    length: int | None = None,
    **kwargs: Any,
) -> tuple[T, Any]:
    """Is `jax.lax.scan` with a carry that may start with constants."""

    def first(carry: T) -> T:
        return f(carry, jax.tree.map(lambda x: x[0], xs))[0]

    axes = _axes_of_results(first, init)

    def step(carry: T, x: Any) -> tuple[T, Any]:
        carry, y = f(carry, x)
        return _vary(carry, axes), y

    return lax.scan(step, _vary(init, axes), xs, length, **kwargs)


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *args: Any) -> Any:
    """Is `jax.lax.cond` with branches that may return constants."""
    axes = _axes_of_results(true_fun, *args) | _axes_of_results(false_fun, *args)
    return lax.cond(
        pred, lambda *x: _vary(true_fun(*x), axes), lambda *x: _vary(false_fun(*x), axes), *args
    )


def vary_like(tree: T, like: Any) -> T:
    """Returns `tree` with leaves that vary over every axis that any leaf of `like` varies over.

    Call it with the results and the arguments of a function whose results users carry in loops.
    """
    return _vary(tree, _axes_of(like))


def _axes_of(tree: Any) -> frozenset[str]:
    """Returns the axes of the mesh of a `jax.shard_map` that any leaf of `tree` varies over."""
    return frozenset().union(*map(_axes, jax.tree.leaves(tree))) if _all_axes() else frozenset()


def _vary(tree: T, axes: frozenset[str]) -> T:
    """Returns `tree` with leaves that vary over `axes`, as far as types are concerned."""

    def convert(leaf: Any) -> Any:
        missing = tuple(sorted(axes - _axes(leaf)))
        return lax.pcast(leaf, missing, to="varying") if missing else leaf

    return jax.tree.map(convert, tree) if axes else tree


def _axes(leaf: Any) -> frozenset[str]:
    kind = jax.typeof(leaf)
    return kind.mat.varying if hasattr(kind, "mat") else kind.vma  # up to jax 0.9 it is `vma`


def _all_axes() -> frozenset[str]:
    """Returns the axes that types may name here: none outside of `shard_map(check_vma=True)`."""
    axes = jax.sharding.get_abstract_mesh().manual_axes
    return _axes(lax.pcast(0, tuple(axes), to="varying")) if axes else frozenset()


def _axes_of_results(call: Callable[..., Any], *args: Any) -> frozenset[str]:
    """Returns the axes that the arguments of a call or its results vary over."""
    possible = _all_axes()
    axes = _axes_of(args)
    if axes == possible:
        return axes
    found = []
    jax.eval_shape(lambda *args: found.append(_axes_of(call(*args))), *args)
    return axes.union(*found)
