"""Loading of objects by entry points such as "module:name" or "file.py:name"."""

import importlib
import os
import re
import sys
from pathlib import Path
from typing import Any

from jaxenvs.errors import UnknownEnvironmentError, closest
from jaxenvs.registry import register

_ENTRY_POINT = re.compile(r"(?P<module>[\w.]+|.+\.py):(?P<name>[A-Za-z_]\w*)")


def register_entry_point(id: str) -> bool:
    """Registers `id` if it is an entry point, "module:Class" or "file.py:Class".

    Returns False for "module:ID" if importing the module registers "ID" with Gymnasium.

    Raises:
        UnknownEnvironmentError: there is no such module, or neither a class nor an id in it.
    """
    match = _ENTRY_POINT.fullmatch(id)
    if match is None:
        return False
    import_module(match["module"], f'"{id}"')
    import gymnasium

    if match["name"] in gymnasium.registry:
        return False
    load(id, f'"{id}"')
    register(id, id)
    return True


def load(entry_point: str, source: str) -> Any:
    """Imports the object that "module:name" refers to.

    Args:
        entry_point: a module, or a file that ends in .py, then a colon and a name in it.
        source: the origin of the entry point, for error messages.

    Raises:
        UnknownEnvironmentError: there is no such module, or no such class or function in it.
    """
    module_or_file, _, name = entry_point.rpartition(":")
    module = import_module(module_or_file, source)
    if not callable(getattr(module, name, None)):
        known = [each for each, value in vars(module).items() if callable(value)]
        raise UnknownEnvironmentError(
            f'{source} refers to "{name}" in {module_or_file}, which has no class or function of'
            f" that name.{closest(name, known)}  Define it in {module.__file__}, or correct the"
            " name."
        )
    return getattr(module, name)


def import_module(module_or_file: str, source: str) -> Any:
    """Imports a module, or a file that ends in .py.

    Args:
        module_or_file: the name of the module, or the path of the file.
        source: the origin of the name, for error messages.

    Raises:
        UnknownEnvironmentError: there is no such module or file, or it imports a package that is
            not installed.
    """
    name, path = module_or_file, None
    if module_or_file.endswith(".py"):
        path = Path(module_or_file).resolve()
        if not path.is_file():
            raise UnknownEnvironmentError(
                f'{source} refers to the file "{path}", which does not exist.  Correct the path.'
            )
        name = path.stem
        if f"{path.parent}" not in sys.path:
            sys.path.insert(0, f"{path.parent}")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if f"{name}.".startswith(f"{error.name}."):
            raise UnknownEnvironmentError(
                f'{source} refers to the module {name}, but there is no module "{error.name}" in'
                f" {os.getcwd()} or on the Python path.  Correct the name, or change to the"
                " module's folder."
            ) from None
        raise UnknownEnvironmentError(
            f'{source} refers to the module {name}, which imports "{error.name}", but that is not'
            " installed.  Install it."
        ) from error
    if path is not None and Path(module.__file__ or "").resolve() != path:
        raise UnknownEnvironmentError(
            f'{source} refers to the file "{path}", but "{name}" is already the module'
            f" {module.__file__}.  Rename the file."
        )
    return module
