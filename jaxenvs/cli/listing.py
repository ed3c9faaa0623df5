"""`jaxenvs list`."""

import argparse
import json

from jaxenvs.catalog.suites import suite_ids
from jaxenvs.cli._console import console, table
from jaxenvs.errors import UnknownEnvironmentError, closest
from jaxenvs.registry import EnvSpec, registry, unlisted

_FACTS = ("id", "family", "time_limit", "reward_threshold", "source", "compared_with")


def run(options: argparse.Namespace) -> None:
    """Prints a table of the ids that match the options, or a list of the ids of a suite."""
    if options.suite is not None:
        ids = [id for id in suite_ids(options.suite) if options.filter.lower() in id.lower()]
        if options.json:
            print(json.dumps([{"id": id, "family": options.suite} for id in ids], indent=2))
        else:
            console().print("\n".join(ids), highlight=False)
        return
    specs = select(options.filter, options.family)
    if options.json:
        facts = [{name: getattr(spec, name) for name in _FACTS} for spec in specs]
        print(json.dumps(facts, indent=2))
        return
    rows = table("id", "family", "time limit", "solved at", "compared with")
    for spec in specs:
        rows.add_row(
            f"[bold]{spec.id}[/]",
            spec.family,
            _or_dash(spec.time_limit),
            _or_dash(spec.reward_threshold),
            spec.compared_with or "-",
        )
    console().print(rows)
    if specs[0].id in unlisted:
        console().print(f"{len(specs)} of {len(unlisted)} settings of bsuite's experiments.")
        return
    console().print(f"{len(specs)} of {len(registry)} environments.")
    if len(specs) == len(registry):
        console().print(
            f"Besides, there are {len(unlisted)} settings of bsuite's experiments;"
            " `jaxenvs list deep_sea/` shows those of one."
        )


def select(part: str, family: str | None) -> list[EnvSpec]:
    """Returns the entries of a family, or of all, whose id contains `part`, ignoring case.

    Settings of large benchmarks are left out unless no other id contains `part`.

    Raises:
        UnknownEnvironmentError: no id matches; the message suggests similar names.
    """
    families = {spec.family for spec in registry.values()}
    if family is not None and family not in families:
        raise UnknownEnvironmentError(
            f'there is no family "{family}".{closest(family, families)}'
            f"  Families: {', '.join(sorted(families))}."
        )
    for known in (registry, unlisted):
        specs = [
            spec
            for spec in known.values()
            if part.lower() in spec.id.lower() and family in (None, spec.family)
        ]
        if specs:
            return specs
    raise UnknownEnvironmentError(
        f'no id contains "{part}".{closest(part, registry)}  `jaxenvs list` shows all.'
    )


def _or_dash(value: object) -> str:
    return "-" if value is None else f"{value}"
