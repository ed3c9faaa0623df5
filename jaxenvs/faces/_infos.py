"""Infos that cost nothing unless they are looked at."""

import functools
from collections.abc import Callable
from typing import Any

import jax

from jaxenvs.faces._torch import tell_torch


class StepInfos(dict):
    """Infos that are put together when they are first looked at; many a caller never does."""

    _make: Callable[..., dict[str, Any]] | None = None
    _args: tuple[Any, ...] = ()

    @classmethod
    def later(cls, make: Callable[..., dict[str, Any]], *args: Any) -> "StepInfos":
        """What `make(*args)` returns, once it is asked for; `StepInfos(...)` is `dict(...)`."""
        tell_torch(cls)  # TorchRL looks through infos
        infos = cls()
        infos._make, infos._args = make, args
        return infos

    def _fill(self) -> None:
        if self._make is not None:
            make, args, self._make, self._args = self._make, self._args, None, ()
            super().update(make(*args))

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def _filled(name: str) -> Callable[..., Any]:
    method = getattr(dict, name)

    @functools.wraps(method)
    def call(self: StepInfos, *args: Any, **kwargs: Any) -> Any:
        self._fill()
        return method(self, *args, **kwargs)

    return call


for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__"),
    *("__ne__", "__or__", "__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy"),
    *("get", "items", "keys", "pop", "popitem", "setdefault", "update", "values"),
):
    setattr(StepInfos, _name, _filled(_name))

# To jax.tree.map they are what any other dict is.
jax.tree_util.register_pytree_with_keys(
    StepInfos,
    lambda infos: (
        [(jax.tree_util.DictKey(name), infos[name]) for name in sorted(infos)],
        tuple(sorted(infos)),
    ),
    lambda names, values: StepInfos(zip(names, values, strict=True)),
)
