"""What steps the environments of a test: a backend, with the compiled part and without."""

import os

import pytest

from jaxenvs.bridge import _native

IN_PYTHON = "process-in-python"  # the process backend where there is no compiler
IN_PROCESSES = ["process", IN_PYTHON]


@pytest.fixture(params=["serial", "thread", "asyncio", *IN_PROCESSES])
def backend(request, monkeypatch):
    """The name of a backend; `pytest.mark.parametrize("backend", ..., indirect=True)` for some."""
    if request.param != IN_PYTHON:
        yield request.param
        return
    monkeypatch.setenv(_native.DISABLE, "1")  # which workers inherit
    _native.forget()
    yield "process"
    monkeypatch.undo()
    _native.forget()


@pytest.fixture
def marker(tmp_path):
    """A file that does not exist yet, by which an environment knows that it has misbehaved."""
    return os.fspath(tmp_path / "misbehaved")
