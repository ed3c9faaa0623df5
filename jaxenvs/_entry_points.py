"""What "module:name" names: an environment of one's own, in a module or in a file."""

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from jaxenvs.errors import UnknownEnvironmentError, closest
from jaxenvs.registry import register

_OWN = re.compile(r"(?P<module>[\w.]+|.+\.py):(?P<name>[A-Za-z_]\w*)")


def register_own(id: str) -> bool:
    """Registers "module:Class" or "file.py:Class" under itself; whether `id` is one.

    "module:ID" with an id that the module enters in Gymnasium's registry is none.

    Raises:
        UnknownEnvironmentError: there is no such module, or neither a class nor an id in it.
    """
    found = _OWN.fullmatch(id)
    if found is None:
        return False
    import_module(found["module"], f'"{id}"')
    import gymnasium

    if found["name"] in gymnasium.registry:
        return False
    load(id, f'"{id}"')
    register(id, id)
    return True


def load(entry_point: str, named_by: str) -> Any:
    """Imports what "module:name" names.

    Args:
        entry_point: the module, or a file that ends in .py, and the name of what is in it.
        named_by: who names it, for messages.

    Raises:
        UnknownEnvironmentError: there is no such module, or nothing of that name in it.
    """
    place, _, name = entry_point.rpartition(":")
    module = import_module(place, named_by)
    if not callable(getattr(module, name, None)):
        known = [each for each, value in vars(module).items() if callable(value)]
        raise UnknownEnvironmentError(
            f'{named_by} names "{name}" in {place}, where there is no class or function of that'
            f" name.{closest(name, known)}  Define it in {module.__file__}, or correct the name."
        )
    return getattr(module, name)


def import_module(place: str, named_by: str) -> Any:
    """Imports a module, or a file that ends in .py.

    Raises:
        UnknownEnvironmentError: there is none, or it imports something that is not installed.
    """
    name, path = place, None
    if place.endswith(".py"):
        path = Path(place).resolve()
        if not path.is_file():
            raise UnknownEnvironmentError(
                f'{named_by} names the file "{path}", which is not there.  Correct the path.'
            )
        name = path.stem
        if f"{path.parent}" not in sys.path:
            sys.path.insert(0, f"{path.parent}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise UnknownEnvironmentError(
                f'{named_by} names the module {name}: there is no module "{error.name}" in'
                f" {os.getcwd()} or on the Python path.  Correct the name, or go to its folder."
            ) from None
        raise UnknownEnvironmentError(
            f'{named_by} names the module {name}, which imports "{error.name}".  That is not'
            " installed."
        ) from error
    if path is not None and Path(module.__file__ or "").resolve() != path:
        raise UnknownEnvironmentError(
            f'{named_by} names the file "{path}", but "{name}" is the module {module.__file__}.'
            "  Give the file another name."
        )
    return module
