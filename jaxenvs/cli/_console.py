"""Rich, where it is installed; and files that cannot be written."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxenvs.errors import RenderError, missing_extra


def console() -> Any:
    """A `rich.console.Console` on standard output.

    Raises:
        MissingExtraError: rich is not installed.
    """
    try:
        from rich.console import Console
    except ImportError as error:
        raise missing_extra("The command line", "rich", "cli") from error
    # Where output is piped the width is unknown; 80 columns would fold the tables.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def table(*columns: str, title: str | None = None) -> Any:
    """A `rich.table.Table` with these columns, in the one style of the command line."""
    console()
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Says that a file cannot be written, where the system says so.

    Raises:
        RenderError: it cannot; the message names the file and why.
    """
    try:
        yield
    except OSError as error:
        raise RenderError(
            f'"{path}" cannot be written: {error.strerror or error}.  Pass another --output.'
        ) from error
