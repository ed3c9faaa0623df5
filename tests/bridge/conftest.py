"""The backend of a test, with and without futexes, and what the tests of pools share."""

import os
import time

import cloudpickle
import numpy as np
import pytest

import jaxenvs
from jaxenvs.bridge.native import libraries as _native

WITHOUT_FUTEX = "process-without-futex"  # the process backend on systems other than Linux
IN_THIS_PROCESS = ["serial", "thread", "asyncio"]


def _among(*names):
    return pytest.mark.parametrize("backend", names, indirect=True)


# Without futexes, only waiting and waking differ. The quick tests have one of each kind of wait,
# which are marked `with_any_backend` or `with_and_without_futex`.
SLOW_WITHOUT_FUTEX = pytest.param(WITHOUT_FUTEX, marks=pytest.mark.slow)
with_any_backend = _among(*IN_THIS_PROCESS, "process", WITHOUT_FUTEX)
with_and_without_futex = _among("process", WITHOUT_FUTEX)
in_processes = _among("process", SLOW_WITHOUT_FUTEX)


@pytest.fixture(scope="module", autouse=True)
def _sent_by_value(request):
    """Spares workers the import of the test file, which imports JAX and pytest for a second."""
    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)


@pytest.fixture(scope="session")
def pool_without_futex(tmp_path_factory):
    """The path of a pool library as on systems other than Linux."""
    from hatch_build import compile_part

    folder = tmp_path_factory.mktemp("native")
    return str(compile_part(_native, _native.POOL, folder, "-DJX_NO_FUTEX"))


@pytest.fixture(params=[*IN_THIS_PROCESS, "process", SLOW_WITHOUT_FUTEX])
def backend(request):
    """The name of a backend."""
    if request.param != WITHOUT_FUTEX:
        yield request.param
        return
    _native.use_pool(request.getfixturevalue("pool_without_futex"))
    yield "process"
    _native.forget()


def make(fns, backend, **kwargs):
    """A pool with up to two workers."""
    workers = {} if backend == "serial" else {"num_workers": min(2, len(fns))}
    return jaxenvs.make_pool(fns, backend=backend, **{**workers, **kwargs})


def zeros(pool, n=None):
    """The action 0 for all environments, or for n."""
    return np.zeros(pool.num_envs if n is None else n, np.int64)


def wait_until(condition):
    """Waits for a condition, for at most 30 s: a garbage collection may take seconds."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.005)


@pytest.fixture
def marker(tmp_path):
    """A file that does not exist yet, by which an environment knows that it has misbehaved."""
    return os.fspath(tmp_path / "misbehaved")
