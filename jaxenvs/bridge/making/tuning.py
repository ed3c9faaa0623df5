"""The results of `jaxenvs tune-pool`: its measurement of a pool, and the file that "auto" reads."""

import dataclasses
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

from gymnasium.vector.utils import batch_space

from jaxenvs._machine import cache_folder, num_cores


@dataclasses.dataclass(frozen=True)
class BackendConfig:
    """A backend and how it divides N environments among its workers."""

    backend: str
    num_workers: int = 0
    bounds: tuple[int, ...] | None = None  # each worker's first environment, then N; None: evenly
    caller_steps: bool = False  # whether the caller steps the environments below bounds[0]
    seconds: float = 0.0  # the predicted or measured duration of a batch

    def __str__(self) -> str:
        workers = ""
        if self.num_workers:
            workers = f" with {self.num_workers} worker{'s' if self.num_workers > 1 else ''}"
        return f"{self.backend}{workers}{', plus the caller' if self.caller_steps else ''}"


def _file() -> Path:
    return cache_folder() / "tuned.json"


def _key(name: str, num_envs: int, batch_size: int) -> str:
    return f"{name} num_envs={num_envs} batch_size={batch_size} cores={num_cores()}"


def load_tuned(name: str, num_envs: int, batch_size: int) -> BackendConfig | None:
    """Returns the result that `jaxenvs tune-pool` saved for these environments on this machine."""
    try:
        entry = json.loads(_file().read_text())[_key(name, num_envs, batch_size)]
        bounds = entry.pop("bounds")
        return BackendConfig(**entry, bounds=bounds and tuple(bounds))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # not measured, or the file is damaged


def save_tuned(name: str, num_envs: int, batch_size: int, config: BackendConfig) -> Path:
    """Saves the fastest configuration; returns the file."""
    path = _file()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        entries = json.loads(path.read_text())
    except (OSError, ValueError):
        entries = {}
    entries[_key(name, num_envs, batch_size)] = dataclasses.asdict(config)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps(entries, indent=1))
    os.replace(temporary, path)
    return path


def batch_seconds(pool: Any, seconds: float) -> float:
    """Returns the duration of a batch of `pool` in seconds: the median over random actions.

    Args:
        pool: the pool to step.
        seconds: how long to measure.
    """
    space = pool.action_space
    space.seed(0)
    pool.single_action_space.seed(0)
    if pool.batch_size == pool.num_envs:
        actions = [space.sample() for _ in range(8)]
        pool.reset()

        def step(i: int) -> None:
            pool.step(actions[i])

    else:
        action = batch_space(pool.single_action_space, pool.batch_size).sample()
        pool.async_reset()

        def step(i: int) -> None:
            pool.send(action, pool.recv()[4]["env_id"])

    rounds: list[float] = []
    end = time.perf_counter() + seconds
    while len(rounds) < 2 or time.perf_counter() < end:
        before = time.perf_counter()
        for i in range(8):
            step(i)
        rounds.append((time.perf_counter() - before) / 8)
    while pool.num_pending:
        pool.recv()
    return statistics.median(rounds[1:])  # the first one may set things up
