"""What a worker process inherits from its caller, and what it has to itself."""

import ctypes
import importlib
import importlib.util
import os
import random
import runpy
import signal
import string
import subprocess
import sys
import textwrap
import threading
import types
import warnings
from pathlib import Path

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

import jaxenvs
import tests
from jaxenvs.bridge.workers.wire import dumps, is_importable
from tests.bridge.envs import Counter

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


def _made(name, **attributes):
    module = types.ModuleType(name)
    vars(module).update(attributes)
    return module


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (sys, True),  # in the interpreter
        (os, True),  # frozen
        (np, True),
        (np.linalg, True),
        (sys.modules["_ctypes"], True),  # in C
        (tests, True),
        (_made("numpy.made"), True),  # by its package
        (_made("numpy.made", __file__="made.py"), True),
        (_made("numpy.made", __file__="/elsewhere/made.py"), False),
        (_made("numpy", __file__="/elsewhere/numpy.py"), False),
        (_made("made_up"), False),
        (_made("made_up.module"), False),
    ],
)
def test_importable_modules_are_those_found_by_name(module, expected):
    assert is_importable(module) == expected


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


def test_annotations_of_a_class_sent_by_value_are_jax_arrays():
    class State:  # this process alone has it
        position: jax.Array

    data = dumps(State)
    assert len(data) < 2_000  # jax.Array by value takes 60,000
    assert cloudpickle.loads(data).__annotations__ == {"position": jax.Array}
    program = "import sys, pickle, jax; State = pickle.loads(sys.stdin.buffer.read()); "
    program += "assert State.__annotations__ == {'position': jax.Array}"
    subprocess.run([sys.executable, "-c", program], input=data, check=True)


# --- registered ids ---


class _Named(Counter):
    pass


class _Wrapped(gymnasium.Wrapper):
    def __init__(self, env, number):
        super().__init__(env)
        self.unwrapped.number = number


@pytest.fixture
def register(monkeypatch, own_registry):
    """Registers an id with Gymnasium for one test."""
    main = sys.modules["__main__"]  # as if the script had these
    monkeypatch.setattr(main, "Named", _Named, raising=False)
    monkeypatch.setattr(main, "Wrapped", _Wrapped, raising=False)
    before = dict(gymnasium.registry)
    yield gymnasium.register
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def in_a_worker(fns, **kwargs):
    return jaxenvs.make_pool(fns, backend="process", num_workers=1, **kwargs)


@pytest.mark.filterwarnings("ignore:.*Overriding")
def test_ids_of_the_caller_are_known_in_workers(register):
    wrapper = gymnasium.envs.registration.WrapperSpec("Wrapped", "__main__:Wrapped", {"number": 5})
    register("String-v0", entry_point="__main__:Named", kwargs={"number": 1})
    register("Class-v0", entry_point=_Named, kwargs={"number": 2}, max_episode_steps=9)
    register("Lambda-v0", entry_point=lambda number: _Named(number), kwargs={"number": 3})
    register("mine/Any-v0", entry_point="__main__:Named", kwargs={"number": np.int8(4)})
    register("Wrapped-v0", entry_point="__main__:Named", additional_wrappers=(wrapper,))
    register("CartPole-v1", entry_point="__main__:Named", kwargs={"number": 6})  # replaces one
    # Of those that cannot be sent, nobody makes one.
    register("Lock-v0", entry_point=_Named, kwargs={"number": threading.Lock()})
    register("Memory-v0", entry_point=_Named, kwargs={"number": memoryview(b"")})
    register("Missing-v0", entry_point="__main__:Missing")
    ids = "String-v0", "Class-v0", "Lambda-v0", "mine/Any-v0", "Wrapped-v0", "CartPole-v1"
    with in_a_worker([lambda id=id: gymnasium.make(id) for id in ids]) as pool:
        assert pool.reset()[0][:, 0].tolist() == [1, 2, 3, 4, 5, 6]
        limits = [each["max_episode_steps"] for each in map(vars, pool.get_attr("spec"))]
        assert limits == [None, 9, None, None, None, None]
    with in_a_worker("String-v0", num_envs=1) as pool:
        assert pool.reset()[0][:, 0].tolist() == [1] and pool.spec.id == "String-v0"


def test_package_may_register_inherited_ids_again(register, tmp_path, monkeypatch, capfd):
    source = """
        import gymnasium, jaxenvs
        from tests.bridge.envs import Counter
        gymnasium.register("Packaged-v0", entry_point="packaged_ids:Counter")
        jaxenvs.register("Packaged-v0", "packaged_ids:Counter")
    """
    (tmp_path / "packaged_ids.py").write_text(textwrap.dedent(source))
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("packaged_ids")
    try:
        with in_a_worker([lambda: gymnasium.make("Packaged-v0")]) as pool:
            assert pool.reset()[0].shape == (1, 3)
        assert "Overriding" not in capfd.readouterr().err
    finally:
        del sys.modules["packaged_ids"]


def test_ids_registered_with_jaxenvs_are_known_in_workers(register):
    def limited():
        from jaxenvs.registry import find  # imports no JAX

        return Counter(find("Inherited-v0").time_limit)

    jaxenvs.register("Inherited-v0", "tests.multi_agent_env:Nowhere", time_limit=7)
    with in_a_worker([limited]) as pool:
        assert pool.reset()[0][:, 0].tolist() == [7]


@pytest.mark.interop
def test_ids_registered_with_classic_gym_are_known_in_workers():
    gym = pytest.importorskip("gym")

    def made():
        import gym

        return gym.make("Inherited-v0", disable_env_checker=True).unwrapped

    gym.register("Inherited-v0", entry_point=Counter, kwargs={"number": 8})
    try:
        with in_a_worker([made]) as pool:
            assert pool.reset()[0][:, 0].tolist() == [8]
    finally:
        del gym.envs.registry["Inherited-v0"]


@pytest.mark.interop
def test_ids_of_ale_py_are_known_in_workers():
    pytest.importorskip("ale_py")
    with in_a_worker([lambda: gymnasium.make("ALE/Pong-v5", obs_type="ram")]) as pool:
        assert pool.reset()[0].shape == (1, 128)


# --- the list in docs/bridge/index.md ---


class _Tells(Counter):
    def surroundings(self):
        folder, path, arguments = os.getcwd(), sys.path, sys.argv
        return os.environ.get("JAXENVS_TEST"), folder, path, arguments

    def settings(self):
        filters = [each[1] and each[1].pattern for each in warnings.filters]
        return np.geterr()["over"], getattr(string, "inherited", None), "inherited" in filters

    def draw(self):
        return _GENERATOR.random()


_GENERATOR = np.random.default_rng()


def test_workers_have_what_the_page_lists(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXENVS_TEST", "as the pool was made")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["program", "argument"])
    monkeypatch.setattr(string, "inherited", "no", raising=False)
    with warnings.catch_warnings(), np.errstate(over="raise"), in_a_worker([_Tells]) as pool:
        warnings.filterwarnings("ignore", "inherited")
        text = "as the pool was made"
        found = text, str(tmp_path), list(sys.path), ["program", "argument"]
        assert pool.call("surroundings") == (found,)
        assert pool.call("settings") == (("warn", None, False),)
    with jaxenvs.make_pool(_Tells, 2, backend="process", num_workers=2) as pool:
        assert len(set(pool.call("draw"))) == 1  # a copy
