import pytest

from jaxenvs.cli import render


@pytest.fixture(scope="package", autouse=True)
def _small_chunks():
    """Draws fewer pictures at once, because episodes of these tests are short."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(render, "_CHUNK", 6)
        yield
