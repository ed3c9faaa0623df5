"""The pools of a HostEnv: checks, the way to them, and their end."""

import time
from collections.abc import Sequence
from typing import Any, Literal

import jax

from jaxenvs.bridge.jit.hosted import Hosted
from jaxenvs.bridge.memory.arrays import MODES
from jaxenvs.bridge.pool import Pool
from jaxenvs.core import AutoresetMode
from jaxenvs.errors import PoolError

Path = Literal["auto", "ffi", "callback"]


def chosen_path(path: Path, hosted: Sequence[Hosted]) -> Literal["ffi", "callback"]:
    """Chooses how programs reach some pools, and makes these ready for it."""
    reasons = [each.reason for each in hosted if each.reason is not None]
    if jax.default_backend() != "cpu":
        reasons.append(f"programs run on a {jax.default_backend()}")
    if path == "ffi" and reasons:
        raise PoolError(
            f'HostEnv got path="ffi", which is not available: {reasons[0]}.  Pass path="auto".'
        )
    if path not in ("auto", "ffi", "callback"):
        raise PoolError(f'HostEnv got path={path!r}; expected "auto", "ffi" or "callback".')
    taken = [each.path for each in hosted if each.path is not None]
    if taken and path not in ("auto", taken[0]):
        raise PoolError(
            f'HostEnv got path="{path}" for a pool that another HostEnv already uses with'
            f' path="{taken[0]}".  Pass path="auto", or make another pool.'
        )
    chosen: Any = taken[0] if taken else "callback" if reasons or path == "callback" else "ffi"
    for each in hosted:
        each.use(chosen)
    return chosen


def wait_until_still(hosted: Sequence[Hosted]) -> None:
    """Waits until no program has called a pool for 0.2 s; for at most 10 s."""
    end = time.monotonic() + 10.0
    calls, since = None, time.monotonic()
    while time.monotonic() < min(end, since + 0.2):
        now = [each.calls for each in hosted]
        if now != calls:
            calls, since = now, time.monotonic()
        time.sleep(0.01)


def check_pools(pools: Sequence[Pool], autoreset_mode: AutoresetMode | None) -> None:
    """Raises PoolError unless the pools can be driven as one environment; sets their mode."""
    if not pools or not all(isinstance(pool, Pool) for pool in pools):
        raise PoolError(
            f"HostEnv got {[type(pool).__name__ for pool in pools]}; expected a pool made by"
            " jaxenvs.make_pool, or one pool for each device of a mesh."
        )
    if len(set(map(id, pools))) != len(pools):
        raise PoolError("HostEnv got the same pool twice.  Make one for each device.")
    if autoreset_mode not in (None, *MODES):
        raise PoolError(
            f"HostEnv got autoreset_mode={autoreset_mode!r}; expected one of"
            f" {', '.join(map(repr, MODES))}."
        )
    for pool in pools:
        pool.fix_autoreset_mode(autoreset_mode)
    names = "num_envs", "batch_size", "single_observation_space", "single_action_space"
    for name in (*names, "autoreset_mode"):
        values = [getattr(pool, name) for pool in pools]
        if any(value != values[0] for value in values):
            raise PoolError(f"HostEnv got pools with different {name}: {values}.  Make them alike.")
