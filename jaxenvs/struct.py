"""Immutable dataclasses that are pytrees, with leaves and static fields."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import chex
import jax
import jax.numpy as jnp
from jax.core import Tracer

T = TypeVar("T")

_STATIC = {"static": True}


def static(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """Declares a field that determines shapes or control flow: part of the tree, not a leaf.

    A program is recompiled when a static field changes. Its value must be hashable and comparable.

    Args:
        default: the field's default value; the field is required if there is none.
        **kwargs: passed to `dataclasses.field`.
    """
    return dataclasses.field(default=default, metadata=_STATIC, **kwargs)


def is_static(field: dataclasses.Field) -> bool:
    """Returns whether `field` was declared with `static`."""
    return bool(field.metadata.get("static"))


@dataclass_transform(frozen_default=True, eq_default=False)
def pytree_dataclass(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and registers it as a pytree node, in place.

    Instances are compared and hashed by identity, since arrays have no single truth value.
    """
    own_repr = cls.__repr__ is not object.__repr__
    # A field without a default may have the name of an inherited property: `TimeLimit.time_limit`.
    # Dataclasses would take the property for its default, and instances could not set it.
    properties = [
        name
        for name in vars(cls).get("__annotations__", {})
        if isinstance(getattr(super(cls, cls), name, None), property)
    ]
    for name in properties:
        if name not in vars(cls):
            setattr(cls, name, dataclasses.field())
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=not own_repr)(cls)
    for name in properties:
        if name not in vars(cls):
            setattr(cls, name, None)
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    leaves = [field.name for field in fields if not is_static(field)]
    fixed = [field.name for field in fields if is_static(field)]
    paths = [jax.tree_util.GetAttrKey(name) for name in leaves]

    def flatten(instance: Any) -> tuple[list[Any], tuple[Any, ...]]:
        values = vars(instance)
        return [values[name] for name in leaves], tuple(values[name] for name in fixed)

    def flatten_with_keys(instance: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children, static_values = flatten(instance)
        return list(zip(paths, children, strict=True)), static_values

    def unflatten(static_values: tuple[Any, ...], children: Any) -> Any:
        # Without the constructor: JAX also builds trees of placeholders, axes and None, which
        # `__post_init__` need not accept.
        instance = object.__new__(cls)
        vars(instance).update(zip(leaves, children, strict=True))
        vars(instance).update(zip(fixed, static_values, strict=True))
        return instance

    # Not jax.tree_util.register_dataclass: in jax 0.10 to 0.12, trees of two such classes with the
    # same fields compare equal, and jit may run the program of one environment for another.
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def is_traced(*values: Any) -> bool:
    """Returns whether any of the values is unknown until the program runs."""
    return any(isinstance(value, Tracer) for value in values)


def select(mask: jax.Array, true: chex.ArrayTree, false: chex.ArrayTree) -> Any:
    """Selects rows of `true` where `mask`, bool[N], is true, else of `false`; trees of [N, ...]."""
    return jax.tree.map(
        lambda t, f: jnp.where(mask.reshape(mask.shape + (1,) * (t.ndim - 1)), t, f), true, false
    )
