"""Vector environments of jaxenvs and of other libraries, as contestants."""

import contextlib
import dataclasses
import multiprocessing
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np

import jaxenvs
from benchmarks import _common

EnvFn = Callable[[], gymnasium.Env]


@dataclasses.dataclass(frozen=True)
class Contestant:
    """One way to step N environments made by the same function."""

    name: str
    package: str
    make: Callable[[EnvFn, int], Any]  # -> an object with reset, step, and close
    max_num_envs: int | None = None  # more would take minutes or gigabytes
    dtype: type[np.integer] = np.int64  # dtype of actions that needs no conversion
    spins: bool = False  # its idle processes keep cores busy

    def objection(self, num_envs: int) -> str | None:
        """Returns the reason not to measure this contestant, or None."""
        if not _common.version(self.package):
            return f"{self.package} is not installed"
        if self.max_num_envs and num_envs > self.max_num_envs:
            return f"it would need too many processes for N above {self.max_num_envs}"
        return None


@contextlib.contextmanager
def open_envs(
    contestant: Contestant, env_fn: EnvFn, num_envs: int
) -> Iterator[tuple[Any, list[int]]]:
    """Yields the contestant's environments, reset, and the ids of the processes they started."""
    before = {process.pid for process in multiprocessing.active_children()}
    env = contestant.make(env_fn, num_envs)
    started = [p.pid for p in multiprocessing.active_children() if p.pid and p.pid not in before]
    try:
        env.reset()
        yield env, started
    finally:
        env.close()


def prepare() -> None:
    """Makes the fork server import the packages that workers need, before its first use."""
    wanted = ["gymnasium"]
    if _common.version("stable_baselines3"):
        wanted.append("stable_baselines3.common.vec_env.subproc_vec_env")
    multiprocessing.set_forkserver_preload(wanted)


def pool(backend: str, **kwargs: Any) -> Callable[[EnvFn, int], Any]:
    """Returns a constructor of jaxenvs' pools."""

    def make(env_fn: EnvFn, num_envs: int) -> Any:
        # num_workers must not exceed the number of environments.
        given = {name: min(value, num_envs) for name, value in kwargs.items()}
        return jaxenvs.make_pool([env_fn] * num_envs, backend=backend, **given)

    return make


def sync(env_fn: EnvFn, num_envs: int) -> Any:
    return gymnasium.vector.SyncVectorEnv([env_fn] * num_envs)


def asynchronous(env_fn: EnvFn, num_envs: int) -> Any:
    return gymnasium.vector.AsyncVectorEnv([env_fn] * num_envs, context="forkserver")


def sb3_dummy(env_fn: EnvFn, num_envs: int) -> Any:
    from stable_baselines3.common.vec_env import DummyVecEnv

    return DummyVecEnv([env_fn] * num_envs)


def sb3_subproc(env_fn: EnvFn, num_envs: int) -> Any:
    from stable_baselines3.common.vec_env import SubprocVecEnv

    return SubprocVecEnv([env_fn] * num_envs, start_method="forkserver")


def puffer(num_workers: int | None) -> Callable[[EnvFn, int], Any]:
    """Returns a constructor of PufferLib's Serial (None workers) or Multiprocessing."""

    def make(env_fn: EnvFn, num_envs: int) -> Any:
        vector, emulation = _pufferlib()

        def creator(buf: Any = None, seed: int = 0) -> Any:
            return emulation.GymnasiumPufferEnv(env_creator=env_fn, buf=buf, seed=seed)

        each = [creator] * num_envs, [[]] * num_envs, [{}] * num_envs
        if num_workers is None:
            return vector.Serial(*each, num_envs)
        return vector.Multiprocessing(*each, num_envs, num_workers=num_workers)

    return make


def _pufferlib() -> tuple[Any, Any]:
    if not _common.version("torch"):
        # The package imports modules that only its networks need.
        for name in ("pufferlib.models", "pufferlib.pytorch"):
            sys.modules.setdefault(name, types.ModuleType(name))
    import pufferlib.emulation
    import pufferlib.vector

    return pufferlib.vector, pufferlib.emulation


OURS = (
    Contestant("process", "jaxenvs", pool("process", num_workers=_common.cores())),
    Contestant("serial", "jaxenvs", pool("serial")),
)
GYMNASIUM = (
    Contestant("Gymnasium Sync", "gymnasium", sync),
    Contestant("Gymnasium Async", "gymnasium", asynchronous),
)
PUFFER = (
    Contestant("Puffer Serial", "pufferlib-core", puffer(None), dtype=np.int32),
    *(
        Contestant(
            f"Puffer Multiprocessing, {n} worker{'s' * (n > 1)}",
            "pufferlib-core",
            puffer(n),
            dtype=np.int32,
            spins=True,
        )
        for n in sorted({1, _common.cores()})
    ),
)
SB3 = (
    Contestant("SB3 Dummy", "stable_baselines3", sb3_dummy),
    Contestant("SB3 Subproc", "stable_baselines3", sb3_subproc, max_num_envs=64),
)
VERSIONS: Sequence[str] = (
    "gymnasium", "pufferlib-core", "stable_baselines3", "torch", "ale-py", "envpool",
    "opencv-python-headless",
)  # fmt: skip
