"""Makes `python -m jaxenvs` the command line."""

import sys

from jaxenvs.cli import main

sys.exit(main())
