"""Console output, and errors for files that cannot be written."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxenvs.errors import RenderError, missing_extra


def console() -> Any:
    """Returns a `rich.console.Console` on standard output.

    Raises:
        MissingExtraError: rich is not installed.
    """
    try:
        from rich.console import Console
    except ImportError as error:
        raise missing_extra("The command line", "rich", "cli") from error
    # If output is piped, the width is unknown, and 80 columns would wrap the tables.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)


def table(*columns: str, title: str | None = None) -> Any:
    """Returns a `rich.table.Table` with these columns, styled for the command line."""
    console()
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    return Table(*columns, title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)


def plain(value: object) -> str:
    """Returns a value as text whose brackets are not markup for rich."""
    text = value.__name__ if isinstance(value, type) else f"{value}"
    return text.replace("[", r"\[")


def check_folder(path: str | Path) -> None:
    """Raises RenderError if the folder of a file that will be written does not exist."""
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise RenderError(
            f'"{path}" cannot be written: there is no folder "{folder}".  Create it, or pass'
            " another --output."
        )


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Converts OSError to RenderError while a file is being written.

    Raises:
        RenderError: the file cannot be written; the message has the reason.
    """
    try:
        yield
    except OSError as error:
        raise RenderError(
            f'"{path}" cannot be written: {error.strerror or error}.  Pass another --output.'
        ) from error
