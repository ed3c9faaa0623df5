"""Fixtures that select the backend of a test, with and without futexes."""

import os
import threading

import numpy as np
import pytest

from jaxenvs.bridge.native import libraries as _native
from jaxenvs.errors import ClosedError

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


def stepping_until_closed(pool):
    """Steps a pool in another thread; returns that, and the list of errors from its close."""
    errors = []

    def step():
        try:
            pool.step(np.zeros(pool.num_envs, np.int64))
        except ClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=step, daemon=True)
    thread.start()
    return thread, errors


@pytest.fixture
def marker(tmp_path):
    """A file that does not exist yet, by which an environment knows that it has misbehaved."""
    return os.fspath(tmp_path / "misbehaved")
