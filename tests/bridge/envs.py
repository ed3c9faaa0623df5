"""Environments whose every answer is known beforehand."""

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import jaxenvs


class Counter(gymnasium.Env):
    """Counts its steps: observation [number, episode, step], reward the step, ends after `length`.

    `info` has the step too, at every one.
    """

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"
    observation_space = spaces.Box(-1, 1e6, (3,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, number: int = 0, length: int = 5, seconds: float = 0.0) -> None:
        self.number, self.length, self.seconds = number, length, seconds
        self.episode, self.count, self.seed, self.options = 0, 0, None, None

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        self.episode, self.count = self.episode + 1, 0
        self.seed, self.options = seed, options
        return self._observation(), {"count": 0, "seed": -1 if seed is None else seed}

    def step(self, action: Any) -> Any:
        if self.seconds:
            time.sleep(self.seconds)
        self.count += 1
        over = self.count >= self.length
        info = {"count": self.count, "action": int(action)}
        return self._observation(), float(self.count), over, False, info

    def render(self) -> Any:
        return np.full((2, 3, 3), self.number, np.uint8)

    def process(self) -> int:
        """A method to call."""
        return os.getpid()

    def directory(self) -> str:
        return os.getcwd()

    def unpicklable(self) -> Any:
        return threading.Lock()

    def _observation(self) -> Any:
        return np.array((self.number, self.episode, self.count), np.float32)


def counters(n: int, **kwargs: Any) -> list[Callable[[], Counter]]:
    """Functions that make counters with the numbers 0 to n - 1."""
    return [lambda i=i: Counter(number=i, **kwargs) for i in range(n)]


class Cut(Counter):
    """Truncates its episodes, which `Counter` terminates."""

    def step(self, action: Any) -> Any:
        observation, reward, over, _, info = super().step(action)
        return observation, reward, False, over, info


class Composite(gymnasium.Env):
    """A tree of spaces at both ends; what it observes is made of the last action."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (4, 4, 1), np.uint8),
            "pair": spaces.Tuple((spaces.Discrete(5, start=-1), spaces.MultiBinary(3))),
            "speed": spaces.Box(-np.inf, np.inf, (), np.float64),
        }
    )
    action_space = spaces.Dict(
        {"button": spaces.Discrete(4), "stick": spaces.Box(-1, 1, (2,), np.float32)}
    )

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return self._observation(0, np.zeros(2, np.float32)), {}

    def step(self, action: Any) -> Any:
        observation = self._observation(action["button"], action["stick"])
        return observation, float(action["stick"].sum()), False, False, {}

    def _observation(self, button: int, stick: Any) -> Any:
        return {
            "image": np.full((4, 4, 1), button, np.uint8),
            "pair": (button - 1, np.array([button & 1, button >> 1 & 1, 0], np.int8)),
            "speed": np.float64(stick[0]),
        }


class Misbehaving(Counter):
    """Does something at a given step of its first life: raises, exits, hangs, returns nonsense.

    What it does is a name of a method; `where` tells "step", "reset", "render" or "close". Whether
    it has done so already is a file's existence, since it is made anew afterwards.
    """

    def __init__(self, what: str, marker: str, where: str = "step", at: int = 2) -> None:
        super().__init__()
        self.what, self.marker, self.where, self.at = what, marker, where, at
        if where == "init":
            self._act("init")

    def _act(self, where: str) -> Any:
        if where != self.where or os.path.exists(self.marker):
            return None
        if where == "step" and self.count != self.at:
            return None
        with open(self.marker, "w"):
            pass
        return getattr(self, self.what)()

    def raises(self) -> None:
        raise ValueError("a deliberate error")

    def exits(self) -> None:
        raise SystemExit(3)

    def is_killed(self) -> None:
        os.kill(os.getpid(), 9)

    def hangs(self) -> None:
        time.sleep(60)

    def hangs_until_told(self) -> None:
        wait_until_told(self.marker)

    def exits_at_once(self) -> None:
        os._exit(3)

    def prints(self) -> None:
        print("printed by an environment", flush=True)
        os.write(2, b"written by an environment\n")

    def changes_directory(self) -> None:
        os.chdir("/")

    def starts_threads(self) -> None:
        for _ in range(3):
            threading.Thread(target=time.sleep, args=(5,), daemon=True).start()

    def forks(self) -> None:
        """Leaves a copy of its process that sleeps, and one that goes on as if it were it."""
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        if os.fork() == 0:
            self.number = 99
            time.sleep(0.05)

    def has_another_shape(self) -> Any:
        return np.zeros(4, np.float32)

    def has_another_rank(self) -> Any:
        return np.zeros((3, 1), np.float32)

    def is_text(self) -> Any:
        return "observation"

    def is_float64(self) -> Any:
        return self._observation().astype(np.float64)

    def is_nan(self) -> Any:
        return np.array((0, np.nan, 0), np.float32)

    def is_outside(self) -> Any:
        return np.full(3, -5, np.float32)

    def rewards_none(self) -> Any:
        return self._observation(), None, False, False, {}

    def rewards_nan(self) -> Any:
        return self._observation(), float("nan"), False, False, {}

    def rewards_array(self) -> Any:
        return self._observation(), np.zeros(2), False, False, {}

    def returns_four(self) -> Any:
        return self._observation(), 0.0, False, {}

    def step(self, action: Any) -> Any:
        result = super().step(action)
        instead = self._act("step")
        if instead is None:
            return result
        return instead if isinstance(instead, tuple) else (instead, *result[1:])

    def reset(self, **kwargs: Any) -> Any:
        result = super().reset(**kwargs)
        if self.episode > 1:
            self._act("reset")
        return result

    def render(self) -> Any:
        self._act("render")
        return super().render()

    def close(self) -> None:
        self._act("close")


def wait_until_told(marker: str) -> None:
    """Hangs in a thread, which cannot be ended, until `tell`; or until a test has failed."""
    end = time.monotonic() + 20
    while not os.path.exists(f"{marker}.over") and time.monotonic() < end:
        time.sleep(0.01)


def tell(marker: str) -> None:
    """Ends the hangs of `wait_until_told`, in all processes."""
    with open(f"{marker}.over", "w"):
        pass


class Meeting(gymnasium.Env):
    """Calls `wait` in its first steps and renders, where it meets others or hangs; counts steps."""

    observation_space = spaces.Box(0, 1e6, (1,), np.float32)
    action_space = spaces.Discrete(3)

    def __init__(self, wait: Any) -> None:
        self.wait, self.count, self.closed = wait, 0, False

    def reset(self, **kwargs: Any) -> Any:
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.wait()
        self.count += 1
        return np.full(1, self.count, np.float32), float(self.count), False, False, {}

    def render(self) -> Any:
        self.wait()
        return np.zeros((1, 1, 3), np.uint8)

    def close(self) -> None:
        self.closed = True


def same_answers(fns: Any, actions: Any, backend: str, theirs: Any = None, **kwargs: Any) -> None:
    """Steps two pools with the same actions and compares everything that they return.

    `theirs` makes the environments of `backend`, where they are not those of `fns`.
    """
    serial_kwargs = {name: value for name, value in kwargs.items() if name != "num_workers"}
    with (
        jaxenvs.make_pool(fns, backend="serial", **serial_kwargs) as expected,
        jaxenvs.make_pool(theirs or fns, backend=backend, **kwargs) as found,
    ):
        same(found.reset(seed=7, options={"a": 1}), expected.reset(seed=7, options={"a": 1}))
        for action in actions:
            same(found.step(action), expected.step(action))
        some = np.array([len(fns) - 1, 0])
        part = _rows_of(actions[0], some)
        same(found.step(part, some), expected.step(part, some))
        same(found.reset(seed=[1, 2], env_ids=some), expected.reset(seed=[1, 2], env_ids=some))
        same(found.step(actions[0]), expected.step(actions[0]))


def _rows_of(tree: Any, rows: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _rows_of(value, rows) for name, value in tree.items()}
    return tree[rows]


def same(found: Any, expected: Any) -> None:
    """Compares two trees of arrays, and their types."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            same(found[name], expected[name])
    elif isinstance(expected, (tuple, list)) or getattr(expected, "dtype", np.dtype(int)).hasobject:
        assert len(found) == len(expected)
        for mine, theirs in zip(found, expected, strict=True):
            same(mine, theirs)
    else:
        np.testing.assert_array_equal(found, expected)


@contextlib.contextmanager
def collected_while_stepping(
    make: Callable[[list[Any]], Any], wrap: Callable[[Any], Any] = lambda env: env
) -> Iterator[list[Meeting]]:
    """Forgets a pool in the midst of a step in which its environments collect the garbage."""
    go, made, forgotten = threading.Event(), [], []

    def collect() -> None:
        go.wait(5)
        end = time.monotonic() + 30
        # A call does nothing while another thread collects, which takes seconds in a large process.
        while forgotten[0]() is not None and time.monotonic() < end:
            gc.collect()

    def env() -> Any:
        made.append(Meeting(collect))
        return wrap(made[-1])

    pool = make([env] * 3)
    forgotten.append(weakref.ref(pool))
    pool.reset(seed=0)
    pool.step_async(np.zeros(3, int))
    cycle = [pool]
    cycle.append(cycle)
    del pool, cycle
    go.set()
    yield made
