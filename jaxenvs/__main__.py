"""The entry point of `python -m jaxenvs`."""

import sys

from jaxenvs.cli import main

sys.exit(main())
