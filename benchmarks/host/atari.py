"""Atari Pong in worker processes, and vectorized libraries alone and through a pool."""

import contextlib
from typing import Any

import numpy as np

import jaxenvs
from benchmarks import _common
from benchmarks.host import peers
from benchmarks.host.environments import actions, pong
from benchmarks.host.record import Record, ratios, stepping

NUM_ENVS = 16
NUM_ACTIONS = 6


def measure(record: Record) -> None:
    if not (_common.version("ale-py") and _common.version("opencv-python-headless")):
        record.note("ale-py and opencv-python-headless are not installed.")
        return
    peers.prepare()
    _processes(record)
    _native(record, "AtariVectorEnv", _atari_vector, _atari_pool, np.int64)
    if _common.version("envpool"):
        _native(record, "EnvPool", _envpool, _envpool_pool, np.int32)
    else:
        record.note("envpool is not installed.")


def _processes(record: Record) -> None:
    case = f"Pong, N = {NUM_ENVS}"
    given = actions(NUM_ENVS, NUM_ACTIONS)
    with contextlib.ExitStack() as stack:
        sides = {}
        for contestant in (peers.OURS[0], *peers.GYMNASIUM):
            env, _ = stack.enter_context(peers.open_envs(contestant, pong, NUM_ENVS))
            sides[contestant.name] = stepping(env.step, given)
        took = record.race(case, sides, num_envs=NUM_ENVS)
    for peer, required in (("Gymnasium Async", 1.3), ("Gymnasium Sync", None)):
        record.figure(case, f"process / {peer}", ratios(took[peer], took["process"]), required)


def _native(record: Record, name: str, alone: Any, pooled: Any, dtype: Any) -> None:
    case = f"Pong, {name}, N = {NUM_ENVS}"
    given = actions(NUM_ENVS, NUM_ACTIONS, dtype)
    with contextlib.closing(alone()) as env, contextlib.closing(pooled()) as pool:
        env.reset()
        pool.reset()
        sides = {"alone": stepping(env.step, given), "native": stepping(pool.step, given)}
        took = record.race(case, sides, num_envs=NUM_ENVS)
    record.figure(case, f"native / {name} alone", ratios(took["alone"], took["native"]), 0.97)


def _atari_vector() -> Any:
    import ale_py.vector_env

    return ale_py.vector_env.AtariVectorEnv("pong", num_envs=NUM_ENVS)


def _atari_pool() -> Any:
    return jaxenvs.make_pool(_atari_vector, backend="native")


def _envpool() -> Any:
    import envpool

    return envpool.make("Pong-v5", env_type="gymnasium", num_envs=NUM_ENVS)


def _envpool_pool() -> Any:
    return jaxenvs.make_pool("envpool/Pong-v5", NUM_ENVS, backend="native")
