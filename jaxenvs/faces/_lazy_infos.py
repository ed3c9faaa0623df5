"""Infos that are built on first access, because many callers never look at them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxenvs.faces._torch import register_with_torch


class LazyInfoDict(dict):
    """A dict of infos, as Gymnasium has them, that is filled on first access."""

    _make: Callable[..., dict[str, Any]] | None = None
    _args: tuple[Any, ...] = ()

    @classmethod
    def from_function(cls, make: Callable[..., dict[str, Any]], *args: Any) -> "LazyInfoDict":
        """Returns a dict that is filled with `make(*args)`; `LazyInfoDict(...)` is `dict(...)`."""
        register_with_torch(cls)  # TorchRL treats infos as a pytree
        infos = cls()
        infos._make, infos._args = make, args
        return infos

    def _fill(self) -> None:
        if self._make is not None:
            make, args, self._make, self._args = self._make, self._args, None, ()
            super().update(make(*args))

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _fill_first(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    @functools.wraps(method)
    def call(self: LazyInfoDict, *args: Any, **kwargs: Any) -> Any:
        self._fill()
        return method(self, *args, **kwargs)

    return call


for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__"),
    *("__ne__", "__or__", "__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy"),
    *("get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"),
):
    setattr(LazyInfoDict, _name, _fill_first(_name))

# `jax.tree.map` treats it like any other dict.
jax.tree_util.register_pytree_with_keys(
    LazyInfoDict,
    lambda infos: (
        [(jax.tree_util.DictKey(name), infos[name]) for name in sorted(infos)],
        tuple(sorted(infos)),
    ),
    lambda names, values: LazyInfoDict(zip(names, values, strict=True)),
)


class LazyInfoList(Sequence):
    """A sequence of N dicts, as classic gym has them, that is built on first access."""

    def __init__(self, length: int, make: Callable[[], list[dict[str, Any]]]) -> None:
        self._length, self._make = length, make

    @functools.cached_property
    def _dicts(self) -> list[dict[str, Any]]:
        return self._make()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        return self._dicts[index]

    def __repr__(self) -> str:
        return repr(self._dicts)

    def __eq__(self, other: object) -> bool:
        return self._dicts == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # like a list  # pyright: ignore[reportAssignmentType]

    def __reduce__(self) -> Any:
        return list, (self._dicts,)
