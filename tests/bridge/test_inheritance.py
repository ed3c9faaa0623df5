"""What a worker process has of its caller, and what it does not share with other processes."""

import ctypes
import os
import random
import signal
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import jaxenvs

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks workers")


class _Draws(gymnasium.Env):
    """Observes a number from every generator of random numbers, its own one last."""

    observation_space = spaces.Box(0, 1, (5,), np.float64)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        import torch  # the module of the test

        numpy = np.random.rand()  # noqa: NPY002 (the global one)
        numbers = random.random(), numpy, ctypes.CDLL(None).rand() / 2**31, torch.rand()
        return np.array([*numbers, self.np_random.random()]), {}

    def pid(self):
        return os.getpid()


def test_each_process_has_its_own_global_generators(tmp_path, monkeypatch):
    source = "import os\nnumber = 0.5\ndef rand(): return number\n"
    seeds = "def seed():\n    global number\n    number = int.from_bytes(os.urandom(4)) / 2**32\n"
    (tmp_path / "torch.py").write_text(source + seeds)
    monkeypatch.syspath_prepend(tmp_path)
    found = []
    for _ in range(2):
        with jaxenvs.make_pool(_Draws, 2, backend="process", num_workers=2) as pool:
            found.append(pool.reset(seed=3)[0].copy())
            for pid in pool.call("pid"):
                os.kill(pid, signal.SIGKILL)
            found.append(pool.reset(seed=3)[0].copy())  # by replacements
    for draws in np.concatenate(found).T[:-1]:
        assert len(set(draws)) == 8
    own = np.stack(found)[:, :, -1]
    assert (own == own[0]).all() and own[0, 0] != own[0, 1]
