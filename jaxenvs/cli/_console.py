"""Rich, where it is installed."""

from typing import Any

from jaxenvs.errors import missing_extra


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
