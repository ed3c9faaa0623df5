"""Which cores workers may run on."""

import hashlib
import os
import threading

import numpy as np
import pytest

import jaxenvs
from jaxenvs.bridge.native.libraries import pool_library, reason_missing
from jaxenvs.bridge.workers.worker import _ENOUGH_STEPS
from tests.bridge.envs import Counter

pytestmark = [
    pytest.mark.skipif(reason_missing(pool_library) is not None, reason="no compiler"),
    pytest.mark.skipif(
        not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
        reason="needs two cores",
    ),
]


def test_worker_uses_the_callers_core_only_when_caller_waits():
    cores = os.sched_getaffinity(0)
    actions = np.zeros(2, np.int64)
    with jaxenvs.make_pool(Counter, 2, backend="process", num_workers=1) as pool:
        pid = pool._backend.pids[0]
        pool.reset(seed=0)
        pool.step(actions)
        assert os.sched_getaffinity(pid) == cores  # until its steps are known
        for _ in range(_ENOUGH_STEPS):
            pool.step(actions)
        for _ in range(2):
            pool.step(actions)
            assert len(os.sched_getaffinity(pid)) == 1  # where the caller is
            pool.step_async(actions)
            assert len(os.sched_getaffinity(pid)) == len(cores) - 1  # where it is not
            pool.step_wait()


def test_workers_may_run_everywhere_if_cores_are_too_few():
    cores = os.sched_getaffinity(0)
    actions = np.zeros(len(cores), np.int64)
    options = {"backend": "process", "num_workers": len(cores)}
    with jaxenvs.make_pool(Counter, len(cores), **options) as pool:
        pool.reset(seed=0)
        for _ in range(_ENOUGH_STEPS + 1):
            pool.step(actions)
        assert len(os.sched_getaffinity(pool._backend.pids[0])) == 1
        pool.send(actions)
        assert all(os.sched_getaffinity(pid) == cores for pid in pool._backend.pids)
        pool.recv()


class _Threaded(Counter):
    """Computes in a thread of its own."""

    def step(self, action):
        data = bytes(2_000_000)
        thread = threading.Thread(target=lambda: hashlib.sha256(data))
        thread.start()
        thread.join()
        return super().step(action)


def test_environments_with_own_threads_may_use_every_core():
    with jaxenvs.make_pool(_Threaded, 2, backend="process", num_workers=1) as pool:
        pool.reset(seed=0)
        for _ in range(_ENOUGH_STEPS + 2):
            pool.step(np.zeros(2, np.int64))
        assert os.sched_getaffinity(pool._backend.pids[0]) == os.sched_getaffinity(0)
