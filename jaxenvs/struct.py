"""Immutable pytree dataclasses whose fields are either leaves or static.

There are three kinds of records:

- What users configure is a `pytree_dataclass`: environments, batches, algorithms. Fields may be
  static, misspelled arguments have errors of their own, and instances compare by value.
- What programs carry from step to step is a `chex.dataclass(frozen=True)`: states, timesteps,
  memories. All fields are leaves, and arguments have names.
- What functions pass to each other within a step, or callers unpack, is a `NamedTuple`: contacts of
  a physics engine, results in the form of another library.
"""

import dataclasses
import functools
import inspect
from typing import Annotated, Any, TypeVar, dataclass_transform, get_origin

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from jaxenvs.errors import UnknownParameterError, check_parameters

T = TypeVar("T")

_STATIC = {"static": True}


def static(default: Any = dataclasses.MISSING, **kwargs: Any) -> Any:
    """Declares a static field: part of the pytree's structure, not a leaf.

    Use it for values that determine shapes or control flow. Changing a static field triggers
    recompilation. The value must be hashable and comparable.

    Args:
        default: the field's default value. The field is required if this is omitted.
        **kwargs: passed to `dataclasses.field`.
    """
    return dataclasses.field(default=default, metadata=_STATIC, **kwargs)


def fields(record: Any) -> tuple[dataclasses.Field, ...]:
    """Returns the fields of a dataclass or of an instance, like `dataclasses.fields`.

    That function takes only what type checkers know to be a dataclass, which a base class is not.
    """
    return dataclasses.fields(record)


def replace(record: T, **changes: Any) -> T:
    """Returns a copy of a dataclass instance with some fields changed, see `fields`."""
    instance: Any = record
    return dataclasses.replace(instance, **changes)


def is_static(field: dataclasses.Field) -> bool:
    """Returns whether `field` was declared with `static`."""
    return bool(field.metadata.get("static"))


@dataclass_transform(frozen_default=True, eq_default=False)
def pytree_dataclass(cls: type[T]) -> type[T]:
    """Turns `cls` into a frozen dataclass and registers it as a pytree node, in place.

    Instances compare and hash by value: they are equal if static fields are equal, and leaves have
    equal values and the same types, so that a program compiled for one fits the other. `1`, `1.0`
    and `np.float32(1)` differ. A traced leaf is equal only to itself.

    Raises:
        UnknownParameterError: the class body sets a field, or a new public name, without an
            annotation. The constructor raises it if it gets an argument that is not a field.
    """
    check_annotations(cls)
    own_repr = cls.__repr__ is not object.__repr__
    # A field without a default may share its name with an inherited property, as
    # `TimeLimit.time_limit` does. `dataclass` would take the property as the field's default, and
    # the constructor could not set the field.
    properties = [
        name
        for name in vars(cls).get("__annotations__", {})
        if isinstance(getattr(super(cls, cls), name, None), property)
    ]
    for name in properties:
        if name not in vars(cls):
            setattr(cls, name, dataclasses.field())
    own_init = "__init__" in vars(cls)
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=not own_repr)(cls)
    for name in properties:
        if name not in vars(cls):
            setattr(cls, name, None)
    if not own_init:
        cls.__init__ = _with_suggestions(cls.__init__)
    if cls.__eq__ is object.__eq__:
        cls.__eq__, cls.__hash__ = equal_by_value, hash_by_value

    @functools.cache
    def names() -> tuple[list[str], list[str]]:
        """Returns the names of leaves and of static fields."""
        # Not known yet: cloudpickle makes a class without a body and adds its attributes later.
        static_ones = [field.name for field in fields(cls) if is_static(field)]
        return [field.name for field in fields(cls) if not is_static(field)], static_ones

    def flatten(instance: Any) -> tuple[list[Any], tuple[Any, ...]]:
        values, (leaves, fixed) = vars(instance), names()
        return [values[name] for name in leaves], tuple(values[name] for name in fixed)

    def flatten_with_keys(instance: Any) -> tuple[list[Any], tuple[Any, ...]]:
        children, static_values = flatten(instance)
        paths = map(jax.tree_util.GetAttrKey, names()[0])
        return list(zip(paths, children, strict=True)), static_values

    def unflatten(static_values: tuple[Any, ...], children: Any) -> Any:
        # Bypass the constructor: JAX also builds trees whose leaves are placeholders, axis numbers
        # or None, and `__post_init__` should not have to accept those.
        instance, (leaves, fixed) = object.__new__(cls), names()
        vars(instance).update(zip(leaves, children, strict=True))
        vars(instance).update(zip(fixed, static_values, strict=True))
        return instance

    # Do not use jax.tree_util.register_dataclass: in jax 0.10 to 0.12, tree structures of two such
    # classes with the same fields compare equal, so jit may run one environment's program for
    # another environment.
    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def check_annotations(cls: type) -> None:
    """Checks that everything in the body of `cls` that looks like a parameter is one.

    Dataclasses ignore names without an annotation, so an inherited field would keep its default.
    Methods, class variables and properties of a base class, and names that are private or in
    capitals need no annotation.

    Raises:
        UnknownParameterError: a name lacks its annotation.
    """
    inherited = {each.name: each for each in fields(cls)} if dataclasses.is_dataclass(cls) else {}
    known = {*getattr(cls, "__dataclass_fields__", ())}  # class variables, too
    known.update(*map(vars, cls.__mro__[1:]))
    for name, value in vars(cls).items():
        if name.startswith("_") or name in vars(cls).get("__annotations__", {}):
            continue
        given = getattr(value, "__name__", f"{value!r:.40}")
        if name in inherited:
            kind: Any = inherited[name].type
            if get_origin(kind) is Annotated:
                kind = kind.__origin__
            given = f"struct.static({given})" if is_static(inherited[name]) else given
            fix = f"Write {name}: {getattr(kind, '__name__', kind)} = {given}."
        elif name in known or name.isupper() or callable(value) or hasattr(value, "__get__"):
            continue
        elif isinstance(value, dataclasses.Field):
            continue  # `dataclass` refuses it
        else:
            kind = type(value).__name__
            fix = f"Write {name}: {kind} = {given}, or {name}: ClassVar = {given} for a constant."
        raise UnknownParameterError(
            f"{cls.__name__} sets {name} without an annotation, so it would not be a parameter."
            f"  {fix}"
        )


def _with_suggestions(init: Any) -> Any:
    """Returns the constructor of a dataclass, whose errors name fields like a misspelled one."""

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except TypeError:
            _, *names = inspect.signature(init).parameters
            check_parameters(type(self).__name__, kwargs, names)
            raise

    return __init__


def equal_by_value(self: Any, other: Any) -> bool:
    """Returns whether two trees have the same structure and leaves of equal types and values."""
    if self is other or type(self) is not type(other):
        return self is other
    (leaves, structure), (others, other_structure) = map(jax.tree.flatten, (self, other))
    return structure == other_structure and all(map(_equal_leaves, leaves, others))


def hash_by_value(self: Any) -> int:
    """Returns a hash that is equal for trees that are `equal_by_value`, without reading arrays."""
    # The hash of NaN depends on the object.
    leaves = [
        x if isinstance(x, int | float) and x == x else type(x) for x in jax.tree.leaves(self)
    ]
    return hash((type(self), *leaves))


def _equal_leaves(one: Any, other: Any) -> bool:
    if one is other or type(one) is not type(other) or is_traced(one):
        return one is other
    if isinstance(one, np.ndarray | np.generic | jax.Array):
        types = [(x.dtype, x.shape, getattr(x, "weak_type", False)) for x in (one, other)]
        if types[0] != types[1] or jnp.issubdtype(one.dtype, jax.dtypes.extended):
            return False
        return np.asarray(one).tobytes() == np.asarray(other).tobytes()
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


def is_traced(*values: Any) -> bool:
    """Returns whether any of the values is a JAX tracer."""
    return any(isinstance(value, Tracer) for value in values)


def select(mask: jax.Array, true: chex.ArrayTree, false: chex.ArrayTree) -> Any:
    """Selects rows of two trees of [N, ...] arrays by `mask`, bool[N]."""
    return jax.tree.map(
        lambda t, f: jnp.where(mask.reshape(mask.shape + (1,) * (t.ndim - 1)), t, f), true, false
    )
