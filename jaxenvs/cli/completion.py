"""Completion of commands, options, and their values in a shell. Imports no JAX."""

import argparse
from collections.abc import Iterable
from typing import Any

from argcomplete import autocomplete
from argcomplete.completers import FilesCompleter

from jaxenvs.catalog.suites import SUITES
from jaxenvs.cli.app import ALGORITHMS
from jaxenvs.registry import registry, unlisted


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell's request for completions, and exits."""
    completer: Any = _values  # argcomplete declares a class, and calls any function
    autocomplete(parser, default_completer=completer)


def _values(prefix: str, action: argparse.Action, **_: Any) -> Iterable[str]:
    """Returns possible values of an argument that has no `choices`: names, or files and folders."""
    match action.dest:
        case "id" | "filter":
            ids = [id for id in registry if id.startswith(prefix)]
            return ids or [*unlisted]
        case "algorithm":
            return ALGORITHMS
        case "family":
            return {spec.family for spec in registry.values()}
        case "suite":
            return SUITES
    return FilesCompleter()(prefix)
