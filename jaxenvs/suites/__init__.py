"""Environments of other JAX libraries as native environments, one module for each library.

`jaxenvs.make("brax/ant")` makes one by its id. `jaxenvs.suites.adapt(env)` takes an environment
that you made.
"""

import importlib
from typing import Any

from jaxenvs.core import Environment
from jaxenvs.errors import WrapperError

# The top package that defines a library's environments -> the adapter's module and function.
_ADAPTERS = {
    "brax": ("brax", "from_brax"),
    "craftax": ("craftax", "from_craftax"),
    "envelope": ("envelope", "from_envelope"),
    "gymnax": ("gymnax", "from_gymnax"),
    "jaxmarl": ("jaxmarl", "from_jaxmarl"),
    "jaxtari": ("jaxtari", "from_jaxtari"),
    "jumanji": ("jumanji", "from_jumanji"),
    "kinetix": ("kinetix", "from_kinetix"),
    "mujoco": ("mujoco", "from_mujoco"),
    "mujoco_playground": ("playground", "from_playground"),
    "navix": ("navix", "from_navix"),
    "pgx": ("pgx", "from_pgx"),
    "stoa": ("stoa", "from_stoa"),
    "xminigrid": ("xminigrid", "from_xminigrid"),
}


def adapt(env: Any, *args: Any, **options: Any) -> Environment:
    """Returns an environment of another JAX library as a native environment.

    Args:
        env: a single instance of an environment whose class derives from one of brax, Craftax,
            Envelope, gymnax, JaxMARL, JAXtari, jumanji, Kinetix, MuJoCo Playground, NAVIX, pgx,
            Stoa or XLand-MiniGrid; or a model of MuJoCo, see `jaxenvs.suites.mujoco.from_mujoco`.
        *args: its parameters, if the library keeps them apart.
        **options: further arguments of the library's function in `jaxenvs.suites`.

    Raises:
        WrapperError: `env` is not an environment of these libraries, or has a wrapper that resets
            or batches instances.
    """
    for cls in type(env).__mro__:
        package = cls.__module__.partition(".")[0]
        if package in _ADAPTERS:
            module, function = _ADAPTERS[package]
            return getattr(importlib.import_module(f"jaxenvs.suites.{module}"), function)(
                env, *args, **options
            )
    raise WrapperError(f"adapt got {env!r:.80}; expected an environment of {', '.join(_ADAPTERS)}.")
