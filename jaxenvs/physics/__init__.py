"""Physics engines: C MuJoCo, MJX, and MJX-Warp for models of MuJoCo, and `box2d`.

An engine for MuJoCo is a module with the functions `start`, `step`, and `place`. They take a
`models.Plan`, which says what a task needs, and return a `models.Simulated`.
"""

import importlib.util
from collections.abc import Sequence
from typing import Any

import jax

from jaxenvs.errors import ParameterError

ENGINES = ("c", "mjx", "warp")


def default_engine() -> str:
    """Returns the engine for the platform that JAX's programs run on by default."""
    device: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if device is None or isinstance(device, str):
        device = jax.devices(device)[0]
    if device.platform == "cpu":
        return "c"
    is_nvidia = "cuda" in device.client.platform_version.lower()
    return "warp" if is_nvidia and importlib.util.find_spec("warp") else "mjx"


def engine(name: str) -> Any:
    """Returns the module of an engine.

    Raises:
        MissingExtraError: it is not installed.
    """
    return importlib.import_module(f"jaxenvs.physics.{name}")


def check_engine(caller: str, name: str, dtype: str = "float32") -> str:
    """Returns the name of an engine, which may be "auto".

    Raises:
        ParameterError: there is no such engine, or it does not compute in `dtype`.
    """
    if name == "auto":
        name = default_engine()
    if name not in ENGINES:
        raise ParameterError(
            f'{caller} got engine={name!r}; expected {", ".join(map(repr, ENGINES))}, or "auto".'
        )
    if name == "warp" and dtype != "float32":
        raise ParameterError(
            f'{caller} got dtype="{dtype}"; expected "float32" with engine="warp".  Pass'
            ' engine="c" or engine="mjx".'
        )
    return name


def check_among(caller: str, name: str, engines: Sequence[str]) -> str:
    """Returns the name of an engine that a library's tasks have, which may be "auto".

    Raises:
        ParameterError: they do not have it.
    """
    if name == "auto":
        return default if (default := default_engine()) in engines else "mjx"
    if name not in engines:
        raise ParameterError(
            f"{caller} got engine={name!r}; expected {' or '.join(map(repr, engines))}, in which"
            " the library simulates it.  Tasks of the Control Suite have all engines, see"
            " dm_control/..., and so have models of your own, see jaxenvs.suites.adapt."
        )
    return name


def check_only_c(caller: str, name: str, why: str) -> None:
    """Checks the engine of a task that MJX and Warp cannot simulate.

    Raises:
        ParameterError: it is another than "c".
    """
    name = check_engine(caller, name)
    if name != "c":
        raise ParameterError(
            f'{caller} got engine={name!r}, but MJX {why}.  Pass engine="c", which runs on CPUs.'
        )
