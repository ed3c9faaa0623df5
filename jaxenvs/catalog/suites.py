"""The suites of other JAX libraries, whose ids are `suite/name`. Strings only."""

import importlib
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from jaxenvs.errors import UnknownEnvironmentError, closest
from jaxenvs.registry import EnvSpec, unlisted

# The prefix of the ids, which is the name of the module in `jaxenvs.suites`, and the library.
SUITES = {
    "brax": "brax",
    "craftax": "Craftax",
    "gymnax": "gymnax",
    "jaxmarl": "JaxMARL",
    "jaxtari": "JAXtari",
    "jumanji": "jumanji",
    "kinetix": "Kinetix",
    "navix": "NAVIX",
    "pgx": "pgx",
    "playground": "MuJoCo Playground",
    "xminigrid": "XLand-MiniGrid",
}


def suite_module(suite: str) -> Any:
    """Imports the adapter of a suite and with it the library.

    Raises:
        UnknownEnvironmentError: there is no such suite.
        MissingExtraError: the library is not installed.
    """
    if suite not in SUITES:
        raise UnknownEnvironmentError(
            f'there is no suite "{suite}".{closest(suite, SUITES)}  Suites: {", ".join(SUITES)}.'
        )
    return importlib.import_module(f"jaxenvs.suites.{suite}")


def suite_ids(suite: str) -> list[str]:
    """Returns the ids of the environments that the installed version of a suite has.

    Raises:
        UnknownEnvironmentError: there is no such suite.
        MissingExtraError: the library is not installed.
    """
    return [f"{suite}/{name}" for name in suite_module(suite).names()]


def register_suite_id(id: str) -> bool:
    """Registers `id` if its prefix is that of a suite.

    Raises:
        MissingExtraError: the library is not installed.
        UnknownEnvironmentError: the suite has no such environment.
    """
    suite, slash, name = id.partition("/")
    if not slash or suite not in SUITES:
        return False
    module = suite_module(suite)
    names = module.names()
    if name not in names:
        raise UnknownEnvironmentError(
            f'{SUITES[suite]} has no environment "{name}".{closest(name, names)}'
            f"  `jaxenvs list --suite {suite}` shows all."
        )
    unlisted[id] = EnvSpec(
        id, partial(_make, module.make, name), family=suite, source=SUITES[suite]
    )
    return True


def _make(make: Callable[..., Any], name: str, **parameters: Any) -> Any:
    """Returns `make(name, **parameters)`: the same object again if the arguments have a hash.

    Libraries define no equality, so `jit` would compile its programs again for another object.
    """
    try:
        hash(tuple(parameters.values()))
    except TypeError:
        return make(name, **parameters)
    return _make_once(make, name, **parameters)


@lru_cache(maxsize=64, typed=True)
def _make_once(make: Callable[..., Any], name: str, **parameters: Any) -> Any:
    import jax

    with jax.ensure_compile_time_eval(), jax.enable_x64(False):  # independent of the first caller
        return make(name, **parameters)
