"""Settings that are tuned for an algorithm and an id, from `tuned.toml`."""

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from jaxenvs import spaces
from jaxenvs.factory import is_hosted, make_vec
from jaxenvs.training.algorithms import Algorithm
from jaxenvs.training.parts import ALGORITHMS, TABLES
from jaxenvs.training.storages import OnPolicyStorage


def settings_for(algorithm: type[Algorithm], id: str) -> dict[str, Any]:
    """Returns the tuned entries of a configuration, or the general ones of the algorithm."""
    entries = _of_id(tuned_tables(algorithm), id.removeprefix("gymnasium/"))
    if is_hosted(id):
        entries.pop("env", None)
        if any("batched" in each for each in entries.get("wrappers", ())):
            entries = {}  # its instances cannot differ
    return entries or _general(algorithm, id)


def _of_id(known: Mapping[str, dict[str, Any]], id: str) -> dict[str, Any]:
    """Returns the entries of an id or another version of it, over those of its families."""
    task = _without_version(id)
    same = (entries for other, entries in known.items() if _without_version(other) == task)
    own = known.get(id, next(same, {}))
    families = [name for name in known if name.endswith("*") and id.startswith(name[:-1])]
    entries: dict[str, Any] = {}
    for more in (*(known[name] for name in sorted(families, key=len)), own):
        tables = [table for table in TABLES if table in entries and table in more]
        entries |= more | {table: {**entries[table], **more[table]} for table in tables}
    return entries


def _without_version(id: str) -> str:
    return re.sub(r"-v\d+$", "", id)


def _general(cls: type[Algorithm], id: str) -> dict[str, Any]:
    """Returns the entries for an id without tuned ones. Some depend on the spaces."""
    known = tuned_tables(cls)
    if "continuous" not in known:
        return known["default"]
    params: Any = {"backend": "serial"} if is_hosted(id) else {}
    try:
        env: Any = make_vec(id, 1, **params)
    except Exception:  # training will report it
        return known["default"]
    seen, acted = env.single_observation_space, env.single_action_space
    if is_hosted(id):
        env.close()
    if not isinstance(acted, spaces.Box):
        return known["default"]
    chosen, usual = vars(cls.for_spaces(seen, acted)), vars(cls())
    settings = {name: value for name, value in chosen.items() if value != usual[name]}
    return {**known["continuous"], "settings": settings}


def tuned() -> list[tuple[str, str]]:
    """Returns the pairs of an algorithm and an id with tuned settings."""
    return [
        (name, id)
        for name, cls in ALGORITHMS.items()
        for id in tuned_tables(cls)
        if id not in ("default", "continuous", "bsuite") and not id.endswith("*")
    ]


@functools.cache
def tuned_tables(algorithm: type[Algorithm]) -> dict[str, dict[str, Any]]:
    """Returns the tables of an algorithm, or those of the algorithm that your own extends.

    The latter have only settings whose defaults are the same, or only sizes if it extends none.
    """
    file = importlib.resources.files("jaxenvs.training") / "tuned.toml"
    known: Any = tomllib.loads(file.read_text())
    base = next((each for each in algorithm.__mro__ if each in ALGORITHMS.values()), None)
    if base is algorithm:
        return known[algorithm.__name__]
    if base is None:
        is_on_policy = issubclass(algorithm.storage_type, OnPolicyStorage)
        sizes = known["PPO" if is_on_policy else "DQN"]["default"]
        return {"default": {name: x for name, x in sizes.items() if name not in TABLES}}
    mine, its = vars(algorithm()), vars(base())
    for entries in known[base.__name__].values():
        settings = entries.get("settings", {})
        entries["settings"] = {x: settings[x] for x in settings if mine.get(x) == its[x]}
    return known[base.__name__]
