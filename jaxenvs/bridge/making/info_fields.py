"""The spaces of the info_fields of make_pool."""

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gymnasium
import numpy as np

from jaxenvs.bridge.foreign.adapter import unbounded
from jaxenvs.bridge.foreign.adapters import adapted
from jaxenvs.bridge.workers.worker import has_coroutines
from jaxenvs.errors import PoolError

Samples = Callable[[], Sequence[Mapping[str, Any]]]  # infos of one environment


def spaces_of_fields(
    fields: Sequence[str] | Mapping[str, gymnasium.Space], samples: Samples
) -> dict[str, gymnasium.Space]:
    if isinstance(fields, Mapping):
        return dict(fields)
    if not fields:
        return {}
    infos, found = samples(), {}
    for name in fields:
        values = [info[name] for info in infos if name in info]
        space = _space_of(values[-1]) if values else None
        if space is None:
            known = sorted({str(key) for info in infos for key in info})
            why = f"which neither reset nor the first step returned; they returned {known}"
            if values:
                why = f"which is {values[-1]!r:.80}, not a number or an array of numbers"
            raise PoolError(
                f"info_fields names {name!r}, {why}.  Remove it, or pass a space for it:"
                f" info_fields={{{name!r}: space}}."
            )
        found[name] = space
    return found


def info_samples(env_fn: Callable[[], Any]) -> list[Mapping[str, Any]]:
    """Returns the infos of a reset and of a step."""
    env = adapted(env_fn())
    if has_coroutines(env):
        with ThreadPoolExecutor(1) as thread:  # this thread may already run an event loop
            return thread.submit(asyncio.run, _awaited_samples(env)).result()
    try:
        _, info = env.reset(seed=0)
        return [info or {}, env.step(env.action_space.sample())[4] or {}]
    finally:
        env.close()


async def _awaited_samples(env: Any) -> list[Mapping[str, Any]]:
    async def result(found: Any) -> Any:
        return await found if inspect.isawaitable(found) else found

    try:
        _, info = await result(env.reset(seed=0))
        answer = await result(env.step(env.action_space.sample()))
        return [info or {}, answer[4] or {}]
    finally:
        await result(env.close())


def _space_of(value: Any) -> gymnasium.Space | None:
    """Returns the space of all values with this shape and dtype; None if it is not numeric."""
    try:
        found = np.asarray(value)
    except ValueError:  # lists of different lengths
        return None
    return unbounded(found.shape, found.dtype) if found.dtype.kind in "biuf" else None
