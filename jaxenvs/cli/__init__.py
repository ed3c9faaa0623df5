"""The command line: `jaxenvs`, or `python -m jaxenvs`."""

from jaxenvs.cli.app import main as main
