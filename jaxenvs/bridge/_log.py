"""What the bridge tells by logging: the logger is called "jaxenvs"."""

import logging

log = logging.getLogger("jaxenvs")
