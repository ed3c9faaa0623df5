"""Fixtures that select the backend of a test, with and without futexes."""

import os

import pytest

from jaxenvs.bridge.native import libraries as _native

WITHOUT_FUTEX = "process-without-futex"  # the process backend on systems other than Linux
IN_PROCESSES = ["process", WITHOUT_FUTEX]


@pytest.fixture(params=["serial", "thread", "asyncio", *IN_PROCESSES])
def backend(request, monkeypatch):
    """The name of a backend; `pytest.mark.parametrize("backend", ..., indirect=True)` for some."""
    if request.param != WITHOUT_FUTEX:
        yield request.param
        return
    monkeypatch.setenv("CC", "cc -DJX_NO_FUTEX")
    _native.forget()
    yield "process"
    monkeypatch.undo()
    _native.forget()


@pytest.fixture
def marker(tmp_path):
    """A file that does not exist yet, by which an environment knows that it has misbehaved."""
    return os.fspath(tmp_path / "misbehaved")
