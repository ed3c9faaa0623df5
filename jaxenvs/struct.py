"""Immutable dataclasses that are pytrees, with fields that are either leaves or static."""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

T = TypeVar("T")

_STATIC = {"static": True}


def static(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """Declares a field that decides shapes or control flow: part of the tree, not a leaf.

    Changing a static field compiles anew; its value must be hashable and comparable.

    Args:
        default: the field's default value; without one the field is required.
        **kwargs: passed on to `dataclasses.field`.
    """
    return dataclasses.field(default=default, metadata=_STATIC, **kwargs)


def is_static(field: dataclasses.Field) -> bool:
    """Whether `field` was declared with `static`."""
    return bool(field.metadata.get("static"))


@dataclass_transform(frozen_default=True, eq_default=False)
def pytree_dataclass(cls: type[T]) -> type[T]:
    """Makes `cls` a frozen dataclass and registers it as a pytree node, in place.

    Equality and hashing are by identity, since comparing arrays gives no single truth value.
    """
    cls = dataclasses.dataclass(frozen=True, eq=False)(cls)
    fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
    jax.tree_util.register_dataclass(
        cls,
        data_fields=[field.name for field in fields if not is_static(field)],
        meta_fields=[field.name for field in fields if is_static(field)],
    )
    return cls
