"""What a worker process inherits from its caller: the environment ids that the caller registered.

docs/bridge/index.md lists everything. Global random generators are reseeded.
"""

import contextlib
import copy
import ctypes
import importlib.util
import marshal
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import cloudpickle
import numpy as np

from jaxenvs.bridge.workers.wire import dumps, is_importable
from jaxenvs.registry import standard

# Modules that have a dict of specs as `registry`, in older releases of gym as `registry.env_specs`.
_REGISTRIES = ("gymnasium.envs", "gym.envs", "jaxenvs.registry")


def inheritance() -> bytes:
    """Returns the ids registered in this process, packed for `take`.

    Specs that cannot be pickled are omitted.
    """
    there = set(map(id, standard))
    addresses: set[str] = set()
    registered: dict[str, list[bytes]] = {}
    for name in _REGISTRIES:
        if name in sys.modules:
            specs = [*_specs_of(sys.modules[name]).values()]
            specs = [_with_addresses(spec) for spec in specs if id(spec) not in there]
            addresses.update(address for spec in specs for address in _addresses_in(spec))
            registered[name] = _packed(specs)
    return pickle.dumps((registered, _lent(addresses)))


def take(packed: bytes) -> None:
    """Prepares this process, which a pool started, for its environments.

    Args:
        packed: the caller's `inheritance`.
    """
    _renew_generators()
    registered, lent = pickle.loads(packed)
    # A package that registers its ids when it is imported finds them registered already.
    warnings.filterwarnings("ignore", ".*Overriding environment ")
    for name, specs in registered.items():
        after_import(name, partial(_register, specs))
    for name, objects in lent.items():
        module: Any = sys.modules.setdefault(name, ModuleType(name))
        for each in objects:
            vars(module).pop(each, None)
        module.__getattr__ = partial(_borrowed, module, objects)


# --- registered ids ---


def _specs_of(module: Any) -> dict[str, Any]:
    return getattr(module.registry, "env_specs", module.registry)


def _with_addresses(spec: Any) -> Any:
    """Returns a spec with "module:name" in place of entry points that can be imported.

    A worker then imports only what it uses.
    """
    for field in ("entry_point", "vector_entry_point"):
        value = getattr(spec, field, None)
        if callable(value):
            module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
            if getattr(sys.modules.get(module or ""), name, None) is value:
                spec = copy.copy(spec)
                vars(spec)[field] = f"{module}:{name}"
    return spec


def _packed(specs: list[Any]) -> list[bytes]:
    """Pickles specs in lists: as many as possible in one, since every pickle takes time."""
    plain, others = [], []
    for spec in specs:
        try:
            marshal.dumps(vars(spec))  # accepts only a few simple types
            plain.append(spec)
        except ValueError:
            others.append(spec)
    together = _pickled_if_possible(plain)
    alone = others if together else specs
    return together + [data for spec in alone for data in _pickled_if_possible([spec])]


def _addresses_in(spec: Any) -> list[str]:
    """Returns every "module:name" in a spec."""
    wrappers = [wrapper.entry_point for wrapper in getattr(spec, "additional_wrappers", ())]
    wrappers += getattr(spec, "wrappers", ())  # of jaxenvs
    found = spec.entry_point, getattr(spec, "vector_entry_point", None), *wrappers
    return [address for address in found if isinstance(address, str)]


def _lent(addresses: set[str]) -> dict[str, dict[str, bytes]]:
    """Pickles the objects at `addresses` that only this process can import, by module and name."""
    names: dict[str, list[str]] = {}
    for address in addresses:
        name, _, attribute = address.partition(":")
        names.setdefault(name, []).append(attribute)
    lent: dict[str, dict[str, bytes]] = {}
    for name, attributes in names.items():
        module = sys.modules.get(name)
        if module is None or (name != "__main__" and is_importable(module)):
            continue
        for each in attributes:
            if hasattr(module, each):
                for data in _pickled_if_possible(getattr(module, each)):
                    lent.setdefault(name, {})[each] = data
    return lent


def _pickled_if_possible(value: Any) -> list[bytes]:
    try:
        return [dumps(value)]
    except Exception:
        return []


def _register(packed: list[bytes], module: Any) -> None:
    """Adds specs to the registry of a module."""
    known = _specs_of(module)
    # `jaxenvs.register` refuses ids in the registry, but a package may register this one here too.
    new = getattr(module, "unlisted", known)
    for data in packed:
        with contextlib.suppress(Exception):  # it needs a module that this process cannot import
            for spec in cloudpickle.loads(data):
                (known if spec.id in known else new)[spec.id] = spec


def _borrowed(module: ModuleType, objects: dict[str, bytes], name: str) -> Any:
    """The `__getattr__` of a module that only the caller can import."""
    if name not in objects:
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    setattr(module, name, cloudpickle.loads(objects[name]))
    return getattr(module, name)


# --- random numbers ---


def _renew_generators() -> None:
    """Reseeds every global random generator.

    A fork starts with its parent's state, and C and PyTorch start with the same state in every
    process. Python itself seeds `random` after a fork.
    """
    np.random.seed()  # noqa: NPY002 (the global one)
    if os.name == "posix":
        libc, seed = ctypes.CDLL(None), int.from_bytes(os.urandom(4))
        libc.srand(seed)
        libc.srand48(seed)
    after_import("torch", lambda torch: torch.seed())


def after_import(name: str, then: Callable[[Any], None]) -> None:
    """Calls `then` with a module, now if it is imported, otherwise when it is."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Watch(name, then))  # pyright: ignore[reportArgumentType]


class _Watch:
    """A finder that finds nothing itself, but calls `then` when a module is imported."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)  # pyright: ignore[reportArgumentType]
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                if module.__name__ == name:  # a zip file has one loader for all its modules
                    self._then(module)

            spec.loader.exec_module = exec_module
        return spec
