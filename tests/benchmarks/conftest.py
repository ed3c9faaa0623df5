import sys

import pytest


@pytest.fixture(scope="module", autouse=True)
def _installed_packages():
    """Forgets the older packages that a benchmark imports instead of the installed ones."""
    path = [*sys.path]
    yield
    if sys.path != path:
        sys.path[:] = path
        for name in [*sys.modules]:
            if name.partition(".")[0] in ("gymnax", "rejax"):
                del sys.modules[name]
