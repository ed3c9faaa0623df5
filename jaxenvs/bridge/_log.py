"""The logger of the bridge, "jaxenvs"."""

import logging

log = logging.getLogger("jaxenvs")
