"""What a worker process has of its caller, and what it does not share with other processes."""

import ctypes
import importlib.util
import os
import random
import runpy
import signal
import subprocess
import sys
from pathlib import Path

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


# --- what a worker cannot import by its name ---

ROOT = Path(__file__).resolve().parents[2]
MODULE = """
import enum, gymnasium, numpy as np, jaxenvs
class Color(enum.Enum):
    RED = 1
class Red(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        return 0, {"color": Color.RED}
    def step(self, action):
        return 0, 0.0, False, False, {}
def red():
    return Red()
def colors():
    with jaxenvs.make_pool([Red, red, lambda: Red()], backend="process", num_workers=1) as pool:
        return pool.reset()[1]["color"].tolist() == [Color.RED] * 3
"""


@pytest.mark.parametrize("has_namesake", [False, True])
def test_module_loaded_from_a_file_travels_by_value(has_namesake, tmp_path, monkeypatch):
    name = f"red_env_{has_namesake}"
    (tmp_path / "here").mkdir()
    (tmp_path / "red.py").write_text(MODULE)
    if has_namesake:
        (tmp_path / "here" / f"{name}.py").write_text("Red = red = Color = None\n")
    monkeypatch.syspath_prepend(tmp_path / "here")
    spec = importlib.util.spec_from_file_location(name, tmp_path / "red.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    assert module.colors()


def test_script_run_under_a_name_travels_by_value(tmp_path):
    (tmp_path / "red.py").write_text(MODULE + "found = colors()")
    assert runpy.run_path(str(tmp_path / "red.py"), run_name="red_script")["found"]


def test_script_of_a_child_process_travels_by_value(tmp_path):
    main = """
if __name__ == "__main__":
    import concurrent.futures, multiprocessing
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as children:
        print(children.submit(colors).result())
"""
    (tmp_path / "red.py").write_text(MODULE + main)
    run = [sys.executable, str(tmp_path / "red.py")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(run, capture_output=True, text=True, timeout=60, env=env)
    assert found.stdout == "True\n", found.stderr
