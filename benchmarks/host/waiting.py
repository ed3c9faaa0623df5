"""Two hundred environments that wait for one millisecond per step."""

import contextlib
import functools

import jaxenvs
from benchmarks.host.environments import AsyncSleeping, Sleeping, actions
from benchmarks.host.record import Record, ratios, slow_stepping

NUM_ENVS = 200
SECONDS = 1e-3


def measure(record: Record) -> None:
    blocking = functools.partial(Sleeping, [SECONDS])
    coroutine = functools.partial(AsyncSleeping, SECONDS)
    contestants = {
        "serial": (blocking, "serial", 1),
        "thread": (blocking, "thread", 20),
        "asyncio": (coroutine, "asyncio", 70),
    }
    case = f"{NUM_ENVS} that wait {SECONDS * 1e3:g} ms"
    sides, required = {}, {}
    with contextlib.ExitStack() as stack:
        for name, (env_fn, backend, least) in contestants.items():
            pool = stack.enter_context(jaxenvs.make_pool([env_fn] * NUM_ENVS, backend=backend))
            pool.reset()
            sides[name], required[name] = slow_stepping(pool.step, actions(NUM_ENVS)), least
        took = record.race(case, sides, num_envs=NUM_ENVS)
    for name in ("thread", "asyncio"):
        record.figure(case, f"{name} / serial", ratios(took["serial"], took[name]), required[name])
