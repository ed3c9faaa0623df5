"""Engines that simulate models of MuJoCo: C MuJoCo and MJX.

An engine is a module with the functions `start`, `step`, and `place`. They take a
`models.Plan`, which says what a task needs, and return a `models.Simulated`.
"""

import importlib
from typing import Any

import jax

from jaxenvs.errors import ParameterError

ENGINES = ("c", "mjx")


def default_engine() -> str:
    """Returns the engine for the platform that JAX's programs run on."""
    return "c" if jax.default_backend() == "cpu" else "mjx"


def engine(name: str) -> Any:
    """Returns the module of an engine.

    Raises:
        MissingExtraError: it is not installed.
    """
    return importlib.import_module(f"jaxenvs.physics.{name}")


def check_engine(caller: str, name: str) -> str:
    """Returns the name of an engine, which may be "auto".

    Raises:
        ParameterError: there is no such engine.
    """
    if name == "auto":
        return default_engine()
    if name not in ENGINES:
        raise ParameterError(
            f'{caller} got engine={name!r}; expected {", ".join(map(repr, ENGINES))}, or "auto".'
        )
    return name


def check_only_c(caller: str, name: str, why: str) -> None:
    """Checks the engine of a task that MJX cannot simulate.

    Raises:
        ParameterError: it is another than "c".
    """
    name = check_engine(caller, name)
    if name != "c":
        raise ParameterError(
            f'{caller} got engine={name!r}, but MJX {why}.  Pass engine="c", which runs on CPUs.'
        )
