"""Registered ids for parametrized tests."""

import jaxenvs

IDS = sorted(jaxenvs.registry)


def one_id_per_class() -> list[str]:
    """Returns the first id of each class; other ids of the class differ from it by numbers."""
    first: dict[type, str] = {}
    for id in IDS:
        first.setdefault(type(jaxenvs.make(id).unwrapped), id)
    return sorted(first.values())
